// parameters.h - SCR's keys and their values, from all the places where they may stand.
//
// A key has its value from the first of these places that has one: the environment, the user's file, and what
// the program has set with SCR_Config. The user's file is the one that SCR_CONF_FILE names, otherwise
// .scrconf in the directory SCR_PREFIX. A key may have several values with parts, as STORE in `STORE=/dev/shm
// GROUP=NODE COUNT=1`; these come from the file and the program only.
//
// parse_line() is a pure function. Parameters reads the environment and the file when it is asked.
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace scr_on_tailrace {

// A line that makes no sense, or a file that cannot be read. what() says which, and what to write.
class ConfigError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// `KEY=VALUE PART=VALUE ...`, and for a question `KEY` or `KEY=VALUE PART`.
struct Line {
    std::string key;
    std::optional<std::string> value;  // nothing: `KEY=` takes the key back, or `KEY` asks for it
    std::vector<std::pair<std::string, std::string>> parts;
    bool asks = false;
    std::string asked_part;  // of `value`; empty: the key itself
};

// Blanks may stand around the equals signs. A value ends at a blank. Throws ConfigError.
Line parse_line(std::string_view text);

// $NAME and ${NAME} become what the environment has, or nothing. A brace that is not closed stays as it is.
std::string expanded(std::string_view text);

class Parameters {
  public:
    // Works on one line: sets and gives nothing, or gives the value that is asked for. Throws ConfigError.
    std::optional<std::string> apply(std::string_view line);
    // The value of a key. Throws ConfigError if several are set, or if the file cannot be read.
    std::optional<std::string> get(const std::string& key);
    // Where get() finds it, for sentences.
    std::string origin(const std::string& key);
    // All keys that the file and the program have.
    std::vector<std::string> keys();

  private:
    using Parts = std::map<std::string, std::string>;
    using Values = std::map<std::string, std::map<std::string, Parts>>;  // by key, by value

    static void set(Values& values, const Line& line);
    void read_file();
    std::optional<std::string> without_file(const std::string& key) const;

    Values program_;
    Values file_;
    std::string file_read_;  // the path that file_ is from; empty: none was read
};

}  // namespace scr_on_tailrace
