// WorkQueue: pieces of work that may take long, done one after the other by a thread of their own.
//
// add() never blocks for long (the queue is far longer than what is ever due) and may be called from any
// thread; finish() does what was added before and ends the thread. What is added later is dropped. Work that
// throws is over; `thrown` is called in its catch block, and must not throw itself.
#pragma once

#include <functional>
#include <string>

#include "threads/queue.h"
#include "threads/worker.h"

namespace tailrace::internal {

class WorkQueue {
  public:
    ~WorkQueue() { finish(); }
    void begin(std::string thread_name, Priority priority, std::function<void()> thrown) {
        worker_ = Worker(std::move(thread_name), priority,
                         [this, thrown = std::move(thrown)](const std::stop_token&) {
                             while (auto work = queue_.pop()) {
                                 try {
                                     (*work)();
                                 } catch (...) {
                                     thrown();
                                 }
                             }
                         });
    }
    void add(std::function<void()> work) { (void)queue_.push(std::move(work)); }
    void finish() {
        queue_.close();
        worker_.join();
    }

  private:
    BoundedQueue<std::function<void()>> queue_{4096};
    Worker worker_;
};

}  // namespace tailrace::internal
