// StopSignals: whether this process has got one of the signals that ask a job to stop.
//
// This is the library's only file with signal handlers. They are installed while an object that
// names their signal exists, for the whole process, and never otherwise. A handler counts, in an
// atomic that is free of locks, and then calls the handler that was there before, if the program (or
// Python) had one. So nothing of ours happens in a handler that may not happen there. What the
// signal does by default, which is to end the process, it no longer does.
//
// When the last object of a signal is gone, the handler that was there before is put back, unless
// somebody has installed another one since. Then that one may still call ours, as the handler that it
// has replaced, and ours goes on to call the one before. It is not installed a second time while that
// handler is there. Whether it does call ours cannot be known, so a warning says it, once for each signal.
//
// Any thread may call any member.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tailrace::internal {

class StopSignals {
  public:
    StopSignals() = default;
    // Signals that come from now on count for this object. io_error if a handler cannot be
    // installed.
    static Result<StopSignals> watch(const std::vector<int>& numbers);
    StopSignals(StopSignals&& other) noexcept : watched_(std::exchange(other.watched_, {})) {}
    StopSignals& operator=(StopSignals&& other) noexcept {
        std::swap(watched_, other.watched_);
        return *this;
    }
    ~StopSignals();

    // A signal that has come since watch(); nothing if none has. Takes a load per signal.
    std::optional<int> got() const;

  private:
    struct Watched {
        int number;
        uint64_t before;  // how often it had come
    };
    std::vector<Watched> watched_;
};

}  // namespace tailrace::internal
