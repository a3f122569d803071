#include "threads/worker.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>

#include "threads/no_threads.h"

namespace tailrace::internal::test {
namespace {

TEST(WorkerTest, RunsItsBodyOnceAndIsJoined) {
    std::atomic<int> runs{0};
    {
        Worker worker("once", {}, [&](std::stop_token) { ++runs; });
        EXPECT_TRUE(worker.running());
    }
    EXPECT_EQ(runs, 1);
    EXPECT_FALSE(Worker().running());
}

TEST(WorkerTest, DestructionRequestsTheStop) {
    bool stopped = false;
    {
        Worker worker("stop", {}, [&](std::stop_token stop) {
            std::mutex mutex;
            std::condition_variable_any condition;
            std::unique_lock lock(mutex);
            condition.wait(lock, stop, [] { return false; });
            stopped = stop.stop_requested();
        });
    }
    EXPECT_TRUE(stopped);
}

TEST(WorkerTest, HasItsNameAndPriorityAndNoSignals) {
    const int here = getpriority(PRIO_PROCESS, 0);
    char name[32] = {};
    int nice_there = -100;
    long io_priority = -1;
    bool all_blocked = false;
    {
        Worker worker("a-name-that-is-too-long", {5, true}, [&](std::stop_token) {
            pthread_getname_np(pthread_self(), name, sizeof name);
            const auto self = static_cast<id_t>(syscall(SYS_gettid));
            nice_there = getpriority(PRIO_PROCESS, self);
            io_priority = syscall(SYS_ioprio_get, 1, 0);
            sigset_t blocked;
            pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
            all_blocked = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1 &&
                          sigismember(&blocked, SIGUSR1) == 1;
        });
    }
    EXPECT_STREQ(name, "a-name-that-is-");
    EXPECT_EQ(nice_there, std::min(here + 5, 19));
    EXPECT_EQ(io_priority, (2L << 13) | 7);
    EXPECT_TRUE(all_blocked);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), here) << "the owner's priority stays";
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGTERM), 0) << "the owner's signals stay";
}

TEST(WorkerTest, WithoutAThreadTheOwnersSignalsStay) {
    {
        testing_support::NoThreads none;
        EXPECT_THROW(Worker("none", {}, [](std::stop_token) {}), std::system_error);
    }
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
}

}  // namespace
}  // namespace tailrace::internal::test
