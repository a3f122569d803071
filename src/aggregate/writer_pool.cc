#include "aggregate/writer_pool.h"

#include <fmt/format.h>

#include <exception>

#include "base/caught.h"
#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {
thread_local uint32_t number_of_this_thread = 0;
}  // namespace

uint32_t WriterPool::this_thread() {
    return number_of_this_thread;
}

WriterPool::WriterPool(uint32_t threads, Priority priority, std::function<void()> wake)
    : wake_(std::move(wake)) {
    threads_.reserve(threads);
    try {
        for (uint32_t i = 0; i < threads; ++i)
            threads_.emplace_back(fmt::format("tr-writer-{}", i), priority,
                                  [this, i](std::stop_token) { run(i); });
    } catch (const std::exception& error) {
        // A throw from here would join threads that nobody tells to stop.
        if (threads_.empty()) throw;
        log(LogLevel::warning, "the node has {} writers instead of {}: {}", threads_.size(), threads,
            error.what());
    }
}

WriterPool::~WriterPool() {
    stop();
}

void WriterPool::submit(Urgency urgency, Work work, Then then) {
    Tasks one;
    one.push_back({std::move(work), std::move(then), {}});
    {
        MutexLock lock(mutex_);
        if (stopping_) return;
        auto& queue = urgency == Urgency::urgent ? urgent_ : relaxed_;
        queue.splice(queue.end(), one);
    }
    has_task_.notify_one();
}

WriterPool::Tasks WriterPool::next() {
    Tasks one;
    MutexLock lock(mutex_);
    while (!stopping_ && urgent_.empty() && relaxed_.empty()) has_task_.wait(lock);
    if (stopping_) return one;
    auto& queue = urgent_.empty() ? relaxed_ : urgent_;
    one.splice(one.end(), queue, queue.begin());
    return one;
}

void WriterPool::run(uint32_t number) {
    for (Tasks one = next(); !one.empty(); one = next()) {
        Task& task = one.front();
        number_of_this_thread = number;  // each time: where threads are simulated, pools share a thread
        task.outcome = catching(task.work);
        task.work = nullptr;  // frees what it holds before `then` can run
        {
            MutexLock lock(mutex_);
            finished_.splice(finished_.end(), one);
        }
        wake_();
    }
}

bool WriterPool::run_finished() {
    Tasks finished;
    {
        MutexLock lock(mutex_);
        finished.swap(finished_);
    }
    const bool any = !finished.empty();
    for (; !finished.empty(); finished.pop_front()) finished.front().then(finished.front().outcome);
    return any;
}

void WriterPool::stop() {
    {
        MutexLock lock(mutex_);
        stopping_ = true;
    }
    has_task_.notify_all();
    threads_.clear();  // joins
    MutexLock lock(mutex_);
    urgent_.clear();
    relaxed_.clear();
    finished_.clear();
}

}  // namespace tailrace::internal
