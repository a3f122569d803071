// WriterPool: the threads that do all file I/O of a node agent.
//
// A task is `work`, which runs on a writer and may block, and `then`, which the owner's thread runs later
// when it calls run_finished(). So whatever `then` touches needs no lock. Urgent tasks (received data,
// commits) go before the others (local data); within a kind the order is that of submission. Idle threads
// sleep.
//
// stop() ends the threads: running work ends by itself, waiting tasks are dropped together with what they
// hold, and no `then` runs afterwards.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace {

enum class Urgency { urgent, relaxed };

class WriterPool {
  public:
    using Action = std::function<void()>;

    // `wake` is called from writers, outside every lock, when run_finished() has something to do. Where the
    // system gives fewer threads, those do the work; std::system_error when it gives none.
    WriterPool(uint32_t threads, Priority priority, Action wake);
    ~WriterPool();

    void submit(Urgency urgency, Action work, Action then);
    // Runs the `then` of all work that has ended. True when there was any. One thread only.
    bool run_finished();
    void stop();

    // Within `work`: the number of the thread it runs on, below thread_count().
    static uint32_t this_thread();

    uint32_t thread_count() const { return static_cast<uint32_t>(threads_.size()); }

  private:
    struct Task {
        Action work, then;
    };
    void run(uint32_t number);

    const Action wake_;
    Mutex mutex_;
    Condition has_task_;
    std::deque<Task> urgent_, relaxed_;
    std::vector<Action> finished_;
    bool stopping_ = false;
    std::vector<Worker> threads_;
};

}  // namespace tailrace
