#include "threads/executor.h"

#include <random>
#include <thread>

namespace tailrace::internal {

SteadyClock::time_point SteadyClock::now() noexcept {
    if (Executor* executor = Executor::installed()) return executor->now();
    return std::chrono::steady_clock::now();
}

std::chrono::system_clock::time_point time_of_day() {
    if (Executor* executor = Executor::installed()) return executor->time_of_day();
    return std::chrono::system_clock::now();
}

void sleep_for(SteadyClock::duration time) {
    Executor* executor = Executor::installed();
    if (executor == nullptr) return std::this_thread::sleep_for(time);
    const auto until = executor->now() + time;
    while (executor->now() < until) executor->wait(&until, until);
}

uint64_t random_number() {
    if (Executor* executor = Executor::installed()) return executor->random_number();
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
}

}  // namespace tailrace::internal
