// Nap: the pause between two calls of a library that must be polled.
//
// MPI makes progress only while it is called, and cannot be waited for without polling. So every
// wait of a transport over it is a nap between two calls. Its length trades the program's CPU time
// against the flush's throughput. `Nap` says how it adapts.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "threads/mutex.h"

namespace tailrace::internal {

// How long the calling thread sleeps between two calls of the library. The nap is short after
// anything moved, because more tends to follow at once. It doubles while nothing moves, because
// then each call only costs.
//
// busy: transfers are under way. Many MPI libraries move a large transfer a piece at a time, within
// our calls. So the longest nap bounds what a transfer can lose. idle: only a message may come, and
// none suffers from waiting for 5 ms. 200 calls a second cost less than 0.1 % of a core.
inline constexpr std::chrono::microseconds shortest_nap(30);
inline constexpr std::chrono::microseconds longest_busy_nap(1000);
inline constexpr std::chrono::microseconds longest_idle_nap(5000);

// Decides whether a thread that waits for a peer polls for `longest` before its first nap, and
// yields its core in between (sched_yield). A nap of shortest_nap takes about 100 us with the
// kernel's overhead, and a rank that naps is late for the next meeting, where its peer then naps.
// So short meetings that follow each other take a nap each, unless one side polls longer than the
// other naps. If the peer works for long, or waits for this very core, polling only costs. So after
// a poll in vain some waits nap early, twice as many each time. Then polling takes at most a few
// microseconds of a wait.
class LongLook {
  public:
    static constexpr std::chrono::microseconds longest{200};

    // A wait begins. Returns whether it may poll for long.
    bool may() {
        if (waits_without_ == 0) return true;
        --waits_without_;
        return false;
    }
    // A long poll was worth it.
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
    // Something moved, so poll again soon.
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
    std::chrono::microseconds next_ = shortest_nap;  // only the thread that sleeps here uses it
    Mutex mutex_;
    Condition woken_;
    bool wake_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
