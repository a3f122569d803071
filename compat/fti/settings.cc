#include "settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <tailrace_types.hpp>

namespace fti_on_tailrace {

namespace {

constexpr std::string_view own_section = "tailrace";

[[noreturn]] void refuse(const Value& value, std::string_view key, const std::string& why) {
    throw ConfigError(value.origin + ": " + std::string(key) + " = " + value.text + ": " + why);
}

int number_of(const Value& value, std::string_view key, int least, int most) {
    int number = 0;
    const char* const end = value.text.data() + value.text.size();
    const auto parsed = std::from_chars(value.text.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) refuse(value, key, "this is no whole number");
    if (number < least || number > most)
        refuse(value, key, "write a number from " + std::to_string(least) + " to " + std::to_string(most));
    return number;
}

bool yes_or_no(const Value& value, std::string_view key) {
    const auto text = in_lower_case(value.text);
    for (const std::string_view yes : {"1", "yes", "true", "y", "t"})
        if (text == yes) return true;
    for (const std::string_view no : {"0", "no", "false", "n", "f"})
        if (text == no) return false;
    refuse(value, key, "write 1 or 0");
}

constexpr int any = std::numeric_limits<int>::max();

// ---- what each key does -------------------------------------------------------------------------

// Of ckpt_lN. FTI takes what is below 1 as never.
template <int level>
void set_minutes(Settings& into, const Value& value, std::string_view key) {
    into.minutes[level] = std::max(0, number_of(value, key, -1, any / 60));
}

template <int level>
void set_waits(Settings& into, const Value& value, std::string_view key) {
    into.waits[level] = yes_or_no(value, key);
}

// It names a directory.
void set_exec_id(Settings& into, const Value& value, std::string_view key) {
    const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
    const auto& id = value.text;
    if (id == "." || id == ".." || !std::all_of(id.begin(), id.end(), allowed))
        refuse(value, key, "it may have letters, digits, dots, hyphens and underscores");
    into.exec_id = id;
}

void set_failure(Settings& into, const Value& value, std::string_view key) {
    into.failure = number_of(value, key, 0, 3);
    if (into.failure == 3)
        refuse(
            value, key,
            "there are no restarts from HDF5 files here; write 1 to restart from the last checkpoint, or 0 "
            "for a first run");
}

struct Rule {
    Key key;
    void (*apply)(Settings& into, const Value& value, std::string_view key);  // null: no effect
    // Without effect: values that ask for nothing, so that nobody needs to hear of them. Null: all are such.
    const char* harmless = nullptr;
};

// For a key without effect, `becomes` is also the second half of its note.
const std::vector<Rule>& rules() {
    static const std::vector<Rule> all = {
        {{"basic", "ckpt_dir", "`local_dir`: its `EXEC_ID/tailrace`", true},
         [](Settings& into, const Value& value, std::string_view) { into.ckpt_dir = value.text; }},
        {{"basic", "glbl_dir", "`shared_dir`: its `EXEC_ID/tailrace/l1` to `l4`, one for each level", true},
         [](Settings& into, const Value& value, std::string_view) { into.glbl_dir = value.text; }},
        {{"basic", "ckpt_l1", "minutes between the checkpoints of level 1 that FTI_Snapshot takes", true},
         set_minutes<1>},
        {{"basic", "ckpt_l2", "the same for level 2", true}, set_minutes<2>},
        {{"basic", "ckpt_l3", "the same for level 3", true}, set_minutes<3>},
        {{"basic", "ckpt_l4", "the same for level 4", true}, set_minutes<4>},
        {{"basic", "inline_l2", "0: FTI_Checkpoint does not wait until the level is reached", true},
         set_waits<2>},
        {{"basic", "inline_l3", "0: FTI_Checkpoint does not wait until the level is reached", true},
         set_waits<3>},
        {{"basic", "inline_l4", "0: FTI_Checkpoint does not wait until the level is reached", true},
         set_waits<4>},
        {{"basic", "keep_last_ckpt", "1: FTI_Finalize keeps the last checkpoint", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.keeps_last = yes_or_no(value, key);
         }},
        {{"basic", "keep_l4_ckpt", "1: every checkpoint of level 4 stays", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.keeps_l4 = yes_or_no(value, key);
         }},
        {{"basic", "group_size", "`redundancy_set` of levels 2 and 3; level 3 has `rs:K` with half of it",
          true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.group_size = number_of(value, key, 1, 32);
         }},
        {{"basic", "node_size", "with local_test = 1 `ranks_per_node`", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.node_size = number_of(value, key, 1, 1 << 26);  // as ranks_per_node
         }},
        {{"advanced", "local_test", "1: each node_size ranks count as a node", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.local_test = yes_or_no(value, key);
         }},
        {{"basic", "max_sync_intv", "the most iterations between looks at the clock; 0: 512", true},
         [](Settings& into, const Value& value, std::string_view key) {
             const int most = number_of(value, key, -1, 1 << 20);
             if (most > 0) into.most_iterations = most;
         }},
        {{"advanced", "fast_forward", "so many of the minutes of ckpt_l1 to ckpt_l4 pass in one", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.fast_forward = number_of(value, key, 1, 10);
         }},
        {{"basic", "max_var_id", "the greatest id of FTI_Protect", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.greatest_id = number_of(value, key, 0, any);
         }},
        {{"basic", "verbosity", "3: only failures are said", true},
         [](Settings& into, const Value& value, std::string_view key) {
             into.silent = number_of(value, key, 1, 3) == 3;
         }},
        {{"restart", "failure", "0: a first run; 1: a restart; 2: a restart from the kept checkpoint", true},
         set_failure},
        {{"restart", "exec_id", "the run to restart from", true}, set_exec_id},
        {{"basic", "meta_dir", "a checkpoint needs no second directory", false}, nullptr},
        {{"basic", "head", "tailrace's threads do the work, and no rank is a server", false}, nullptr, "0"},
        {{"basic", "keep_heads_alive", "no rank is a server", false}, nullptr, "0"},
        {{"basic", "dcp_l4", "every checkpoint is whole", false}, nullptr, "0 -1"},
        {{"basic", "enable_dcp", "every checkpoint is whole", false}, nullptr, "0"},
        {{"basic", "dcp_mode", "every checkpoint is whole", false}, nullptr},
        {{"basic", "dcp_block_size", "every checkpoint is whole", false}, nullptr},
        {{"basic", "dcp_stack_size", "every checkpoint is whole", false}, nullptr},
        {{"basic", "cacheddcp", "every checkpoint is whole", false}, nullptr},
        {{"basic", "enable_staging", "FTI_SendFile is missing", false}, nullptr, "0"},
        {{"basic", "glbl_stash_dir", "FTI_SendFile is missing", false}, nullptr, ""},
        {{"basic", "ckpt_io", "the files are tailrace's own, whatever it says", false}, nullptr, "0 1 2 3"},
        {{"basic", "h5_single_file_enable", "HDF5 files are not written", false}, nullptr, "0"},
        {{"basic", "h5_single_file_keep", "HDF5 files are not written", false}, nullptr, "0"},
        {{"basic", "h5_single_file_inline", "HDF5 files are not written", false}, nullptr},
        {{"basic", "h5_single_file_dir", "HDF5 files are not written", false}, nullptr},
        {{"basic", "h5_single_file_prefix", "HDF5 files are not written", false}, nullptr},
        {{"advanced", "block_size", "buffer_bytes in [tailrace] is the size of a buffer", false}, nullptr},
        {{"advanced", "transfer_size", "buffer_bytes in [tailrace] is the size of a buffer", false}, nullptr},
        {{"advanced", "general_tag", "tailrace's messages have their own communicator", false}, nullptr},
        {{"advanced", "ckpt_tag", "tailrace's messages have their own communicator", false}, nullptr},
        {{"advanced", "stage_tag", "tailrace's messages have their own communicator", false}, nullptr},
        {{"advanced", "final_tag", "tailrace's messages have their own communicator", false}, nullptr},
        {{"advanced", "gpu_host_bufsize", "memory of a GPU is not read", false}, nullptr},
        {{"advanced", "lustre_striping_unit", "the stripes are those of the directory", false}, nullptr},
        {{"advanced", "lustre_striping_factor", "the stripes are those of the directory", false}, nullptr},
        {{"advanced", "lustre_striping_offset", "the stripes are those of the directory", false}, nullptr},
        {{"injection", "rank", "no failures are injected", false}, nullptr},
        {{"injection", "index", "no failures are injected", false}, nullptr},
        {{"injection", "position", "no failures are injected", false}, nullptr},
        {{"injection", "frequency", "no failures are injected", false}, nullptr},
        {{"injection", "number", "no failures are injected", false}, nullptr, "0"},
    };
    return all;
}

std::string environment_name(const std::string& setting) {
    std::string name = "TAILRACE_";
    for (const unsigned char c : setting) name += static_cast<char>(std::toupper(c));
    return name;
}

bool is_harmless(const Rule& rule, const std::string& text) {
    if (rule.harmless == nullptr) return true;
    for (std::string_view rest = rule.harmless; !rest.empty();) {
        const auto end = std::min(rest.find(' '), rest.size());
        if (rest.substr(0, end) == text) return true;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return false;
}

void take(Settings& into, const std::string& section, const std::string& key, const Value& value) {
    const auto note = [&](std::string_view why) {
        into.notes.push_back(value.origin + ": " + key + " has no effect; " + std::string(why));
    };
    if (section == own_section) {
        for (const std::string_view taken : {"shared_dir", "local_dir", "name"})
            if (key == taken) refuse(value, key, "glbl_dir and ckpt_dir say where");
        // Its environment variable is tailrace's to read.
        if (std::getenv(environment_name(key).c_str()) != nullptr) return;
        try {
            tailrace::Options().set(key, value.text);
        } catch (const tailrace::Error& error) {
            refuse(value, key, error.what());
        }
        into.session.emplace_back(key, value.text);
        return;
    }
    const auto rule = std::find_if(rules().begin(), rules().end(), [&](const Rule& each) {
        return each.key.section == section && each.key.name == key;
    });
    if (rule == rules().end())
        note("neither FTI nor tailrace knows it in [" + section + "]");
    else if (rule->apply != nullptr)
        rule->apply(into, value, key);
    else if (!is_harmless(*rule, value.text))
        note(rule->key.becomes);
}

std::string resolved(const std::string& directory, const std::string& key, const std::string& file,
                     const std::string& here) {
    if (directory.empty())
        throw ConfigError(file + ": " + key + " is missing; write " + key + " = DIRECTORY into [Basic]");
    auto path = (std::filesystem::path(here) / directory).lexically_normal().string();
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path;
}

}  // namespace

Settings settings_of(std::string_view text, const std::string& file, const std::string& here) {
    Settings made;
    for (const auto& [name, value] : values_of(text, file, made.notes)) {
        const auto colon = name.find(':');
        take(made, name.substr(0, colon), name.substr(colon + 1), value);
    }
    made.ckpt_dir = resolved(made.ckpt_dir, "ckpt_dir", file, here);
    made.glbl_dir = resolved(made.glbl_dir, "glbl_dir", file, here);
    if (made.failure != 0 && made.exec_id.empty())
        throw ConfigError(
            file + ": failure = " + std::to_string(made.failure) +
            " in [Restart] asks for a restart, and exec_id, the run to restart from, is missing; "
            "write it, or failure = 0 for a first run");
    return made;
}

std::vector<std::pair<std::string, std::string>> session_of(const Settings& settings, int level) {
    std::vector<std::pair<std::string, std::string>> made;
    const auto group = std::to_string(settings.group_size);
    if (level == 4) {
        made.emplace_back("keep_shared", settings.keeps_l4 ? "0" : "1");
    } else {
        // Only the first checkpoint of a session, and what a run keeps at its end, go to the shared
        // directory.
        made.emplace_back("shared_every", "4294967295");
        made.emplace_back("keep_shared", "1");
        made.emplace_back("flush_at_close", settings.keeps_last ? "yes" : "no");
    }
    if ((level == 2 || level == 3) && settings.group_size > 1) {
        made.emplace_back("redundancy_set", group);
        made.emplace_back("redundancy",
                          level == 2 ? "partner" : "rs:" + std::to_string(settings.group_size / 2));
    }
    if (settings.local_test && settings.node_size > 0)
        made.emplace_back("ranks_per_node", std::to_string(settings.node_size));
    made.insert(made.end(), settings.session.begin(), settings.session.end());
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

}  // namespace fti_on_tailrace
