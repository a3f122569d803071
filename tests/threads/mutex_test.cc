#include "threads/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace tailrace::test {
namespace {

using namespace std::chrono_literals;

TEST(ConditionTest, ATimedWaitSaysWhetherItsConditionHolds) {
    Mutex mutex;
    Condition changed;
    bool done = false;
    {
        MutexLock lock(mutex);
        EXPECT_FALSE(changed.wait_for(lock, 1ms, [&] { return done; }));
    }
    std::thread other([&] {
        MutexLock lock(mutex);
        done = true;
        changed.notify_all();
    });
    {
        MutexLock lock(mutex);
        EXPECT_TRUE(changed.wait_for(lock, 1h, [&] { return done; }));
    }
    other.join();
}

TEST(ConditionTest, AWaitGivesTheLockAway) {
    Mutex mutex;
    Condition changed;
    int turn = 0;
    std::thread other([&] {
        MutexLock lock(mutex);
        changed.wait(lock, [&] { return turn == 1; });
        turn = 2;
        changed.notify_one();
    });
    {
        MutexLock lock(mutex);
        turn = 1;
        changed.notify_one();
        changed.wait(lock, [&] { return turn == 2; });
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
}  // namespace tailrace::test
