#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "storage/posix_storage.h"
#include "storage/scratch.h"

namespace {
// What another process does between our open and our lock.
std::function<void()> before_next_flock, before_next_byte_lock;
}  // namespace

// In the place of the C library's.
extern "C" int fcntl(int descriptor, int command, ...) {
    va_list more;
    va_start(more, command);
    void* argument = va_arg(more, void*);  // a number looks the same to the system
    va_end(more);
    if (command == F_OFD_SETLK)
        if (auto act = std::exchange(before_next_byte_lock, nullptr)) act();
    return static_cast<int>(syscall(SYS_fcntl, descriptor, command, argument));
}

extern "C" int flock(int descriptor, int operation) {
    if (auto act = std::exchange(before_next_flock, nullptr)) act();
    return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

namespace tailrace::internal::test {
namespace {

class PosixLocksTest : public testing::Test {
  protected:
    ScratchDirectory scratch_;
    std::shared_ptr<Storage> storage_ = make_posix_storage();
};

TEST_F(PosixLocksTest, ALockConflictsAcrossProcessesAndDiesWithItsHolder) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t holder = fork();
    if (holder == 0) {
        auto lock = make_posix_storage()->lock_directory(scratch_.path());
        (void)!write(ready[1], lock.ok() ? "y" : "n", 1);
        while (true) pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    std::array<char, 256> host{};
    ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
    const auto who = "process " + std::to_string(holder) + " on " + host.data() + " holds it";
    TAILRACE_EXPECT_FAILS(storage_->lock_directory(scratch_.path()), Code::busy, who);
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
    TAILRACE_EXPECT_OK(storage_->lock_directory(scratch_.path()));
    close(ready[0]);
    close(ready[1]);
}

TEST_F(PosixLocksTest, ALockedNumberConflictsAcrossProcessesAndDiesWithItsHolder) {
    const std::string path = scratch_ / "lock";
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t holder = fork();
    if (holder == 0) {
        auto lock = make_posix_storage()->lock_number(path, 3);
        const pid_t heir = fork();  // must not keep the lock
        (void)!write(ready[1], &heir, sizeof heir);
        while (true) pause();
    }
    pid_t heirs[2] = {};  // as its parent and as it knows itself: 0
    for (pid_t& heir : heirs)
        EXPECT_EQ(read(ready[0], &heir, sizeof heir), static_cast<ssize_t>(sizeof heir));
    TAILRACE_EXPECT_FAILS(storage_->lock_number(path, 3), Code::busy, path);
    TAILRACE_EXPECT_OK(storage_->lock_number(path, 4));
    kill(holder, SIGKILL);
    waitpid(holder, nullptr, 0);
    TAILRACE_EXPECT_OK(storage_->lock_number(path, 3));
    if (std::max(heirs[0], heirs[1]) > 0) kill(std::max(heirs[0], heirs[1]), SIGKILL);
    ASSERT_EQ(symlink(path.c_str(), (path + ".link").c_str()), 0);
    EXPECT_FALSE(storage_->lock_number(path + ".link", 3).ok()) << "no link is followed";
    close(ready[0]);
    close(ready[1]);
}

TEST_F(PosixLocksTest, ALockOnADirectoryThatWasRemovedMeanwhileIsNone) {
    const std::string path = scratch_ / "place";
    ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
    before_next_flock = [&] { ASSERT_EQ(rmdir(path.c_str()), 0); };
    TAILRACE_EXPECT_FAILS(storage_->lock_directory(path), Code::not_found, path);
    ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
    std::unique_ptr<DirectoryLock> others;  // on what is there now
    before_next_flock = [&] {
        ASSERT_EQ(rename(path.c_str(), (path + ".old").c_str()), 0);
        ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
        auto lock = make_posix_storage()->lock_directory(path);
        TAILRACE_ASSERT_OK(lock);
        others = std::move(lock).value();
    };
    TAILRACE_EXPECT_FAILS(storage_->lock_directory(path), Code::busy, path);
    others.reset();
    before_next_flock = [&] {
        ASSERT_EQ(rmdir(path.c_str()), 0);
        ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
    };
    auto lock = storage_->lock_directory(path);
    TAILRACE_ASSERT_OK(lock);
    TAILRACE_EXPECT_FAILS(make_posix_storage()->lock_directory(path), Code::busy, path);
}

TEST_F(PosixLocksTest, ANumberIsNotLockedByAFileThatWasRemovedMeanwhile) {
    const std::string path = scratch_ / "lock";
    before_next_byte_lock = [&] { ASSERT_EQ(unlink(path.c_str()), 0); };
    auto lock = storage_->lock_number(path, 3);
    TAILRACE_ASSERT_OK(lock);
    TAILRACE_EXPECT_FAILS(make_posix_storage()->lock_number(path, 3), Code::busy, path);
    lock->reset();
    std::unique_ptr<NumberLock> others;  // by what has the name now
    before_next_byte_lock = [&] {
        ASSERT_EQ(unlink(path.c_str()), 0);
        auto locked = make_posix_storage()->lock_number(path, 3);
        TAILRACE_ASSERT_OK(locked);
        others = std::move(locked).value();
    };
    TAILRACE_EXPECT_FAILS(storage_->lock_number(path, 3), Code::busy, path);
    others.reset();
    std::function<void()> always = [&] {
        ASSERT_EQ(unlink(path.c_str()), 0);
        before_next_byte_lock = always;
    };
    before_next_byte_lock = always;
    TAILRACE_EXPECT_FAILS(storage_->lock_number(path, 3), Code::busy, "again and again");
    before_next_byte_lock = nullptr;
}

TEST_F(PosixLocksTest, ALockKnowsWhenItsDirectoryWasReplaced) {
    const std::string path = scratch_ / "place";
    ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
    auto lock = storage_->lock_directory(path);
    TAILRACE_ASSERT_OK(lock);
    EXPECT_TRUE((*lock)->still_in_place());
    ASSERT_EQ(rename(path.c_str(), (path + ".old").c_str()), 0);
    EXPECT_FALSE((*lock)->still_in_place());
    ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
    EXPECT_FALSE((*lock)->still_in_place());
    ASSERT_EQ(rmdir(path.c_str()), 0);
    ASSERT_EQ(rename((path + ".old").c_str(), path.c_str()), 0);
    EXPECT_TRUE((*lock)->still_in_place());
}

TEST_F(PosixLocksTest, AProcessThatLeftItsLockToAnotherIsNotNamed) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t locker = fork();
    if (locker == 0) {
        const int directory = open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY);
        const bool locked = flock(directory, LOCK_EX | LOCK_NB) == 0;
        const pid_t heir = locked ? fork() : -1;
        if (heir == 0)
            while (true) pause();
        (void)!write(ready[1], &heir, sizeof heir);
        _exit(0);
    }
    pid_t heir = 0;
    ASSERT_EQ(read(ready[0], &heir, sizeof heir), ssize_t{sizeof heir});
    ASSERT_GT(heir, 0);
    waitpid(locker, nullptr, 0);
    TAILRACE_EXPECT_FAILS(storage_->lock_directory(scratch_.path()), Code::busy, "another process holds it");
    kill(heir, SIGKILL);
    close(ready[0]);
    close(ready[1]);
}

TEST_F(PosixLocksTest, AForkedChildDoesNotKeepTheLock) {
    auto lock = storage_->lock_directory(scratch_.path());
    TAILRACE_ASSERT_OK(lock);
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)!write(ready[1], "y", 1);
        while (true) pause();
    }
    char answer = 0;
    ASSERT_EQ(read(ready[0], &answer, 1), 1);
    TAILRACE_EXPECT_FAILS(make_posix_storage()->lock_directory(scratch_.path()), Code::busy, scratch_.path());
    lock->reset();
    TAILRACE_EXPECT_OK(storage_->lock_directory(scratch_.path()));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
}

}  // namespace
}  // namespace tailrace::internal::test
