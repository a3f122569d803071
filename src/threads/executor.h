// Executor: who runs threads, what makes them wait, what time it is, and where chance comes from.
//
// By default the operating system does all of that, and no Executor is installed. A simulation installs one,
// which runs every thread of a whole job as a task of a single thread, in virtual time, in an order that a
// seed decides. The library reaches threads and time only through this directory, so the code that is
// simulated is the code that runs.
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

// The calling thread does nothing for that long.
void sleep_for(SteadyClock::duration time);

// A number that no other call, in no other process, is likely to get.
uint64_t random_number();

// Members are called by the tasks themselves, one at a time. wait() and pause() may let others run meanwhile;
// the rest returns at once.
class Executor {
  public:
    using Task = uint64_t;

    virtual ~Executor() = default;

    virtual SteadyClock::time_point now() = 0;
    virtual std::chrono::system_clock::time_point time_of_day() = 0;
    virtual uint64_t random_number() = 0;

    // `body` must not throw.
    virtual Task start(const std::string& name, std::function<void()> body) = 0;
    // Until the task has ended.
    virtual void join(Task task) = 0;

    // A point at which another task may go on.
    virtual void pause() = 0;
    // Until wake() is called for `place`, or that time has come. It may also return early.
    virtual void wait(const void* place, std::optional<SteadyClock::time_point> until) = 0;
    // Ends the wait of one of the tasks that wait at `place`, or of all.
    virtual void wake(const void* place, bool all) = 0;

    // Null: the operating system. Install one while no thread of the library runs.
    static Executor* installed() { return installed_.load(std::memory_order_relaxed); }
    static void install(Executor* executor) { installed_.store(executor); }

  private:
    static inline std::atomic<Executor*> installed_{nullptr};
};

}  // namespace tailrace::internal
