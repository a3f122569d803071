#include "threads/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace tailrace::internal::test {
namespace {

using namespace std::chrono_literals;

TEST(ConditionTest, ATimedWaitEndsWithItsTime) {
    Mutex mutex;
    Condition changed;
    bool done = false;
    {
        MutexLock lock(mutex);
        const auto until = SteadyClock::now() + 1ms;
        while (SteadyClock::now() < until) changed.wait_until(lock, until);
        EXPECT_FALSE(done);
    }
    std::thread other([&] {
        MutexLock lock(mutex);
        done = true;
        changed.notify_all();
    });
    {
        MutexLock lock(mutex);
        while (!done) changed.wait_until(lock, SteadyClock::now() + 1h);
        EXPECT_TRUE(done);
    }
    other.join();
}

TEST(ConditionTest, AWaitGivesTheLockAway) {
    Mutex mutex;
    Condition changed;
    int turn = 0;
    std::thread other([&] {
        MutexLock lock(mutex);
        while (turn != 1) changed.wait(lock);
        turn = 2;
        changed.notify_one();
    });
    {
        MutexLock lock(mutex);
        turn = 1;
        changed.notify_one();
        while (turn != 2) changed.wait(lock);
        EXPECT_EQ(turn, 2);
    }
    other.join();
}

TEST(SharedMutexTest, IsSharedOrHeldAlone) {
    SharedMutex mutex;
    int value = 0;
    std::thread other;
    {
        SharedLock first(mutex);
        SharedLock second(mutex);
        other = std::thread([&] {
            ExclusiveLock lock(mutex);
            value = 1;
        });
        EXPECT_EQ(value, 0) << "written while it is shared";
    }
    other.join();
    SharedLock lock(mutex);
    EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace tailrace::internal::test
