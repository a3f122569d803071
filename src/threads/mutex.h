// Mutex, SharedMutex, MutexLock, SharedLock, Condition: those of the standard library, adapted to
// the analysis of locks (threads/annotations.h) and to executors (threads/executor.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "threads/annotations.h"
#include "threads/executor.h"

namespace tailrace::internal {

class CAPABILITY("mutex") Mutex {
  public:
    void lock() ACQUIRE() {
        if (Executor* executor = Executor::installed()) return lock_by(*executor);
        mutex_.lock();
    }
    bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
    void unlock() RELEASE() {
        mutex_.unlock();
        if (Executor* executor = Executor::installed()) executor->wake(this, true);
    }

  private:
    friend class Condition;
    // All tasks share one thread. A mutex that one task has locked refuses another one's attempt,
    // as POSIX requires of mutexes that are not recursive.
    void lock_by(Executor& executor) ACQUIRE() NO_THREAD_SAFETY_ANALYSIS {
        executor.pause();
        while (!mutex_.try_lock()) executor.wait(this, std::nullopt);
    }

    std::mutex mutex_;
};

// One thread may hold it alone, or several may share it.
class CAPABILITY("mutex") SharedMutex {
  public:
    void lock() ACQUIRE() NO_THREAD_SAFETY_ANALYSIS {
        take([this] { return mutex_.try_lock(); }, [this] { mutex_.lock(); });
    }
    void unlock() RELEASE() {
        mutex_.unlock();
        wake();
    }
    void lock_shared() ACQUIRE_SHARED() NO_THREAD_SAFETY_ANALYSIS {
        take([this] { return mutex_.try_lock_shared(); }, [this] { mutex_.lock_shared(); });
    }
    void unlock_shared() RELEASE_SHARED() {
        mutex_.unlock_shared();
        wake();
    }

  private:
    template <class Try, class Lock>
    void take(Try try_lock, Lock lock) {
        Executor* executor = Executor::installed();
        if (executor == nullptr) return lock();
        executor->pause();
        while (!try_lock()) executor->wait(this, std::nullopt);
    }
    void wake() {
        if (Executor* executor = Executor::installed()) executor->wake(this, true);
    }

    std::shared_mutex mutex_;
};

class SCOPED_CAPABILITY SharedLock {
  public:
    explicit SharedLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
    ~SharedLock() RELEASE_GENERIC() { mutex_.unlock_shared(); }
    SharedLock(const SharedLock&) = delete;
    SharedLock& operator=(const SharedLock&) = delete;

  private:
    SharedMutex& mutex_;
};

class SCOPED_CAPABILITY ExclusiveLock {
  public:
    explicit ExclusiveLock(SharedMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~ExclusiveLock() RELEASE() { mutex_.unlock(); }
    ExclusiveLock(const ExclusiveLock&) = delete;
    ExclusiveLock& operator=(const ExclusiveLock&) = delete;

  private:
    SharedMutex& mutex_;
};

// Holds a mutex until it is destroyed, except between unlock() and lock().
class SCOPED_CAPABILITY MutexLock {
  public:
    explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    // The caller has locked the mutex already.
    MutexLock(Mutex& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
    ~MutexLock() RELEASE() {
        if (locked_) mutex_.unlock();
    }
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

    void lock() ACQUIRE() {
        mutex_.lock();
        locked_ = true;
    }
    void unlock() RELEASE() {
        locked_ = false;
        mutex_.unlock();
    }

  private:
    friend class Condition;
    Mutex& mutex_;
    bool locked_ = true;
};

// A wait releases the lock meanwhile, and may end for no reason. So it must be in a loop that
// checks the condition. (To the analysis of locks, a predicate in place of the loop would be a
// function of its own that does not hold the mutex.)
class Condition {
  public:
    void wait(MutexLock& lock) { wait_by(lock, std::nullopt); }
    void wait_until(MutexLock& lock, SteadyClock::time_point when) { wait_by(lock, when); }
    // Waits until the deadline at most, if there is one. Returns false, at once, if it has passed.
    bool wait_before(MutexLock& lock, std::optional<SteadyClock::time_point> deadline) {
        if (deadline && SteadyClock::now() >= *deadline) return false;
        wait_by(lock, deadline);
        return true;
    }

    void notify_one() { notify(false); }
    void notify_all() { notify(true); }

  private:
    void wait_by(MutexLock& lock, std::optional<SteadyClock::time_point> until) NO_THREAD_SAFETY_ANALYSIS {
        if (Executor* executor = Executor::installed()) {
            lock.unlock();
            executor->wait(this, until);
            lock.lock();
            return;
        }
        // A wait without an end would be condition_variable::wait, which GCC 12 has given a new version. Then
        // programs would not run with the C++ library of GCC 11, which is that of RHEL 9.
        constexpr std::chrono::hours long_time(24);
        std::unique_lock<std::mutex> system_lock(lock.mutex_.mutex_, std::adopt_lock);
        condition_.wait_until(system_lock, until.value_or(SteadyClock::now() + long_time));
        system_lock.release();
    }
    void notify(bool all) {
        if (Executor* executor = Executor::installed()) return executor->wake(this, all);
        all ? condition_.notify_all() : condition_.notify_one();
    }

    std::condition_variable condition_;
};

}  // namespace tailrace::internal
