// schedule.h - when FTI_Snapshot takes a checkpoint, and of which level.
//
// Rank 0 alone looks at its clock, and tells the others: the level that is due, and in how many iterations
// all ranks ask again. So ranks agree, and most iterations cost no message.
#pragma once

#include "settings.h"

namespace fti_on_tailrace {

class Schedule {
  public:
    // `minutes`: between checkpoints of a level; 0: none.
    Schedule(const ByLevel<int>& minutes, int fast_forward, int most_iterations);

    struct Decision {
        int level = 0;       // 0: no checkpoint is due
        int iterations = 1;  // until the next decision
    };
    // What is due `seconds` after the first iteration, after `iterations` more than at the last decision. Of
    // the levels that are due the highest one is taken, and all of them wait for their next time.
    Decision decide(double seconds, int iterations);

  private:
    ByLevel<double> interval_s_{};
    ByLevel<double> next_s_{};
    const int most_iterations_;
    double last_s_ = 0;
};

}  // namespace fti_on_tailrace
