// Worker: a named thread that its owner joins, with the priority of a guest.
//
// The thread runs `body(stop)` once; the destructor requests the stop and joins. A body that waits must wake
// on its own stop condition (close its queue, notify its condition) before the worker is destroyed.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace tailrace {

struct Priority {
    int nice = 0;          // added to the thread's CPU niceness, 0..19
    bool idle_io = false;  // the lowest best-effort I/O class, so that the program's own I/O goes first
};

class Worker {
  public:
    Worker() = default;
    // `name` is what debuggers and top show; the kernel keeps 15 characters.
    Worker(std::string name, Priority priority, std::function<void(std::stop_token)> body);
    Worker(Worker&&) = default;
    Worker& operator=(Worker&&) = default;
    ~Worker() = default;  // std::jthread requests the stop and joins

    bool running() const { return thread_.joinable(); }
    void request_stop() { thread_.request_stop(); }
    void join() {
        if (thread_.joinable()) thread_.join();
    }

  private:
    std::jthread thread_;
};

}  // namespace tailrace
