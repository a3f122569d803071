#include "bench/interrupt.h"

#include <csignal>

namespace tailrace::tool {

namespace {

static_assert(std::atomic<bool>::is_always_lock_free);
std::atomic<bool> interrupted{false};

void note(int signal) {
    if (interrupted.exchange(true)) {
        std::signal(signal, SIG_DFL);
        (void)std::raise(signal);
    }
}

}  // namespace

Interrupt::Interrupt() {
    interrupted = false;
    std::signal(SIGINT, note);
    std::signal(SIGTERM, note);
}

Interrupt::~Interrupt() {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>& Interrupt::flag() const {
    return interrupted;
}

}  // namespace tailrace::tool
