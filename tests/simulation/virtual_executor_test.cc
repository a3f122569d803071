#include "simulation/virtual_executor.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "threads/mutex.h"
#include "threads/queue.h"
#include "threads/worker.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using testing_support::VirtualExecutor;

// Three workers write letters, giving way at every lock.
std::string order_of(uint64_t seed) {
    VirtualExecutor executor(seed, {});
    std::string written;
    executor.run([&] {
        Mutex mutex;
        std::vector<Worker> workers;
        for (const char letter : {'a', 'b', 'c'})
            workers.emplace_back("writer", Priority{}, [&, letter](const std::stop_token&) {
                for (int i = 0; i < 20; ++i) {
                    MutexLock lock(mutex);
                    written += letter;
                }
            });
    });
    return written;
}

TEST(VirtualExecutorTest, TheSeedDecidesWhoRuns) {
    EXPECT_EQ(order_of(1), order_of(1));
    EXPECT_NE(order_of(1), order_of(2));
    EXPECT_EQ(order_of(1).size(), 60u);
}

TEST(VirtualExecutorTest, TimePassesOnlyWhenNobodyCanRun) {
    VirtualExecutor executor(7, {});
    const auto began = std::chrono::steady_clock::now();
    std::vector<int> awake;
    executor.run([&] {
        const auto start = SteadyClock::now();
        std::vector<Worker> workers;
        for (const int hours : {3, 1, 2})
            workers.emplace_back("sleeper", Priority{}, [&awake, hours](const std::stop_token&) {
                sleep_for(std::chrono::hours(hours));
                awake.push_back(hours);
            });
        workers.clear();
        const auto slept = SteadyClock::now() - start;
        EXPECT_GE(slept, 3h);
        EXPECT_LT(slept, 3h + 1s);
    });
    EXPECT_EQ(awake, (std::vector<int>{1, 2, 3}));
    EXPECT_LT(std::chrono::steady_clock::now() - began, 1h);
}

TEST(VirtualExecutorTest, AMutexKeepsOthersOut) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
        VirtualExecutor executor(seed, {.pause = 1, .most_steps = 100'000, .story = {}});
        executor.run([&] {
            Mutex mutex;
            Mutex other;
            int inside = 0;
            std::vector<Worker> workers;
            for (int i = 0; i < 4; ++i)
                workers.emplace_back("worker", Priority{}, [&](const std::stop_token&) {
                    for (int turn = 0; turn < 5; ++turn) {
                        MutexLock lock(mutex);
                        EXPECT_EQ(++inside, 1);
                        { MutexLock gives_way(other); }
                        EXPECT_EQ(--inside, 0);
                    }
                });
        });
    }
}

TEST(VirtualExecutorTest, QueuesHandOverEverythingInOrder) {
    VirtualExecutor executor(3, {});
    std::vector<int> received;
    executor.run([&] {
        BoundedQueue<int> queue(2);
        Worker consumer("consumer", Priority{}, [&](const std::stop_token&) {
            while (auto item = queue.pop()) received.push_back(*item);
        });
        for (int i = 0; i < 100; ++i) EXPECT_TRUE(queue.push(i));
        queue.close();
    });
    ASSERT_EQ(received.size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(received[static_cast<size_t>(i)], i);
}

// Each task handles an exception of its own while the others throw theirs.
TEST(VirtualExecutorTest, TasksThatHandleExceptionsDoNotDisturbEachOther) {
    VirtualExecutor executor(11, {.pause = 1, .most_steps = 100'000, .story = {}});
    int right = 0;
    executor.run([&] {
        std::vector<Worker> workers;
        for (int i = 0; i < 8; ++i)
            workers.emplace_back("thrower", Priority{}, [&right, i](const std::stop_token&) {
                try {
                    throw std::runtime_error(std::to_string(i));
                } catch (const std::runtime_error& error) {
                    sleep_for(std::chrono::milliseconds(10 - i));
                    try {
                        throw;
                    } catch (const std::runtime_error& again) {
                        right += again.what() == std::to_string(i) && error.what() == std::to_string(i);
                    }
                }
            });
    });
    EXPECT_EQ(right, 8);
}

TEST(VirtualExecutorTest, TheClockCanBeSetAndTheMachineSleeps) {
    VirtualExecutor executor(1, {});
    executor.run([&] {
        const auto day = time_of_day();
        const auto steady = SteadyClock::now();
        executor.set_clock(-1h);
        EXPECT_LT(time_of_day(), day);
        EXPECT_LT(SteadyClock::now() - steady, 1s);
        executor.jump(2h);
        EXPECT_GE(SteadyClock::now() - steady, 2h);
        EXPECT_GT(time_of_day(), day);
    });
}

TEST(VirtualExecutorDeathTest, AStandstillIsToldAndEndsTheProcess) {
    EXPECT_DEATH(
        {
            VirtualExecutor executor(1, {.pause = 0, .most_steps = 1000, .story = "Replay it so."});
            executor.run([] {
                Mutex mutex;
                Condition never;
                MutexLock lock(mutex);
                never.wait(lock);
            });
        },
        "stands still.*Replay it so");
    EXPECT_DEATH(
        {
            VirtualExecutor executor(1, {.pause = 0, .most_steps = 1000, .story = {}});
            executor.run([] {
                while (true) sleep_for(1ms);
            });
        },
        "goes round in circles");
}

TEST(VirtualExecutorTest, ChecksComeAfterEveryStepAndChangeNothing) {
    const auto run = [](bool check) {
        VirtualExecutor executor(3, {.pause = 0.5, .most_steps = 100'000, .story = {}});
        uint64_t checks = 0;
        Mutex mutex;
        if (check)
            executor.after_step([&] {
                MutexLock lock(mutex);
                ++checks;
                EXPECT_EQ(SteadyClock::now(), SteadyClock::now());
            });
        executor.run([&] {
            std::vector<Worker> workers;
            for (int i = 0; i < 3; ++i)
                workers.emplace_back("worker", Priority{}, [&](const std::stop_token&) {
                    for (int turn = 0; turn < 5; ++turn) {
                        { MutexLock lock(mutex); }
                        sleep_for(1ms);
                    }
                });
        });
        if (check) {
            EXPECT_EQ(checks, executor.steps());
        }
        return std::pair(executor.trace(), executor.steps());
    };
    EXPECT_EQ(run(true), run(false));
}

TEST(VirtualExecutorDeathTest, ATaskThatSpinsIsFound) {
    const auto look_every = [](std::chrono::nanoseconds pause) {
        VirtualExecutor executor(1, {});
        executor.run([&] {
            const auto until = SteadyClock::now() + 1s;
            Mutex mutex;
            Condition condition;
            MutexLock lock(mutex);
            while (SteadyClock::now() < until) condition.wait_until(lock, SteadyClock::now() + pause);
        });
    };
    look_every(20us);
    EXPECT_DEATH(look_every(0us), "has a task that spins");
}

TEST(VirtualExecutorDeathTest, ACheckThatWaitsIsAMistake) {
    EXPECT_DEATH(
        {
            VirtualExecutor executor(1, {});
            executor.after_step([] { sleep_for(1ms); });
            executor.run([] { sleep_for(1ms); });
        },
        "a check waits");
}

}  // namespace
}  // namespace tailrace::internal
