// Recovery: which captured epochs of an earlier run go on their way to the shared directory. Pure.
#pragma once

#include <vector>

#include "capture/local_tier.h"
#include "format/epoch_key.h"

namespace tailrace::internal {

// Captured epochs that should reach the shared tier now, ascending: complete, newer than the newest
// committed one, and meant for the shared tier or the newest of all; those left behind (format/lineage.h)
// count for nothing, captured or committed. `unclean`: epochs whose old files could not be removed from the
// shared tier, so that they must not be written again.
std::vector<LocalEpoch> choose_recoveries(const std::vector<LocalEpoch>& captured,
                                          const std::vector<EpochKey>& committed,
                                          const std::vector<EpochKey>& unclean);

}  // namespace tailrace::internal
