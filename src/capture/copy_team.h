// CopyTeam: helper threads that share equal pieces of work with the caller.
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
    // Has fewer helpers if the system gives fewer threads, or memory runs out.
    explicit CopyTeam(size_t helpers);
    ~CopyTeam();
    // Calls work(i) for every i below count, from the caller and the helpers. Returns when all
    // calls have returned, because `work` uses its maker's stack. If calls threw, rethrows the
    // first exception.
    void run(size_t count, const std::function<void(size_t)>& work);
    size_t threads() const { return helpers_.size() + 1; }

  private:
    void help(const std::stop_token& stop);
    // Takes pieces until none is left. Called with the mutex held; releases it during each piece.
    void take() REQUIRES(mutex_);

    Mutex mutex_;
    Condition has_work_, done_;
    const std::function<void(size_t)>* work_ GUARDED_BY(mutex_) = nullptr;
    size_t count_ GUARDED_BY(mutex_) = 0;
    size_t next_ GUARDED_BY(mutex_) = 0;
    size_t finished_ GUARDED_BY(mutex_) = 0;
    std::exception_ptr thrown_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::vector<Worker> helpers_;  // last, because they use the members above
};

}  // namespace tailrace::internal
