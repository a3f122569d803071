// WriterPool: the threads that do all file I/O of a node's aggregator.
//
// A task has two functions. `work` runs on a writer and may block. `then` gets the outcome, and
// runs later on the owner's thread, when the owner calls run_finished(). So the data that `then` uses
// needs no lock. If `work` throws, that is a failure like any other. Urgent tasks (received data,
// commits) go before the others (local data). Tasks of the same urgency run in the order of
// submission. Idle threads sleep.
//
// stop() ends the threads. Running work comes to its end, waiting tasks are dropped together with
// what they hold, and no `then` runs afterwards.
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

    // Writers call `wake`, outside every lock, when run_finished() has something to do. If the
    // system gives fewer threads than asked for, or memory runs out, those do the work. If there is
    // none, throws std::system_error or std::bad_alloc.
    WriterPool(uint32_t threads, Priority priority, std::function<void()> wake);
    ~WriterPool();

    void submit(Urgency urgency, Work work, Then then);
    // Runs the `then` of all work that has ended. Returns whether there was any. One thread only.
    bool run_finished();
    void stop();

    // Called when `work` begins: the number of the thread that it runs on, below thread_count().
    static uint32_t this_thread();

    uint32_t thread_count() const { return static_cast<uint32_t>(threads_.size()); }

  private:
    struct Task {
        Work work;
        Then then;
        Status outcome;
    };
    // Tasks move from list to list without being copied, which needs no memory and cannot fail.
    using Tasks = std::list<Task>;
    void run(uint32_t number);
    Tasks next();  // one task; none when the pool is stopped

    const std::function<void()> wake_;
    Mutex mutex_;
    Condition has_task_;
    Tasks urgent_ GUARDED_BY(mutex_), relaxed_ GUARDED_BY(mutex_), finished_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<Worker> threads_;
};

}  // namespace tailrace::internal
