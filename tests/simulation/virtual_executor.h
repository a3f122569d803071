// VirtualExecutor: runs every thread of a job as a task of the calling thread, in virtual time, in an order
// that the seed alone decides. The same seed gives the same history, bit for bit; trace() tells histories
// apart.
//
// Tasks are contexts with stacks of their own. One runs until it waits or pauses; then the seed picks the
// next among those that can go on. A task pauses at every lock it takes, with the probability that is set:
// so two tasks may be interleaved wherever two threads could be that keep to the locks. When no task can go
// on, time moves to the next moment for which one waits. If there is none, the job has come to a standstill:
// run() prints who waits, and ends the process. So it does if a task wakes again and again at once, which
// would keep a processor busy.
//
// Not thread-safe: make one, run(), and destroy it on one thread.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "threads/executor.h"

namespace tailrace::internal::testing_support {

// A small generator: a few nanoseconds a number, the same on every platform.
class Dice {
  public:
    explicit Dice(uint64_t seed) : state_(seed) {}
    uint64_t next();
    uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
    bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

  private:
    uint64_t state_;
};

class VirtualExecutor final : public Executor {
  public:
    struct Options {
        double pause = 0.25;               // how often another task may go on where a lock is taken
        uint64_t most_steps = 50'000'000;  // after so many the job is taken to go round in circles
        uint64_t most_in_a_row = 10'000;   // after so many steps of one task in no time it is said to spin
        std::string story;                 // printed when it comes to a standstill: how to replay it
    };
    VirtualExecutor(uint64_t seed, Options options);
    ~VirtualExecutor() override;

    // Installs itself, runs `body` as the first task until every task has ended, and leaves.
    void run(std::function<void()> body);

    SteadyClock::time_point now() override;
    std::chrono::system_clock::time_point time_of_day() override;
    uint64_t random_number() override { return dice_.next(); }
    Task start(const std::string& name, std::function<void()> body) override;
    void join(Task task) override;
    void pause() override;
    void wait(const void* place, std::optional<SteadyClock::time_point> until) override;
    void wake(const void* place, bool all) override;

    // The machine sleeps: time goes on, and nobody runs.
    void jump(SteadyClock::duration time) { now_ += time; }
    // Somebody sets the clock.
    void set_clock(std::chrono::seconds by) { day_ += by; }

    // Something that a history consists of. Mixed into the trace.
    void note(std::string_view what, uint64_t a = 0, uint64_t b = 0);
    uint64_t trace() const { return trace_; }
    uint64_t steps() const { return steps_; }
    // Called after every step, when no task runs. It must not wait, so it may take only locks that no task
    // holds while it waits for something else. Time stands still meanwhile: a history is the same with and
    // without it.
    void after_step(std::function<void()> check) { check_ = std::move(check); }

    // As long as one lives, the running task works for the simulation and not for the program: what fails
    // allocations (out_of_memory_test.cc) leaves it alone. Another task that runs meanwhile is not excused.
    class OwnWork {
      public:
        OwnWork() { ++depth_; }
        ~OwnWork() { --depth_; }
        OwnWork(const OwnWork&) = delete;
        OwnWork& operator=(const OwnWork&) = delete;
        static bool is_done() { return depth_ > 0; }

      private:
        friend class VirtualExecutor;
        static inline int depth_ = 0;
    };

  private:
    struct Context;
    Context& make_ready(Context& context);
    void switch_away();
    [[noreturn]] void stand_still(const char* why);
    static void enter();

    Dice dice_;
    const Options options_;
    SteadyClock::time_point now_;
    std::chrono::system_clock::time_point day_;  // at time 0
    uint64_t trace_ = 0, steps_ = 0, started_ = 0;
    uint64_t in_a_row_ = 0;  // steps of the same task in no time
    int ended_ = 0;          // contexts of tasks that have ended, which the next task to run gives back
    std::function<void()> check_;
    bool checking_ = false;

    std::vector<std::unique_ptr<Context>> contexts_;  // of tasks that have not ended, by no order
    std::unordered_map<Task, Context*> tasks_;
    std::vector<Context*> ready_;
    std::unordered_map<const void*, std::vector<Context*>> waiting_;
    std::multimap<SteadyClock::time_point, Context*> alarms_;
    std::unique_ptr<Context> caller_;
    Context* running_ = nullptr;
};

}  // namespace tailrace::internal::testing_support
