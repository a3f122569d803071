// Executor: it runs threads, makes them wait, and provides time and randomness.
//
// By default the operating system does all of that, and no Executor is installed. A simulation
// installs one. It runs every thread of a whole job as a task of a single thread, in virtual time,
// in an order that a seed decides. The library reaches threads and time only through this
// directory. So the code that is simulated is the code that runs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tailrace::internal {

// The steady clock of the installed executor, or of the system. Its points in time are those of
// std::chrono::steady_clock.
struct SteadyClock {
    using duration = std::chrono::steady_clock::duration;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::steady_clock::time_point;
    static constexpr bool is_steady = true;
    static time_point now() noexcept;
};

// The time of day. It may jump.
std::chrono::system_clock::time_point time_of_day();

// Suspends the calling thread for that long.
void sleep_for(SteadyClock::duration time);

// A number that no other call, in any process, is likely to get.
uint64_t random_number();

// The tasks themselves call the members, one at a time. wait() and pause() may let other tasks run
// meanwhile; the other members return at once.
class Executor {
  public:
    using Task = uint64_t;

    virtual ~Executor() = default;

    virtual SteadyClock::time_point now() = 0;
    virtual std::chrono::system_clock::time_point time_of_day() = 0;
    virtual uint64_t random_number() = 0;

    // Starts a task. `body` must not throw.
    virtual Task start(const std::string& name, std::function<void()> body) = 0;
    // Waits until the task has ended.
    virtual void join(Task task) = 0;

    // Lets another task go on.
    virtual void pause() = 0;
    // Waits until wake() is called for `place`, or until that time. It may also return early.
    virtual void wait(const void* place, std::optional<SteadyClock::time_point> until) = 0;
    // Ends the wait of one of the tasks that wait at `place`, or of all of them.
    virtual void wake(const void* place, bool all) = 0;

    // Null stands for the operating system. Install an executor only while no thread of the library
    // runs.
    static Executor* installed() { return installed_.load(std::memory_order_relaxed); }
    static void install(Executor* executor) { installed_.store(executor); }

  private:
    static inline std::atomic<Executor*> installed_{nullptr};
};

}  // namespace tailrace::internal
