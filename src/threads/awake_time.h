// AwakeTime: how long somebody has waited, as far as the others could have answered. While the machine
// sleeps, or the processes are stopped, nobody does. Such time passes between two looks, and each of them
// counts for little. Pure: the time comes from outside.
#pragma once

#include <algorithm>
#include <chrono>

#include "threads/executor.h"

namespace tailrace::internal {

class AwakeTime {
  public:
    using Time = SteadyClock::time_point;
    using Duration = SteadyClock::duration;
    // What passes between two looks counts as so much at most.
    explicit AwakeTime(Time begin, Duration longest_step = std::chrono::seconds(1))
        : longest_step_(longest_step), looked_(begin) {}

    // How long it has been. Call this several times in each such step.
    Duration look(Time now) {
        waited_ += std::clamp<Duration>(now - looked_, Duration{}, longest_step_);
        looked_ = now;
        return waited_;
    }
    // Begins to count anew.
    void restart() { waited_ = {}; }

  private:
    const Duration longest_step_;
    Time looked_;
    Duration waited_{};
};

}  // namespace tailrace::internal
