#include "capture/copy_team.h"

#include <exception>
#include <utility>

#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace::internal {

CopyTeam::CopyTeam(size_t helpers) {
    helpers_.reserve(helpers);
    try {
        while (helpers_.size() < helpers)
            helpers_.emplace_back("tailrace copy", Priority{},
                                  [this](const std::stop_token& stop) { help(stop); });
    } catch (const std::exception& error) {
        // The capture goes on with the threads that could be started, or with the caller alone. A
        // throw from here would join threads that nobody tells to stop.
        log(LogLevel::info, "regions are copied by {} threads, not {}: {}", threads(), helpers + 1,
            error.what());
    }
}

CopyTeam::~CopyTeam() {
    {
        MutexLock lock(mutex_);
        stopping_ = true;
    }
    has_work_.notify_all();
}

void CopyTeam::take() {
    while (next_ < count_) {
        const size_t mine = next_++;
        const auto* work = work_;
        mutex_.unlock();
        std::exception_ptr thrown;
        try {
            (*work)(mine);
        } catch (...) {
            thrown = std::current_exception();
        }
        mutex_.lock();
        if (thrown && !thrown_) thrown_ = thrown;
        if (++finished_ == count_) done_.notify_all();
    }
}

void CopyTeam::help(const std::stop_token&) {
    MutexLock lock(mutex_);
    while (!stopping_) {
        while (!stopping_ && next_ >= count_) has_work_.wait(lock);
        take();
    }
}

void CopyTeam::run(size_t count, const std::function<void(size_t)>& work) {
    MutexLock lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = finished_ = 0;
    has_work_.notify_all();
    take();
    while (finished_ != count_) done_.wait(lock);
    count_ = next_ = 0;
    work_ = nullptr;
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

}  // namespace tailrace::internal
