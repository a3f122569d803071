// settings.h - what becomes of FTI's keys: how the client works, and the settings of its tailrace sessions.
//
// docs/fti.md has the table of keys, and tests/fti/settings_test.cc holds it to this code.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ini_file.h"

namespace fti_on_tailrace {

inline constexpr int levels = 4;
// By level. Element 0 is not used.
template <class T>
using ByLevel = std::array<T, levels + 1>;

struct Settings {
    std::string ckpt_dir;  // both are absolute
    std::string glbl_dir;
    int failure = 0;         // 1: a restart; 2: a restart from what a run has kept at its end
    std::string exec_id;     // of the run to restart from
    ByLevel<int> minutes{};  // between the checkpoints that FTI_Snapshot takes; 0: none
    ByLevel<bool> waits{false, false, true, true, true};  // FTI_Checkpoint returns when the level is reached
    int fast_forward = 1;                                 // so many minutes pass in one
    int most_iterations = 512;                            // between looks at the clock
    int64_t greatest_id = 102400;
    bool keeps_last = false;
    bool keeps_l4 = false;
    bool silent = false;  // only failures are said
    bool local_test = false;
    int node_size = 0;
    int group_size = 4;
    // Keys and values for tailrace_options_set, but for the directories and the job's name.
    std::vector<std::pair<std::string, std::string>> session;
    // A sentence for each key that is there and has no effect.
    std::vector<std::string> notes;
};

// Relative directories lie below `here`. Throws ConfigError for what cannot be used.
Settings settings_of(std::string_view text, const std::string& file, const std::string& here);

// The settings of a level's session, but for the directories and the job's name.
std::vector<std::pair<std::string, std::string>> session_of(const Settings& settings, int level);

// What is known of a key of FTI's, for settings_of and for the page.
struct Key {
    std::string_view section;
    std::string_view name;
    std::string_view becomes;  // in docs/fti.md
    bool has_effect;
};
const std::vector<Key>& known_keys();

}  // namespace fti_on_tailrace
