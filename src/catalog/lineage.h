// Lineage: which of a directory's epochs lead to where the program is now.
//
// A program may go back to an older epoch, or begin anew in the same directory, and save on from
// there as a new run. What earlier runs had saved beyond that point is left behind. It can be
// restored by its number, but the program did not reach it last. Numbers decide, never clocks.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "format/epoch_key.h"

namespace tailrace::internal {

class Lineage {
  public:
    // `whole`: the epochs that are complete, in any order.
    explicit Lineage(const std::vector<EpochKey>& whole);

    // Whether a later run has a whole epoch at `key`'s number or below it.
    bool left_behind(EpochKey key) const;

    // The order in which a restore of the newest epoch tries them: first those not left behind,
    // then those left behind, each descending by key.
    bool goes_first(EpochKey a, EpochKey b) const;

  private:
    std::map<uint32_t, uint64_t> least_from_;  // by run: the least epoch of that run and all later ones
};

}  // namespace tailrace::internal
