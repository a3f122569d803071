// Nap: the pause between two looks at a library that has to be asked.
//
// MPI makes progress only while somebody calls it, and cannot be waited for without polling. Every wait of a
// transport over it is therefore a nap between two calls. Its length is the trade between the program's CPU
// time and the flush's throughput: `Nap` says how it adapts.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "threads/mutex.h"

namespace tailrace::internal {

// What the calling thread sleeps between two looks at the library. Starts short after anything moved, because
// more tends to follow at once; doubles while nothing moves, because then each look only costs.
//
// busy: transfers are under way, and many MPI libraries move a large one a piece at a time, within our calls;
// the longest nap bounds what a transfer can lose. idle: only a message may come, and nothing is late that
// waits for 5 ms; 200 looks a second cost less than 0.1 % of a core.
inline constexpr std::chrono::microseconds shortest_nap(30);
inline constexpr std::chrono::microseconds longest_busy_nap(1000);
inline constexpr std::chrono::microseconds longest_idle_nap(5000);

// Whether a thread that waits for a peer goes on looking for `longest`, letting others have the core in
// between (sched_yield), before its first nap. A nap of shortest_nap takes some 100 us, with what the kernel
// adds, and whoever naps is late for the next meeting, where the peer naps then: short meetings that follow
// each other take a nap each, unless one side looks longer than the other naps. Where the peer works for
// long, or waits for this very core, it only costs: after one that was in vain so many waits nap early, twice
// as many each time, that looking takes a few microseconds of a wait at most.
class LongLook {
  public:
    static constexpr std::chrono::microseconds longest{200};

    // A wait begins. May it look for long?
    bool may() {
        if (waits_without_ == 0) return true;
        --waits_without_;
        return false;
    }
    // What one that did has come to.
    void paid() { after_failure_ = 1; }
    void was_in_vain() {
        waits_without_ = after_failure_;
        after_failure_ = std::min(after_failure_ * 2, most_without);
    }

  private:
    static constexpr int most_without = 64;
    int waits_without_ = 0, after_failure_ = 1;
};

class Nap {
  public:
    // Something moved: look again soon.
    void reset() { next_ = shortest_nap; }

    void sleep(std::chrono::microseconds longest, bool busy) {
        const std::chrono::microseconds nap = std::min(next_, busy ? longest_busy_nap : longest_idle_nap);
        MutexLock lock(mutex_);
        const auto pause =
            std::clamp(nap, std::chrono::microseconds(0), std::max(longest, std::chrono::microseconds(0)));
        const auto until = SteadyClock::now() + pause;
        while (!wake_ && SteadyClock::now() < until) woken_.wait_until(lock, until);
        if (std::exchange(wake_, false))
            next_ = shortest_nap;
        else
            next_ = std::min(nap * 2, longest_idle_nap);
    }

    void wake() {
        MutexLock lock(mutex_);
        wake_ = true;
        woken_.notify_one();
    }

  private:
    std::chrono::microseconds next_ = shortest_nap;  // of the one thread that sleeps here
    Mutex mutex_;
    Condition woken_;
    bool wake_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
