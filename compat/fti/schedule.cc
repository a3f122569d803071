#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fti_on_tailrace {

Schedule::Schedule(const ByLevel<int>& minutes, int fast_forward, int most_iterations)
    : most_iterations_(most_iterations) {
    for (int level = 1; level <= levels; ++level)
        interval_s_[level] = next_s_[level] = minutes[level] * 60.0 / fast_forward;
}

Schedule::Decision Schedule::decide(double seconds, int iterations) {
    Decision decision;
    double soonest = std::numeric_limits<double>::infinity();
    for (int level = 1; level <= levels; ++level) {
        if (interval_s_[level] <= 0) continue;
        if (seconds >= next_s_[level]) {
            decision.level = level;
            next_s_[level] = interval_s_[level] * (std::floor(seconds / interval_s_[level]) + 1);
        }
        soonest = std::min(soonest, next_s_[level]);
    }
    // Iterations may become slower, so half of the way is looked at.
    const double each = iterations > 0 ? (seconds - last_s_) / iterations : 0;
    const double left = each > 0 ? (soonest - seconds) / each / 2 : 1;
    decision.iterations = static_cast<int>(std::clamp(left, 1.0, static_cast<double>(most_iterations_)));
    last_s_ = seconds;
    return decision;
}

}  // namespace fti_on_tailrace
