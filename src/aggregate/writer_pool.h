// WriterPool: the threads that do all file I/O of a node agent.
//
// A task is `work`, which runs on a writer and may block, and `then`, which the owner's thread runs later
// with its outcome when it calls run_finished(). So whatever `then` touches needs no lock. What `work` throws
// is a failure like any other. Urgent tasks (received data, commits) go before the others (local data);
// within a kind the order is that of submission. Idle threads sleep.
//
// stop() ends the threads: running work ends by itself, waiting tasks are dropped together with what they
// hold, and no `then` runs afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "base/status.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal {

enum class Urgency { urgent, relaxed };

class WriterPool {
  public:
    using Work = std::function<Status()>;
    using Then = std::function<void(const Status& outcome)>;

    // `wake` is called from writers, outside every lock, when run_finished() has something to do. Where the
    // system gives fewer threads, those do the work; std::system_error when it gives none.
    WriterPool(uint32_t threads, Priority priority, std::function<void()> wake);
    ~WriterPool();

    void submit(Urgency urgency, Work work, Then then);
    // Runs the `then` of all work that has ended. True when there was any. One thread only.
    bool run_finished();
    void stop();

    // Within `work`: the number of the thread it runs on, below thread_count().
    static uint32_t this_thread();

    uint32_t thread_count() const { return static_cast<uint32_t>(threads_.size()); }

  private:
    struct Task {
        Work work;
        Then then;
        Status outcome;
    };
    // Tasks move from list to list as they are, which needs no memory and cannot fail.
    using Tasks = std::list<Task>;
    void run(uint32_t number);
    Tasks next();  // one; none when the pool is stopped

    const std::function<void()> wake_;
    Mutex mutex_;
    Condition has_task_;
    Tasks urgent_ GUARDED_BY(mutex_), relaxed_ GUARDED_BY(mutex_), finished_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<Worker> threads_;
};

}  // namespace tailrace::internal
