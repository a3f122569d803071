// Throttle: a bandwidth cap that the writers of a node share.
//
// Each caller books its bytes behind those that are booked already, and sleeps until its turn has
// come. So over any longer time no more than the cap goes through, whatever the sizes are. A pause
// earns no credit for later. Thread-safe. close() ends every sleep, present and future.
#pragma once

#include <chrono>
#include <cstdint>

#include "threads/mutex.h"

namespace tailrace::internal {

// The booking by itself, without a clock or a thread. It works in nanoseconds of any steady clock.
class ThrottleBook {
  public:
    explicit ThrottleBook(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}
    // Books bytes at `now_ns`. Returns when they may start to move.
    uint64_t book(uint64_t now_ns, uint64_t bytes);

  private:
    const uint64_t bytes_per_second_;  // 0: no cap
    uint64_t free_from_ns_ = 0;
};

class Throttle {
  public:
    explicit Throttle(uint64_t bytes_per_second) : book_(bytes_per_second) {}

    // Waits until `bytes` may be written. Returns false if the throttle was closed meanwhile.
    bool pass(uint64_t bytes);
    void close();

  private:
    Mutex mutex_;
    Condition closed_or_due_;
    ThrottleBook book_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
