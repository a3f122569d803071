// CopyTeam: threads that share a number of equal pieces of work with the caller.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <stop_token>
#include <vector>

#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal {

// Not thread-safe: one run() at a time.
class CopyTeam {
  public:
    explicit CopyTeam(size_t helpers);
    ~CopyTeam();
    // Calls work(i) for every i below count, from the caller and the helpers. Returns when all calls are
    // over, because `work` uses what its maker has on the stack. If calls threw, the first exception is
    // thrown on.
    void run(size_t count, const std::function<void(size_t)>& work);
    size_t threads() const { return helpers_.size() + 1; }

  private:
    void help(const std::stop_token& stop);
    // Works on what is due. The mutex is held, and given away during each piece of work.
    void take() REQUIRES(mutex_);

    Mutex mutex_;
    Condition has_work_, done_;
    const std::function<void(size_t)>* work_ GUARDED_BY(mutex_) = nullptr;
    size_t count_ GUARDED_BY(mutex_) = 0;
    size_t next_ GUARDED_BY(mutex_) = 0;
    size_t finished_ GUARDED_BY(mutex_) = 0;
    std::exception_ptr thrown_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<Worker> helpers_;  // last: they use the members above
};

}  // namespace tailrace::internal
