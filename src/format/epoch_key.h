// EpochKey and file names: a file's name tells which epoch of which run it belongs to.
//
// A run is one session on a shared directory, numbered upward from 1. A later run may save the same
// epoch again, because the program restarted from an older one. Then both attempts can lie in the
// directory, and nothing is overwritten. The later run's attempt counts once it is complete.
// Numbers decide, never clocks.
//
// Names are in docs/format.md, "File names". Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

struct EpochKey {
    uint64_t epoch = 0;
    uint32_t run = 0;
    auto operator<=>(const EpochKey&) const = default;  // newest is greatest
};

// Each session is a run, counted upward from 1. A greater number is a mistake or an attack.
inline constexpr uint32_t greatest_possible_run = UINT32_MAX / 2;
// The greater of both. `run` counts only if it is possible.
constexpr uint32_t count_run(uint32_t greatest, uint32_t run) {
    return run <= greatest_possible_run && run > greatest ? run : greatest;
}

std::string to_string(const EpochKey& key);  // "epoch 12 of run 3"

// Checks the job's name (configuration key `name`), which separates jobs that share a directory. It
// has 1 to 100 characters: letters, digits, '-', '_'. It has no dot, so that file names can be
// parsed without ambiguity.
Status check_job_name(std::string_view name);

// NAME.e000000012.r0003.1of2.tailrace, with ".unfinished" added until it is committed. `index`
// counts from 0 in memory and from 1 in names.
struct SharedFileName {
    std::string job;
    EpochKey key;
    uint32_t index = 0;
    uint32_t count = 1;
    bool unfinished = false;
    bool operator==(const SharedFileName&) const = default;
};
std::string to_string(const SharedFileName& name);
std::optional<SharedFileName> parse_shared_file_name(std::string_view text);
// The name that a file has while it is written, made from its final name.
using WorkingName = std::string (*)(const SharedFileName& name);
std::string unfinished_name(const SharedFileName& name);  // while a session writes it
std::string takeover_name(const SharedFileName& name);    // while nodes write it on their own
std::optional<SharedFileName> parse_takeover_name(std::string_view text);
// NAME.e000000012.r0003.takeover.lock: the file by which nodes lock their shares of an epoch's takeovers.
struct TakeoverLockName {
    std::string job;
    EpochKey key;
    bool operator==(const TakeoverLockName&) const = default;
};
std::string to_string(const TakeoverLockName& name);
std::optional<TakeoverLockName> parse_takeover_lock_name(std::string_view text);
// A path without the ".unfinished" at its end. Empty if it does not end so.
std::string finished_path(std::string_view path);

// NAME.e000000012.r0003.p00005.capture: the captured part of rank 5. While it is written,
// ".unfinished" is added.
struct PartFileName {
    std::string job;
    EpochKey key;
    uint32_t rank = 0;
    bool unfinished = false;
    bool operator==(const PartFileName&) const = default;
};
std::string to_string(const PartFileName& name);
std::optional<PartFileName> parse_part_file_name(std::string_view text);

// NAME.e000000012.r0003.n00005.protect: what node 5 keeps for other nodes. While it is written,
// ".unfinished" is added.
struct ProtectFileName {
    std::string job;
    EpochKey key;
    uint32_t node = 0;
    bool unfinished = false;
    bool operator==(const ProtectFileName&) const = default;
};
std::string to_string(const ProtectFileName& name);
std::optional<ProtectFileName> parse_protect_file_name(std::string_view text);

}  // namespace tailrace::internal
