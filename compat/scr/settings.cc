#include "settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <tailrace_types.hpp>

namespace scr_on_tailrace {

namespace {

constexpr std::string_view own_prefix = "TAILRACE_";

// A key that has a value.
struct Value {
    std::string key;
    std::string text;
    std::string origin;  // where it stands, for sentences
};

std::string in_case(std::string_view text, int (*change)(int)) {
    std::string changed(text);
    for (char& c : changed) c = static_cast<char>(change(static_cast<unsigned char>(c)));
    return changed;
}

[[noreturn]] void refuse(const Value& value, const std::string& why) {
    throw ConfigError(value.origin + ": " + value.key + " = " + value.text + ": " + why);
}

int64_t number_of(const Value& value, int64_t least) {
    int64_t number = 0;
    const char* const end = value.text.data() + value.text.size();
    const auto parsed = std::from_chars(value.text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) refuse(value, "this is no whole number");
    if (number < least) refuse(value, "the least is " + std::to_string(least));
    return number;
}

bool yes_or_no(const Value& value) {
    const auto text = in_case(value.text, std::tolower);
    for (const std::string_view yes : {"1", "yes", "true", "on", "y", "enable", "enabled"})
        if (text == yes) return true;
    for (const std::string_view no : {"0", "no", "false", "off", "n", "disable", "disabled"})
        if (text == no) return false;
    refuse(value, "write 1 or 0");
}

// ---- what each key does -------------------------------------------------------------------------

void note(Settings& into, const Value& value, std::string_view instead) {
    into.notes.push_back(value.origin + ": " + value.key + " has no effect; " + std::string(instead));
}

// 0 leaves it as it is. `unit` is behind the number.
void pass_on(Settings& into, const Value& value, const char* setting, const char* unit = "") {
    const int64_t number = number_of(value, 0);
    if (number > 0) into.session.emplace_back(setting, std::to_string(number) + unit);
}

void set_copy_type(Settings& into, const Value& value) {
    const auto type = in_case(value.text, std::toupper);
    const std::pair<std::string_view, const char*> known[] = {
        {"SINGLE", "none"}, {"FILE", "none"}, {"PARTNER", "partner"}, {"XOR", "xor"}, {"RS", "rs:2"}};
    for (const auto& [name, redundancy] : known)
        if (type == name) return void(into.session.emplace_back("redundancy", redundancy));
    refuse(value, "write SINGLE, PARTNER, XOR or RS");
}

// Of RS only; COPY_TYPE stands before it in rules().
void set_failures(Settings& into, const Value& value) {
    const auto failures = number_of(value, 1);
    for (auto& [setting, redundancy] : into.session)
        if (setting == "redundancy" && redundancy.starts_with("rs:"))
            redundancy = "rs:" + std::to_string(failures);
}

struct Rule {
    Key key;
    void (*apply)(Settings& into, const Value& value);  // null: a note says what does it instead
};

// For a key without effect, `becomes` is also the second half of its note.
const std::vector<Rule>& rules() {
    static const std::vector<Rule> all = {
        {{"SCR_PREFIX", "the program's files lie below it, and `shared_dir` is its `.scr/tailrace`", true},
         [](Settings& into, const Value& value) { into.prefix = value.text; }},
        {{"SCR_CONF_FILE", "the file with keys; without it `.scrconf` in SCR_PREFIX", true},
         [](Settings&, const Value&) {}},
        {{"SCR_ENABLE", "0: SCR_Init fails, and nothing is done", true},
         [](Settings& into, const Value& value) { into.enabled = yes_or_no(value); }},
        {{"SCR_CACHE_BYPASS", "1 (the default): files are written to their final place; 0: they are cached",
          true},
         [](Settings& into, const Value& value) { into.bypass = yes_or_no(value); }},
        {{"SCR_FLUSH_ASYNC", "1: a cached dataset is complete once it is captured", true},
         [](Settings& into, const Value& value) { into.flush_async = yes_or_no(value); }},
        {{"SCR_CURRENT", "the checkpoint to restart from first", true},
         [](Settings& into, const Value& value) { into.first_current = value.text; }},
        {{"SCR_CACHE_BASE", "`local_dir`: its `tailrace-UID`", true},
         [](Settings& into, const Value& value) { into.cache_base = value.text; }},
        {{"SCR_CACHE_SIZE", "`keep_local`", true},
         [](Settings& into, const Value& value) { pass_on(into, value, "keep_local"); }},
        {{"SCR_COPY_TYPE", "`redundancy`: SINGLE none, PARTNER partner, XOR xor, RS rs:K", true},
         set_copy_type},
        {{"SCR_SET_FAILURES", "the K of `redundancy = rs:K`", true}, set_failures},
        {{"SCR_SET_SIZE", "`redundancy_set`", true},
         [](Settings& into, const Value& value) { pass_on(into, value, "redundancy_set"); }},
        {{"SCR_CHECKPOINT_INTERVAL", "`save_every`: every N-th SCR_Need_checkpoint says yes", true},
         [](Settings& into, const Value& value) { pass_on(into, value, "save_every"); }},
        {{"SCR_CHECKPOINT_SECONDS", "`save_interval`: the time between checkpoints", true},
         [](Settings& into, const Value& value) { pass_on(into, value, "save_interval", "s"); }},
        {{"SCR_HALT_SECONDS", "`stop_before`: the time before the job's end to stop", true},
         [](Settings& into, const Value& value) { pass_on(into, value, "stop_before", "s"); }},
        {{"SCR_CHECKPOINT_OVERHEAD", "TAILRACE_MTBF chooses the best time between checkpoints", false},
         nullptr},
        {{"SCR_HALT_EXIT", "the library never ends the program; ask SCR_Should_exit", false}, nullptr},
        {{"SCR_GROUP", "TAILRACE_FAILURE_DOMAIN says which nodes may be lost at once", false}, nullptr},
        {{"SCR_FLUSH", "every dataset goes to the prefix, or with TAILRACE_SHARED_EVERY = N every N-th",
          false},
         nullptr},
        {{"SCR_FLUSH_TYPE", "TAILRACE_IO_ENGINE says how files are written", false}, nullptr},
        {{"SCR_FLUSH_WIDTH", "TAILRACE_FILES and TAILRACE_WRITERS say how many write", false}, nullptr},
        {{"SCR_FLUSH_ON_RESTART", "the next run always flushes what a run has captured", false}, nullptr},
        {{"SCR_FLUSH_POSTSTAGE", "`tailrace agent` finishes the epochs that a program has left", false},
         nullptr},
        {{"SCR_FETCH", "a checkpoint is always read from where it is", false}, nullptr},
        {{"SCR_FETCH_WIDTH", "all nodes read at once", false}, nullptr},
        {{"SCR_FETCH_BYPASS", "a cached checkpoint comes back into the node-local tier", false}, nullptr},
        {{"SCR_DISTRIBUTE", "a checkpoint is always read from where it is", false}, nullptr},
        {{"SCR_GLOBAL_RESTART", "a cached checkpoint comes back into the node-local tier", false}, nullptr},
        {{"SCR_PREFIX_SIZE", "`tailrace prune` and SCR_Delete remove datasets", false}, nullptr},
        {{"SCR_PREFIX_PURGE", "`tailrace prune` and SCR_Delete remove datasets", false}, nullptr},
        {{"SCR_CACHE_PURGE", "`tailrace drain --forget` clears the node-local tier", false}, nullptr},
        {{"SCR_DROP_AFTER_CURRENT", "datasets after the current checkpoint stay known", false}, nullptr},
        {{"SCR_CNTL_BASE", "there are no control files on the nodes", false}, nullptr},
        {{"SCR_CRC_ON_COPY", "there are always checksums, unless TAILRACE_CHECKSUM = no", false}, nullptr},
        {{"SCR_CRC_ON_FLUSH", "there are always checksums, unless TAILRACE_CHECKSUM = no", false}, nullptr},
        {{"SCR_CRC_ON_DELETE", "there are always checksums, unless TAILRACE_CHECKSUM = no", false}, nullptr},
        {{"SCR_DEBUG", "TAILRACE_LOG sets the level of messages", false}, nullptr},
        {{"SCR_LOG_ENABLE", "`tailrace report` shows the cost of each save", false}, nullptr},
        {{"SCR_RUNS", "`tailrace run --restarts N` starts a program again", false}, nullptr},
        {{"SCR_MIN_NODES", "`tailrace run` goes on with the healthy nodes", false}, nullptr},
        {{"SCR_EXCLUDE_NODES", "`tailrace run --health COMMAND` leaves nodes out", false}, nullptr},
        {{"SCR_WATCHDOG_TIMEOUT", "`tailrace run --watch TIME` checks the nodes", false}, nullptr},
        {{"SCR_WATCHDOG_TIMEOUT_PFS", "`tailrace run --watch TIME` checks the nodes", false}, nullptr},
        {{"SCR_MPI_BUF_SIZE", "TAILRACE_BUFFER_BYTES is the size of a buffer", false}, nullptr},
        {{"SCR_FILE_BUF_SIZE", "TAILRACE_BUFFER_BYTES is the size of a buffer", false}, nullptr},
        {{"SCR_JOB_ID", "datasets belong to the prefix, not to a job", false}, nullptr},
        {{"SCR_JOB_NAME", "datasets belong to the prefix, not to a job", false}, nullptr},
        {{"SCR_USER_NAME", "datasets belong to the prefix, not to a user", false}, nullptr},
        {{"STORE", "the node-local tier is SCR_CACHE_BASE", false}, nullptr},
        {{"CKPT", "SCR_COPY_TYPE applies to all datasets", false}, nullptr},
        {{"GROUPS", "TAILRACE_FAILURE_DOMAIN says which nodes may be lost at once", false}, nullptr},
    };
    return all;
}

bool is_known(std::string_view key) {
    return std::any_of(rules().begin(), rules().end(),
                       [&](const Rule& rule) { return rule.key.name == key; });
}

// Scripts for SCR set these for every job, so nobody needs to hear of them.
bool is_usual(std::string_view key) {
    return key == "SCR_JOB_ID" || key == "SCR_JOB_NAME" || key == "SCR_USER_NAME" || key == "SCR_DEBUG";
}

// A setting of tailrace's own. Its environment variable is tailrace's to read.
void apply_own(Settings& into, const Value& value) {
    if (std::getenv(value.key.c_str()) != nullptr) return;
    const auto setting = in_case(value.key.substr(own_prefix.size()), std::tolower);
    for (const std::string_view taken : {"shared_dir", "local_dir", "name"})
        if (setting == taken) refuse(value, "SCR_PREFIX and SCR_CACHE_BASE say where");
    if (setting == "purpose") refuse(value, "the flags of SCR_Start_output say it");
    into.session.emplace_back(setting, value.text);
}

// The settings from the first one on are values that tailrace takes.
void check_settings(const Settings& made, size_t first, const Value& value) {
    tailrace::Options options;
    for (size_t i = first; i < made.session.size(); ++i) {
        try {
            options.set(made.session[i].first, made.session[i].second);
        } catch (const tailrace::Error& error) {
            refuse(value, error.what());
        }
    }
}

void resolve_prefix(Settings& made) {
    std::error_code error;
    const auto here = std::filesystem::current_path(error);
    if (error) throw ConfigError("the working directory has no path: " + error.message());
    auto prefix = (here / made.prefix).lexically_normal().string();
    while (prefix.size() > 1 && prefix.ends_with('/')) prefix.pop_back();
    made.prefix = prefix;
}

}  // namespace

Settings settings_of(Parameters& parameters) {
    Settings made;
    for (const auto& rule : rules()) {
        const std::string key(rule.key.name);
        const bool has_parts = !key.starts_with("SCR_");
        if (has_parts) {
            const auto keys = parameters.keys();
            if (std::find(keys.begin(), keys.end(), key) != keys.end())
                made.notes.push_back(key + " has no effect; " + std::string(rule.key.becomes));
            continue;
        }
        const auto text = parameters.get(key);
        if (!text) continue;
        const Value value{key, *text, parameters.origin(key)};
        const size_t before = made.session.size();
        if (rule.apply != nullptr)
            rule.apply(made, value);
        else if (!is_usual(key))
            note(made, value, rule.key.becomes);
        check_settings(made, before, value);
    }
    for (const auto& key : parameters.keys()) {
        if (!key.starts_with(own_prefix)) {
            if (!is_known(key)) note(made, {key, {}, parameters.origin(key)}, "tailrace does not know it");
            continue;
        }
        const Value value{key, parameters.get(key).value_or(""), parameters.origin(key)};
        const size_t before = made.session.size();
        apply_own(made, value);
        check_settings(made, before, value);
    }
    resolve_prefix(made);
    return made;
}

const std::vector<Key>& known_keys() {
    static const std::vector<Key> keys = [] {
        std::vector<Key> all;
        for (const auto& rule : rules()) all.push_back(rule.key);
        return all;
    }();
    return keys;
}

}  // namespace scr_on_tailrace
