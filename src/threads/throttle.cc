#include "threads/throttle.h"

#include <algorithm>

#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

uint64_t ThrottleBook::book(uint64_t now_ns, uint64_t bytes) {
    if (bytes_per_second_ == 0) return now_ns;
    const uint64_t start_ns = std::max(now_ns, free_from_ns_);
    const double seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_second_);
    free_from_ns_ = start_ns + static_cast<uint64_t>(seconds * 1e9);
    return start_ns;
}

uint64_t BandwidthCap::book(uint64_t now_ns, uint64_t bytes) {
    MutexLock lock(mutex_);
    return book_.book(now_ns, bytes);
}

bool Throttle::pass(uint64_t bytes) {
    using Clock = SteadyClock;
    MutexLock lock(mutex_);
    const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
    const std::chrono::nanoseconds due(cap_->book(static_cast<uint64_t>(now.count()), bytes));
    const Clock::time_point turn(std::chrono::duration_cast<Clock::duration>(due));
    while (!closed_ && Clock::now() < turn) closed_or_due_.wait_until(lock, turn);
    return !closed_;
}

void Throttle::close() {
    MutexLock lock(mutex_);
    closed_ = true;
    closed_or_due_.notify_all();
}

}  // namespace tailrace::internal
