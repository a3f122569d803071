#include "when/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/time_text.h"

namespace tailrace::internal {

namespace {

// Before the first save nobody knows what one costs. So one comes soon, but not at once: a program
// that has just restored an epoch would save what is there already.
constexpr double first_save_seconds = 60;
constexpr double shortest_interval_seconds = 1;
constexpr double least_for_last_save_seconds = 60;
// The decision takes effect at the second call after it at the latest, and the program comes to the
// save behind that call.
constexpr double calls_for_last_save = 3;

double cost_interval_seconds(const WhenRules& rules, const Situation& situation) {
    if (situation.costs.saves == 0) return std::min(first_save_seconds, rules.mtbf_seconds / 10);
    // Epochs that come faster than they can be flushed only queue.
    return std::max({best_interval_seconds(situation.costs.blocked_seconds, rules.mtbf_seconds),
                     situation.costs.most_flush_seconds, shortest_interval_seconds});
}

}  // namespace

double best_interval_seconds(double blocked_seconds, double mtbf_seconds) {
    if (blocked_seconds <= 0 || mtbf_seconds <= 0) return 0;
    const double ratio = blocked_seconds / (2 * mtbf_seconds);
    if (ratio >= 1) return mtbf_seconds;
    return std::sqrt(2 * blocked_seconds * mtbf_seconds) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
           blocked_seconds;
}

double seconds_for_last_save(const WhenRules& rules, const Situation& situation) {
    if (rules.stop_before_seconds > 0) return rules.stop_before_seconds;
    const auto& costs = situation.costs;
    return std::max(least_for_last_save_seconds,
                    2 * (costs.most_blocked_seconds + costs.most_flush_seconds)) +
           calls_for_last_save * situation.between_calls_seconds;
}

std::optional<std::string> why_save(const WhenRules& rules, const Situation& situation, bool stop_is_asked) {
    const double since = situation.since_save_seconds;
    if (rules.save_interval_seconds > 0 && since >= rules.save_interval_seconds)
        return fmt::format("{} since the last save, and save_interval is {}", about_seconds(since),
                           about_seconds(rules.save_interval_seconds));
    if (rules.mtbf_seconds > 0) {
        const double interval = cost_interval_seconds(rules, situation);
        if (since >= interval)
            return fmt::format(
                "{} since the last save; {} is best with mtbf {} and saves that take {}",
                about_seconds(since), about_seconds(interval), about_seconds(rules.mtbf_seconds),
                situation.costs.saves == 0 ? "an unknown time"
                                           : fmt::format("{:.3g} s", situation.costs.blocked_seconds));
    }
    if (situation.left_seconds && !stop_is_asked) {
        const double needed = seconds_for_last_save(rules, situation);
        const double left = *situation.left_seconds;
        // The last save comes once: not if one has been made since this time came.
        if (left <= needed && since > needed - left)
            return fmt::format("the job ends in {}", about_seconds(left));
    }
    return std::nullopt;
}

bool may_wish_to_save(const WhenRules& rules, bool end_is_known, bool stop_is_asked) {
    return rules.save_interval_seconds > 0 || rules.mtbf_seconds > 0 || (end_is_known && !stop_is_asked);
}

WhenRules with(const WhenRules& rules, const std::optional<Halt>& halt) {
    WhenRules all = rules;
    if (halt && halt->stop_before_seconds)
        all.stop_before_seconds = static_cast<double>(*halt->stop_before_seconds);
    return all;
}

std::optional<Halt> due_condition(const WhenRules& rules, const Situation& situation, const Halt& halt,
                                  uint64_t saves, int64_t now_unix) {
    if (halt.now) return Halt{.now = true};
    if (halt.after_saves && saves >= *halt.after_saves) return Halt{.after_saves = halt.after_saves};
    if (halt.at_unix && now_unix >= *halt.at_unix) return Halt{.at_unix = halt.at_unix};
    if (halt.before_unix && static_cast<double>(*halt.before_unix - now_unix) <=
                                seconds_for_last_save(with(rules, halt), situation))
        return Halt{.before_unix = halt.before_unix};
    return std::nullopt;
}

bool counts_anew(const std::optional<Halt>& last, const std::optional<Halt>& halt) {
    return !last || !halt || last->id != halt->id || last->after_saves != halt->after_saves;
}

std::optional<std::string> why_stop(const WhenRules& rules, const Situation& situation,
                                    const std::optional<std::string>& asked, const std::optional<Halt>& halt,
                                    uint64_t saves_since_halt, int64_t now_unix) {
    if (asked) return asked;
    const auto due = halt ? due_condition(rules, situation, *halt, saves_since_halt, now_unix) : std::nullopt;
    if (due) {
        std::string reason = "halted";
        if (!halt->by.empty()) reason += fmt::format(" by {}", halt->by);
        if (!due->now) reason += fmt::format(" {}", when_text(*due));
        return reason;
    }
    if (situation.left_seconds &&
        *situation.left_seconds <= seconds_for_last_save(with(rules, halt), situation))
        return *situation.left_seconds > 0 ? "the job ends in " + about_seconds(*situation.left_seconds)
                                           : std::string("the time of the job is over");
    return std::nullopt;
}

}  // namespace tailrace::internal
