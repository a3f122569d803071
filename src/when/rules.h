// Why it is time to save, and why it is time to stop: what rank 0 wishes (when/schedule.h), from
// settings and from what it has measured. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "when/halt_file.h"

namespace tailrace::internal {

// What saves have cost on this rank. Seconds are of the last few saves.
struct SaveCosts {
    uint64_t saves = 0;          // that succeeded
    double blocked_seconds = 0;  // mean: how long save kept the program
    double most_blocked_seconds = 0;
    double most_flush_seconds = 0;
};

struct WhenRules {
    double save_interval_seconds = 0;  // 0: none
    double mtbf_seconds = 0;           // 0: not known
    double stop_before_seconds = 0;    // 0: as saves have taken
};

struct Situation {
    double since_save_seconds =
        0;  // since the last save or the last yes; before the first, since the opening
    SaveCosts costs = {};
    double between_calls_seconds = 0;         // the slowest recent call
    std::optional<double> left_seconds = {};  // until the job ends, where that is known
};

// The time between saves that loses least of a run, if a save keeps the program for
// `blocked_seconds` and the job fails once in `mtbf_seconds`: J. T. Daly, A higher order estimate of
// the optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22, 2006,
// equation 37. Its first term is that of J. W. Young, 1974. The time of the flush does not count as
// cost, because the program goes on meanwhile. It delays by a constant what a failure loses, which
// does not move the optimum.
double best_interval_seconds(double blocked_seconds, double mtbf_seconds);

// How long before the end of the job the last save has to begin.
double seconds_for_last_save(const WhenRules& rules, const Situation& situation);

// The reason, for a log: "12 min since the last save". `stop_is_asked`: the program asks
// should_stop as well. Then the end of the job is a reason to stop, not one to save.
std::optional<std::string> why_save(const WhenRules& rules, const Situation& situation, bool stop_is_asked);
// Whether why_save may ever have a reason.
bool may_wish_to_save(const WhenRules& rules, bool end_is_known, bool stop_is_asked);

// The rules, with what the order says of them.
WhenRules with(const WhenRules& rules, const std::optional<Halt>& halt);
// Which condition of the order asks to stop now, alone; nothing if none does. `saves`: since rank 0 found it.
std::optional<Halt> due_condition(const WhenRules& rules, const Situation& situation, const Halt& halt,
                                  uint64_t saves, int64_t now_unix);
// Rank 0 has found `halt` where `last` was: whether the saves of `after` count from now.
bool counts_anew(const std::optional<Halt>& last, const std::optional<Halt>& halt);

// The reason, as programs get it. `asked`: some rank was asked to stop, for this reason. `halt`: the
// halt file's order, and the saves since rank 0 found it.
std::optional<std::string> why_stop(const WhenRules& rules, const Situation& situation,
                                    const std::optional<std::string>& asked, const std::optional<Halt>& halt,
                                    uint64_t saves_since_halt, int64_t now_unix);

}  // namespace tailrace::internal
