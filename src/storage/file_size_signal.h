// While this object lives, a write of this thread beyond the limit of file sizes (RLIMIT_FSIZE)
// fails with EFBIG, instead of ending the program by SIGXFSZ. It is for the program's threads; the
// library's own threads block signals.
#pragma once

#include <signal.h>

#include <ctime>

namespace tailrace::internal {

class FileSizeSignalBlocked {
  public:
    FileSizeSignalBlocked() {
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
        sigemptyset(&signal_);
        sigaddset(&signal_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &signal_, &before_);
    }
    ~FileSizeSignalBlocked() {
        const timespec at_once{};
        if (!was_pending_) (void)sigtimedwait(&signal_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    FileSizeSignalBlocked(const FileSizeSignalBlocked&) = delete;
    FileSizeSignalBlocked& operator=(const FileSizeSignalBlocked&) = delete;

  private:
    sigset_t signal_{}, before_{};
    bool was_pending_ = false;
};

}  // namespace tailrace::internal
