// RecentKeys: remembers the last epochs that are over, so that a late message about one is not taken for
// news of an epoch to come. Bounded: a message is at most a few epochs late.
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
