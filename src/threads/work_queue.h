// WorkQueue: does pieces of work that may take long, one after the other, in a thread of its own.
//
// add() never blocks for long, because the queue is far longer than what is ever due. Any thread
// may call it. finish() does what was added before and ends the thread; what is added later is
// dropped. If work throws, it has ended; `thrown` is called in its catch block, and must not throw
// itself.
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
