// Worker: a named thread that its owner joins, with the priority of a guest.
//
// The thread runs `body(stop)` once; the destructor requests the stop and joins. A body that waits must wake
// on its own stop condition (close its queue, notify its condition) before the worker is destroyed.
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
    bool idle_io = false;  // the lowest best-effort I/O class, so that the program's own I/O goes first
};

class Worker {
  public:
    Worker() = default;
    // `name` is what debuggers and top show; the kernel keeps 15 characters. std::system_error when there can
    // be no thread.
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
    std::thread thread_;                  // of the system,
    std::optional<Executor::Task> task_;  // or of the executor
};

}  // namespace tailrace::internal
