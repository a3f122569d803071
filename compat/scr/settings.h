// settings.h - what becomes of SCR's keys: how the client works, and the settings of its tailrace session.
//
// docs/scr.md has the table of keys, and tests/scr/settings_test.cc holds it to this code.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parameters.h"

namespace scr_on_tailrace {

struct Settings {
    bool enabled = true;
    std::string prefix;         // absolute; the program's files lie below
    bool bypass = true;         // the program writes its files where they stay
    bool flush_async = false;   // a cached dataset is complete once it is captured
    std::string cache_base;     // for the node-local tier; empty: tailrace's default
    std::string first_current;  // the checkpoint to restart from; empty: the newest
    // Keys and values for tailrace_options_set, but for the directories and the job's name.
    std::vector<std::pair<std::string, std::string>> session;
    // A sentence for each key that is there and has no effect.
    std::vector<std::string> notes;
};

// Throws ConfigError for a value that cannot be used.
Settings settings_of(Parameters& parameters);

// What is known of a key of SCR's, for settings_of and for the page.
struct Key {
    std::string_view name;
    std::string_view becomes;  // in docs/scr.md
    bool has_effect;
};
const std::vector<Key>& known_keys();

}  // namespace scr_on_tailrace
