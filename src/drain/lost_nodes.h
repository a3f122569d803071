// LostNodes: which nodes a process takes for lost, because their share of an epoch was missing for a
// while. That decides only when another node writes such a share. Whether it may is decided by a lock
// (shared/takeover.h), so nothing is harmed if a node was only late, or comes back.
//
// It counts from when this process has first seen that a share is missing, by a clock that only goes
// forward. One thread at a time calls.
#pragma once

#include <chrono>
#include <map>
#include <optional>

#include "drain/share_id.h"
#include "threads/executor.h"

namespace tailrace::internal {

class LostNodes {
  public:
    using Time = SteadyClock::time_point;

    explicit LostNodes(SteadyClock::duration patience) : patience_(patience) {}

    // The share is missing. Returns whether its node is taken for lost by now.
    bool note_missing(const ShareId& share, Time now);
    // It could not be written. If `for_good`, a later try would not change that, and there is none;
    // otherwise the time begins anew.
    void failed(const ShareId& share, bool for_good, Time now);
    bool given_up(const ShareId& share) const;
    void forget(const ShareId& share) { missing_.erase(share); }

    // When the next share that is missing has been so for long enough. Empty: there is none.
    std::optional<Time> next(Time now) const;

  private:
    struct Missing {
        Time since;
        bool given_up = false;
    };
    const SteadyClock::duration patience_;
    std::map<ShareId, Missing> missing_;
};

}  // namespace tailrace::internal
