// FailedShares: the shares of epochs that a process could not write, and when it tries them again. Every try
// reads what the node has captured. So a share rests after a failure, and twice as long after each further
// one.
//
// One thread at a time calls.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include "base/status.h"
#include "drain/share_id.h"
#include "threads/executor.h"

namespace tailrace::internal {

struct ShareFailure {
    Status why;
    // The captured parts are missing or damaged, so the node itself can never write the share.
    bool parts_unusable = false;
};

class FailedShares {
  public:
    using Time = SteadyClock::time_point;
    static constexpr std::chrono::seconds first_rest{10}, longest_rest{300};

    void failed(const ShareId& share, const ShareFailure& failure, Time now);
    void forget(const ShareId& share) { rests_.erase(share); }
    // Somebody asks for it: each is tried once more, whenever it has failed.
    void end_rests();

    // Why a share that rests has failed. Empty: it may be tried.
    std::optional<ShareFailure> resting(const ShareId& share, Time now) const;

  private:
    struct Rest {
        ShareFailure failure;
        std::chrono::seconds length{0};
        Time until;
    };
    std::map<ShareId, Rest> rests_;
};

}  // namespace tailrace::internal
