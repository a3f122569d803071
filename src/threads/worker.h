// Worker: a named thread with a low priority, which its owner joins.
//
// The thread runs `body(stop)` once. The destructor requests the stop and joins. A body that waits
// needs a stop condition of its own: the owner must meet it (close its queue, notify its condition)
// before it destroys the worker.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "threads/executor.h"

namespace tailrace::internal {

struct Priority {
    int nice = 0;          // added to the thread's CPU niceness, 0..19
    bool idle_io = false;  // the lowest best-effort I/O class, so that the program's own I/O comes first
};

class Worker {
  public:
    Worker() = default;
    // Debuggers and top show `name`; the kernel keeps 15 characters. Throws std::system_error if no
    // thread can be started.
    Worker(std::string name, Priority priority, std::function<void(std::stop_token)> body);
    Worker(Worker&& other) noexcept { swap(other); }
    Worker& operator=(Worker&& other) noexcept {
        Worker moved(std::move(other));
        swap(moved);
        return *this;
    }
    ~Worker() {
        request_stop();
        join();
    }

    bool running() const { return thread_.joinable() || task_.has_value(); }
    void request_stop() { stop_.request_stop(); }
    void join();

  private:
    void swap(Worker& other) noexcept {
        std::swap(stop_, other.stop_);
        std::swap(thread_, other.thread_);
        std::swap(task_, other.task_);
    }

    std::stop_source stop_{std::nostopstate};
    std::thread thread_;                  // the system's thread,
    std::optional<Executor::Task> task_;  // or the executor's task
};

}  // namespace tailrace::internal
