// ini_file.h - the text of an FTI configuration file: its keys, and how its section [restart] is rewritten.
//
//     # a comment
//     [Basic]
//     Ckpt_dir = /local   ; another comment
//
// Sections and keys are written in any case. A value ends at a '#' or ';', unless it stands in quotes.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fti_on_tailrace {

// A sentence that names the place.
class ConfigError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct Value {
    std::string text;
    std::string origin;  // where it stands, for sentences
};
// By "section:key", in lower case. An empty value counts as none.
using Values = std::map<std::string, Value>;

std::string in_lower_case(std::string_view text);

// `file` is for sentences. Throws ConfigError for a line that is none. Where a key stands twice, the last one
// counts, as in FTI, and `notes` says so.
Values values_of(std::string_view text, const std::string& file, std::vector<std::string>& notes);

// The same text with these values in [restart], and everything else as it was.
std::string with_restart(std::string_view text, int failure, const std::string& exec_id);

}  // namespace fti_on_tailrace
