#include "bench/interrupt.h"

#include <csignal>
#include <cstddef>
#include <tuple>

namespace tailrace::internal::tool {

namespace {

static_assert(std::atomic<bool>::is_always_lock_free);
std::atomic<bool> interrupted{false};
constexpr std::array watched = {SIGINT, SIGTERM, SIGHUP};

void note(int signal) {
    if (interrupted.exchange(true)) {
        std::signal(signal, SIG_DFL);
        (void)std::raise(signal);
    }
}

}  // namespace

Interrupt::Interrupt() {
    static_assert(std::tuple_size_v<decltype(before_)> == watched.size());
    interrupted = false;
    for (size_t i = 0; i < watched.size(); ++i) {
        // If a lost terminal is to end nothing (nohup), it does not end this program either.
        const auto before = std::signal(watched[i], note);
        if (watched[i] == SIGHUP && before == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
        before_[i] = before;
    }
    // A reader that goes away, such as `| head`, does not end the benchmark, because its results
    // are files.
    before_pipe_ = std::signal(SIGPIPE, SIG_IGN);
}

Interrupt::~Interrupt() {
    for (size_t i = 0; i < watched.size(); ++i) std::signal(watched[i], before_[i]);
    std::signal(SIGPIPE, before_pipe_);
}

const std::atomic<bool>& Interrupt::flag() const {
    return interrupted;
}

}  // namespace tailrace::internal::tool
