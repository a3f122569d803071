// Recovery: decides which captured epochs of an earlier run are flushed. Pure.
#pragma once

#include <vector>

#include "capture/local_tier.h"
#include "format/epoch_key.h"

namespace tailrace::internal {

// Returns the captured epochs to flush now, ascending. An epoch is flushed if it is complete, is
// newer than the newest committed one, and either was meant for the shared tier or is the newest of
// all. Epochs that were left behind (catalog/lineage.h), captured or committed, do not count.
// `unclean` are epochs whose old files could not be removed from the shared tier, so they must not
// be written again.
std::vector<LocalEpoch> choose_recoveries(const std::vector<LocalEpoch>& captured,
                                          const std::vector<EpochKey>& committed,
                                          const std::vector<EpochKey>& unclean);

}  // namespace tailrace::internal
