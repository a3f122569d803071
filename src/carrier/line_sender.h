// LineSender: sends to a rank over its line, from any thread, and never blocks. If the socket does not
// take a message at once, the message waits here, in order.
#pragma once

#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "carrier/line_messages.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class LineSender {
  public:
    // Sends one message, or returns false if there is no room for it now. Fails if the rank is gone.
    using Send = std::function<Result<bool>(std::span<const std::byte>)>;
    explicit LineSender(Send send) : send_(std::move(send)) {}

    void send(const line::Message& message) {
        MutexLock lock(mutex_);
        waiting_.push_back(line::encode(message));
        send_waiting();
    }
    // Whether nothing waits any more.
    bool flush() {
        MutexLock lock(mutex_);
        send_waiting();
        return waiting_.empty();
    }

  private:
    void send_waiting() REQUIRES(mutex_) {
        while (!waiting_.empty()) {
            const auto sent = send_(waiting_.front());
            // Whoever reads the line learns that the rank is gone.
            if (!sent.ok()) return waiting_.clear();
            if (!*sent) return;
            waiting_.pop_front();
        }
    }

    const Send send_;
    Mutex mutex_;
    std::deque<std::vector<std::byte>> waiting_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
