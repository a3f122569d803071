// Throttle: a bandwidth cap shared by the writers of a node.
//
// Each caller books its bytes behind those booked before and sleeps until its turn has come, so that over any
// longer time no more than the cap goes through, whatever the sizes. A pause is not saved up for later.
// Thread-safe; close() ends every sleep, now and later.
#pragma once

#include <chrono>
#include <cstdint>

#include "threads/mutex.h"

namespace tailrace::internal {

// The booking, without a clock or a thread: nanoseconds of any steady clock go in and come out.
class ThrottleBook {
  public:
    explicit ThrottleBook(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}
    // When bytes booked at `now_ns` may start to move.
    uint64_t book(uint64_t now_ns, uint64_t bytes);

  private:
    const uint64_t bytes_per_second_;  // 0: no cap
    uint64_t free_from_ns_ = 0;
};

class Throttle {
  public:
    explicit Throttle(uint64_t bytes_per_second) : book_(bytes_per_second) {}

    // Returns when `bytes` may be written; false when the throttle was closed meanwhile.
    bool pass(uint64_t bytes);
    void close();

  private:
    Mutex mutex_;
    Condition closed_or_due_;
    ThrottleBook book_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
