// Throttle: lets writers through at the rate of a bandwidth cap, which several throttles may share.
//
// Each caller books its bytes behind those that are booked already, and sleeps until its turn has
// come. So over any longer time no more than the cap goes through, whatever the sizes are. A pause
// earns no credit for later. Thread-safe. close() ends every sleep of this throttle, present and
// future.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

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

// The bookings under one cap. They stay when a throttle ends, so that the next one waits for them.
// Thread-safe.
class BandwidthCap {
  public:
    explicit BandwidthCap(uint64_t bytes_per_second) : book_(bytes_per_second) {}
    // As ThrottleBook::book().
    uint64_t book(uint64_t now_ns, uint64_t bytes);

  private:
    Mutex mutex_;
    ThrottleBook book_ GUARDED_BY(mutex_);
};

class Throttle {
  public:
    explicit Throttle(std::shared_ptr<BandwidthCap> cap) : cap_(std::move(cap)) {}
    explicit Throttle(uint64_t bytes_per_second)
        : Throttle(std::make_shared<BandwidthCap>(bytes_per_second)) {}

    // Waits until `bytes` may be written. Returns false if the throttle was closed meanwhile.
    bool pass(uint64_t bytes);
    void close();

  private:
    const std::shared_ptr<BandwidthCap> cap_;
    Mutex mutex_;
    Condition closed_or_due_;
    bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
