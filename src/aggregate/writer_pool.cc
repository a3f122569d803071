#include "aggregate/writer_pool.h"

#include <fmt/format.h>

#include <system_error>

#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace {

namespace {
thread_local uint32_t number_of_this_thread = 0;
}  // namespace

uint32_t WriterPool::this_thread() {
    return number_of_this_thread;
}

WriterPool::WriterPool(uint32_t threads, Priority priority, Action wake) : wake_(std::move(wake)) {
    threads_.reserve(threads);
    try {
        for (uint32_t i = 0; i < threads; ++i)
            threads_.emplace_back(fmt::format("tr-writer-{}", i), priority,
                                  [this, i](std::stop_token) { run(i); });
    } catch (const std::system_error& error) {
        if (threads_.empty()) throw;
        log(LogLevel::warning, "{} writers instead of {}: {}", threads_.size(), threads, error.what());
    }
}

WriterPool::~WriterPool() {
    stop();
}

void WriterPool::submit(Urgency urgency, Action work, Action then) {
    {
        MutexLock lock(mutex_);
        if (stopping_) return;
        (urgency == Urgency::urgent ? urgent_ : relaxed_).push_back({std::move(work), std::move(then)});
    }
    has_task_.notify_one();
}

void WriterPool::run(uint32_t number) {
    number_of_this_thread = number;
    for (;;) {
        Task task;
        {
            MutexLock lock(mutex_);
            has_task_.wait(lock, [&] { return stopping_ || !urgent_.empty() || !relaxed_.empty(); });
            if (stopping_) return;
            auto& queue = urgent_.empty() ? relaxed_ : urgent_;
            task = std::move(queue.front());
            queue.pop_front();
        }
        task.work();
        task.work = nullptr;  // what it held is free before `then` can run
        {
            MutexLock lock(mutex_);
            finished_.push_back(std::move(task.then));
        }
        wake_();
    }
}

bool WriterPool::run_finished() {
    std::vector<Action> finished;
    {
        MutexLock lock(mutex_);
        finished.swap(finished_);
    }
    for (Action& then : finished) {
        then();
        then = nullptr;
    }
    return !finished.empty();
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

}  // namespace tailrace
