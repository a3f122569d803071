#include "config.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <tailrace_types.hpp>

#include "common/small_file.h"

extern char** environ;

namespace veloc_on_tailrace {

namespace {

constexpr std::string_view blanks = " \t\r\f\v";
constexpr std::string_view own_prefix = "tailrace_";
constexpr const char* no_limit = "1048576";  // the most that keep_local takes

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string in_lower_case(std::string_view text) {
    std::string lower(text);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return lower;
}

// A comment behind a value begins with a semicolon after a blank.
std::string_view without_comment(std::string_view value) {
    for (size_t i = 1; i < value.size(); ++i)
        if (value[i] == ';' && blanks.find(value[i - 1]) != std::string_view::npos) return value.substr(0, i);
    return value;
}

struct Value {
    std::string text;
    std::string origin;  // where it stands, for sentences
};

// Keys in lower case.
using Values = std::map<std::string, Value>;

[[noreturn]] void refuse(const Value& value, std::string_view key, const std::string& why) {
    throw ConfigError(value.origin + ": " + std::string(key) + " = " + value.text + ": " + why);
}

void parse_line(std::string_view line, const std::string& origin, Values& values) {
    const auto separator = line.find_first_of("=:");
    if (separator == std::string_view::npos || trimmed(line.substr(0, separator)).empty())
        throw ConfigError(origin + ": \"" + std::string(line) + "\" is no line `key = value`");
    const auto key = in_lower_case(trimmed(line.substr(0, separator)));
    const auto value = trimmed(without_comment(line.substr(separator + 1)));
    const auto [there, added] = values.emplace(key, Value{std::string(value), origin});
    if (!added) throw ConfigError(origin + ": " + key + " stands in " + there->second.origin + " already");
}

// Keys stand before any section, as in VELOC. `notes` gets what is not read for that.
Values values_of(std::string_view text, const std::string& file, std::vector<std::string>& notes) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    Values values;
    for (size_t number = 1; !text.empty(); ++number) {
        const auto end = text.find('\n');
        const auto line = trimmed(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.empty() || line.front() == ';' || line.front() == '#') continue;
        const auto origin = file + ", line " + std::to_string(number);
        if (line.front() == '[') {
            notes.push_back(origin + ": what follows \"" + std::string(line) +
                            "\" has no effect; keys stand before any section");
            break;
        }
        parse_line(line, origin, values);
    }
    return values;
}

// In tailrace's words.
bool yes_or_no(const Value& value, std::string_view key) {
    const auto text = in_lower_case(value.text);
    for (const std::string_view yes : {"yes", "true", "on", "1"})
        if (text == yes) return true;
    for (const std::string_view no : {"no", "false", "off", "0"})
        if (text == no) return false;
    refuse(value, key, "write yes or no");
}

int64_t number_of(const Value& value, std::string_view key) {
    int64_t number = 0;
    const char* const end = value.text.data() + value.text.size();
    const auto parsed = std::from_chars(value.text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) refuse(value, key, "this is no whole number");
    return number;
}

std::string versions_of(const Value& value, std::string_view key, const char* all) {
    const int64_t versions = number_of(value, key);
    if (versions < 0) refuse(value, key, "write the number of versions to keep, or 0 for all");
    return versions == 0 ? all : std::to_string(versions);
}

// ---- what each key does -------------------------------------------------------------------------

void note(Configuration& into, const Value& value, std::string_view key, std::string_view instead) {
    into.notes.push_back(value.origin + ": " + std::string(key) + " has no effect; " + std::string(instead));
}

void set_mode(Configuration& into, const Value& value) {
    const auto mode = in_lower_case(value.text);
    if (mode != "sync" && mode != "async") refuse(value, "mode", "write sync or async");
    into.sync = mode == "sync";
}

void set_interval(Configuration& into, const Value& value) {
    const int64_t seconds = number_of(value, "persistent_interval");
    if (seconds < 0) {
        into.session.emplace_back("shared_every", "4294967295");
        into.session.emplace_back("flush_at_close", "no");
    } else if (seconds > 0) {
        note(into, value, "persistent_interval",
             "every version goes to the persistent directory, or with tailrace_shared_every = N every N-th");
    }
}

void set_parallelism(Configuration& into, const Value& value) {
    const int64_t threads = number_of(value, "max_parallelism");
    if (threads < 1) refuse(value, "max_parallelism", "write how many threads may write");
    into.session.emplace_back("writers", std::to_string(threads));
}

struct Rule {
    Key key;
    void (*apply)(Configuration& into, const Value& value);  // null: a note says what does it instead
};

// For a key without effect, `becomes` is also the second half of its note.
const std::vector<Rule>& rules() {
    static const std::vector<Rule> all = {
        {{"scratch", "`local_dir`", true},
         [](Configuration& into, const Value& value) { into.scratch = value.text; }},
        {{"persistent", "`shared_dir`: `persistent/NAME` for each name", true},
         [](Configuration& into, const Value& value) { into.persistent = value.text; }},
        {{"mode", "`sync`: Checkpoint_end waits until the version is durable", true}, set_mode},
        {{"max_versions", "`keep_shared`, for each name", true},
         [](Configuration& into, const Value& value) {
             into.session.emplace_back("keep_shared", versions_of(value, "max_versions", "0"));
         }},
        {{"scratch_versions", "`keep_local`, for each name", true},
         [](Configuration& into, const Value& value) {
             into.session.emplace_back("keep_local", versions_of(value, "scratch_versions", no_limit));
         }},
        {{"persistent_interval", "-1: versions stay on the nodes; other numbers have no effect", true},
         set_interval},
        {{"max_parallelism", "`writers`", true}, set_parallelism},
        {{"log_prefix", "the log goes to the file `veloc-client-HOST-UID.log` there", true},
         [](Configuration& into, const Value& value) { into.log_file_directory = value.text; }},
        {{"ec_interval", "tailrace_redundancy = partner, xor or rs:K protects versions on the nodes", false},
         nullptr},
        {{"failure_domain", "tailrace_failure_domain says which nodes may be lost at once", false}, nullptr},
        {{"watchdog_interval", "no process watches clients", false}, nullptr},
        {{"chksum", "there are always checksums, unless tailrace_checksum = no", false}, nullptr},
        {{"meta", "tailrace's files need no second directory", false}, nullptr},
        {{"aggregated", "a version is always few files: tailrace_files says how many", false}, nullptr},
        {{"threaded", "the work is always done by threads of the program, or by `tailrace agent`", false},
         nullptr},
        {{"axl_type", "tailrace_io_engine and tailrace_direct_io say how files are written", false}, nullptr},
        {{"daos_pool", "tailrace writes to file systems only", false}, nullptr},
        {{"daos_cont", "tailrace writes to file systems only", false}, nullptr},
        {{"gpu_buffer_slots", "regions are read from the host's memory", false}, nullptr},
        {{"host_stage_slots", "regions are read from the host's memory", false}, nullptr},
    };
    return all;
}

void apply(Configuration& into, const std::string& key, const Value& value) {
    const auto rule =
        std::find_if(rules().begin(), rules().end(), [&](const Rule& each) { return each.key.name == key; });
    if (rule == rules().end()) {
        note(into, value, key, "neither VELOC nor tailrace knows it");
    } else if (rule->apply == nullptr) {
        note(into, value, key, rule->key.becomes);
    } else {
        rule->apply(into, value);
    }
}

// A key of tailrace's own, without its prefix.
void apply_own(Configuration& into, const std::string& key, const Value& value) {
    if (key == "honour_success") {
        into.honour_success = yes_or_no(value, std::string(own_prefix) + key);
        return;
    }
    if (key == "import") {
        into.import_from = value.text == "none" ? "" : value.text;
        return;
    }
    for (const std::string_view taken : {"shared_dir", "local_dir", "name"})
        if (key == taken)
            refuse(value, std::string(own_prefix) + key, "VELOC's keys persistent and scratch say where");
    into.session.emplace_back(key, value.text);
}

// The settings that a key has added, from the first one on, are values that tailrace takes.
void check_settings(const Configuration& made, size_t first, const std::string& key, const Value& value) {
    tailrace::Options options;
    for (size_t i = first; i < made.session.size(); ++i) {
        try {
            options.set(made.session[i].first, made.session[i].second);
        } catch (const tailrace::Error& error) {
            refuse(value, key, error.what());
        }
    }
}

void take_environment(Values& values, const Environment& environment) {
    constexpr std::string_view prefix = "VELOC_";
    for (const auto& [name, text] : environment) {
        if (!name.starts_with(prefix)) continue;
        const auto key = in_lower_case(std::string_view(name).substr(prefix.size()));
        const bool known = key.starts_with(own_prefix) ||
                           std::any_of(rules().begin(), rules().end(),
                                       [&](const Rule& rule) { return rule.key.name == key; });
        if (known) values[key] = Value{std::string(trimmed(text)), "environment variable " + name};
    }
}

void require(const Values& values, std::string_view key, const std::string& file) {
    const auto found = values.find(std::string(key));
    if (found != values.end() && !found->second.text.empty()) return;
    throw ConfigError((file.empty() ? "no configuration file" : file) + ": " + std::string(key) +
                      " is missing; write it into the file, before any section, or set VELOC_" +
                      (key == "mode" ? "MODE" : "SCRATCH"));
}

}  // namespace

