// OldEpochs: what earlier runs have left in the node-local tiers, judged when a session begins.
#pragma once

#include <optional>
#include <vector>

#include "agent/job_context.h"
#include "base/status.h"
#include "capture/local_tier.h"
#include "shared/inventory.h"

namespace tailrace::internal {

struct OldEpochs {
    std::vector<LocalEpoch> to_flush;   // captured, sound, and to be brought to the shared directory now
    std::vector<EpochKey> safe;         // could be restored, when the session began
    std::optional<EpochKey> elsewhere;  // the one of them that is in the shared tier only, if there is one
    std::vector<EpochKey> refused;      // captured whole, but their arrays cannot be put together
};

// All parts that the representatives look after, as every rank then knows them. Collective.
Result<KnownParts> gather_parts(const JobContext& context);

// Judges the arrays of every captured epoch, chooses what is to be flushed (recovery.h), reads every byte of
// that, and makes room for it in the shared directory. Collective; the same outcome on every rank.
Result<OldEpochs> judge_old_epochs(const JobContext& context, const SharedInventory& inventory);

}  // namespace tailrace::internal
