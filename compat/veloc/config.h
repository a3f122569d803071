// config.h - VELOC's configuration, and what becomes of it here.
//
// A file has lines `key = value`, and the environment variable VELOC_<KEY> wins over a line. settings_of()
// turns them into settings of tailrace sessions and into notes about what has no effect. It is a pure
// function; read_file() and environment() bring in what it works on. docs/veloc.md has the table of keys, and
// tests/veloc/config_test.cc holds it to this code.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace veloc_on_tailrace {

// A configuration that cannot be used. what() says where, and what to write.
class ConfigError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Environment variables by name, of which only VELOC_... is looked at.
using Environment = std::map<std::string, std::string>;

struct Configuration {
    std::string scratch;     // for the node-local tier
    std::string persistent;  // holds a shared directory for each name; empty: checkpoints stay in scratch
    bool sync = false;       // Checkpoint_end waits until the version is durable
    bool honour_success = true;
    std::string import_from;         // where VELOC's own checkpoints are looked for; empty: nowhere
    std::string log_file_directory;  // empty: the log goes to stderr
    // Keys and values for tailrace_options_set, but for the directories and the job's name.
    std::vector<std::pair<std::string, std::string>> session;
    // A sentence for each key that is there and has no effect.
    std::vector<std::string> notes;
};

// `file` names the text in sentences; it is empty if there is no file. Throws ConfigError.
Configuration settings_of(std::string_view text, const std::string& file, const Environment& environment);

// The text of a file, or "" for an empty name. Throws ConfigError.
std::string read_file(const std::string& path);
Environment environment();

// What is known of a key of VELOC's, for settings_of and for the page.
struct Key {
    std::string_view name;
    std::string_view becomes;  // in docs/veloc.md
    bool has_effect;
};
const std::vector<Key>& known_keys();

}  // namespace veloc_on_tailrace