Configuration settings_of(std::string_view text, const std::string& file, const Environment& environment) {
    Configuration made;
    Values values = values_of(text, file, made.notes);
    take_environment(values, environment);
    require(values, "scratch", file);
    require(values, "mode", file);
    for (const auto& [key, value] : values) {
        const size_t before = made.session.size();
        if (key.starts_with(own_prefix)) continue;
        apply(made, key, value);
        check_settings(made, before, key, value);
    }
    made.import_from = made.persistent;
    if (made.persistent.empty()) {
        // Nothing leaves the node, so nothing may go that a restart would need, unless it was asked for.
        made.session.insert(
            made.session.begin(),
            {{"shared_every", "4294967295"}, {"flush_at_close", "no"}, {"keep_local", no_limit}});
    }
    for (const auto& [key, value] : values) {
        const size_t before = made.session.size();
        if (!key.starts_with(own_prefix)) continue;
        apply_own(made, key.substr(own_prefix.size()), value);
        check_settings(made, before, key, value);
    }
    return made;
}

std::string read_file(const std::string& path) {
    if (path.empty()) return {};
    try {
        return on_tailrace::read_file(path, "it");
    } catch (const tailrace::Error& error) {
        throw ConfigError("the configuration file " + path + " cannot be read: " + error.what() +
                          "; name one that can, or none and set VELOC_SCRATCH and the others");
    }
}

Environment environment() {
    Environment all;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view line(*entry);
        const auto separator = line.find('=');
        if (separator != std::string_view::npos)
            all.emplace(line.substr(0, separator), line.substr(separator + 1));
    }
    return all;
}

const std::vector<Key>& known_keys() {
    static const std::vector<Key> keys = [] {
        std::vector<Key> made;
        for (const Rule& rule : rules()) made.push_back(rule.key);
        return made;
    }();
    return keys;
}

}  // namespace veloc_on_tailrace
