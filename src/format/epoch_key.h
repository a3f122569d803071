// EpochKey and file names: which epoch of which run a file belongs to, read off its name.
//
// A run is one session on a shared directory, numbered upward from 1. The same epoch may be saved again by a
// later run (a program that restarted from an older one): both attempts can lie in the directory, nothing is
// overwritten, and the later run's attempt counts once it is complete. Numbers decide, never clocks.
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

// Runs are counted upward from 1, a session each: a greater number is a mistake or a trick.
inline constexpr uint32_t greatest_possible_run = UINT32_MAX / 2;
// The greater of both, `run` counting only when it is possible.
constexpr uint32_t count_run(uint32_t greatest, uint32_t run) {
    return run <= greatest_possible_run && run > greatest ? run : greatest;
}

std::string to_string(const EpochKey& key);  // "epoch 12 of run 3"

// The job's name (configuration key `name`), which separates jobs that share a directory: 1 to 100
// characters, letters, digits, '-', '_' (no dot, so that names parse without doubt).
Status check_job_name(std::string_view name);

// NAME.e000000012.r0003.1of2.tailrace, while unfinished NAME.e000000012.r0003.1of2.tailrace.unfinished.
// `index` counts from 0 in memory and from 1 in names.
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
// A path without the ".unfinished" at its end; empty when it has none.
std::string finished_path(std::string_view path);

// NAME.e000000012.r0003.p00005.capture: the captured part of rank 5; while being written, with .unfinished.
struct PartFileName {
    std::string job;
    EpochKey key;
    uint32_t rank = 0;
    bool unfinished = false;
    bool operator==(const PartFileName&) const = default;
};
std::string to_string(const PartFileName& name);
std::optional<PartFileName> parse_part_file_name(std::string_view text);

}  // namespace tailrace::internal
