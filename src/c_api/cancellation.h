// Delays pthread_cancel() inside the C interface.
#pragma once

#include <pthread.h>

namespace tailrace::internal {

// A thread that is cancelled inside a call would leave locks held and files half made, and the
// unwinding cannot pass the C interface. So the cancellation waits until the call has ended.
class CancellationDelayed {
  public:
    CancellationDelayed() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~CancellationDelayed() { pthread_setcancelstate(before_, nullptr); }
    CancellationDelayed(const CancellationDelayed&) = delete;
    CancellationDelayed& operator=(const CancellationDelayed&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace tailrace::internal
