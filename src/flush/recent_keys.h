// RecentKeys remembers the epochs that ended last. So a late message about one of them is not taken
// for news of an epoch to come. The number is bounded, because a message is late by a few epochs at
// most.
#pragma once

#include <cstddef>
#include <deque>
#include <set>

#include "format/epoch_key.h"

namespace tailrace::internal {

class RecentKeys {
  public:
    void add(EpochKey key) {
        if (!keys_.insert(key).second) return;
        order_.push_back(key);
        if (order_.size() > bound) {
            keys_.erase(order_.front());
            order_.pop_front();
        }
    }
    bool has(EpochKey key) const { return keys_.count(key) > 0; }

  private:
    static constexpr size_t bound = 1024;
    std::set<EpochKey> keys_;
    std::deque<EpochKey> order_;
};

}  // namespace tailrace::internal
