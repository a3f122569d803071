// Simulated histories: one from a seed, many in a child process, and the smallest that still fails.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "session/history.h"

namespace tailrace::internal::testing_support {

struct Simulated {
    uint64_t trace = 0;  // the same for the same seed and limits, always
    uint64_t steps = 0;
    double seconds = 0;  // of virtual time
    std::string story;
};

// Says by gtest what is wrong. Ends the process where the job comes to a standstill.
Simulated simulate(uint64_t seed, const HistoryLimits& limits, Tally& tally);

// What a child process has found.
struct Batch {
    uint64_t histories = 0, steps = 0, restored = 0, announced = 0, misfits = 0, drained = 0, rebuilt = 0;
    uint64_t carried = 0;
    std::optional<uint64_t> failed;  // the first seed that fails
};
// Seeds [first, first + count) in a process of their own, until one fails. `silent`: without a word.
Batch simulate_in_child(uint64_t first, uint64_t count, const HistoryLimits& limits, bool silent);

// The smallest limits with which the seed fails as well.
HistoryLimits shrink(uint64_t seed, const HistoryLimits& limits);

// "TAILRACE_SEED=7 TAILRACE_LIMITS=64,3,5,1": what replays a history.
std::string replay_line(uint64_t seed, const HistoryLimits& limits);
// TAILRACE_LIMITS, where it is set.
HistoryLimits limits_from_environment();

}  // namespace tailrace::internal::testing_support
