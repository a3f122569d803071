// BoundedQueue<T>: a closeable first-in first-out queue between threads.
//
// Invariants: it never holds more than its bound. After close() nothing can be pushed, but what is
// in it can still be popped. Any number of threads may push and pop.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "threads/mutex.h"

namespace tailrace::internal {

template <class T>
class BoundedQueue {
  public:
    explicit BoundedQueue(size_t bound) : bound_(bound) {}

    // Blocks while the queue is full. If the queue is closed, drops `item` and returns false.
    bool push(T item) {
        MutexLock lock(mutex_);
        while (!closed_ && items_.size() >= bound_) has_room_.wait(lock);
        if (closed_) return false;
        items_.push_back(std::move(item));
        has_items_.notify_one();
        return true;
    }

    // Blocks while the queue is empty and open. Returns nothing once it is closed and empty.
    std::optional<T> pop() {
        MutexLock lock(mutex_);
        while (!closed_ && items_.empty()) has_items_.wait(lock);
        return take_front();
    }

    std::optional<T> try_pop() {
        MutexLock lock(mutex_);
        return take_front();
    }

    void close() {
        MutexLock lock(mutex_);
        closed_ = true;
        has_items_.notify_all();
        has_room_.notify_all();
    }

    size_t size() const {
        MutexLock lock(mutex_);
        return items_.size();
    }

  private:
    std::optional<T> take_front() REQUIRES(mutex_) {
        if (items_.empty()) return std::nullopt;
        std::optional<T> item(std::move(items_.front()));
        items_.pop_front();
        has_room_.notify_one();
        return item;
    }

    const size_t bound_;
    mutable Mutex mutex_;
    Condition has_items_, has_room_;
    std::deque<T> items_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
