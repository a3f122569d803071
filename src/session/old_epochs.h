// OldEpochs: the epochs that earlier runs have left in the node-local tiers, as judged when a session
// begins.
#pragma once

#include <optional>
#include <vector>

#include "agent/job_context.h"
#include "base/status.h"
#include "capture/local_tier.h"
#include "shared/inventory.h"

namespace tailrace::internal {

struct OldEpochs {
    std::vector<LocalEpoch> to_flush;   // captured, sound, and to be flushed now
    std::vector<EpochKey> safe;         // epochs that could be restored when the session began
    std::optional<EpochKey> elsewhere;  // the one of `safe` that only the shared tier has, if any
    std::vector<KnownPart> rebuilt;     // parts that were lost, and were written again
    struct Refused {
        EpochKey key;
        Status why;  // the same on every rank
    };
    std::vector<Refused> refused;  // captured whole, but their arrays or files do not go together
};

// All parts that the representatives look after. Every rank gets the same list. Collective.
Result<KnownParts> gather_parts(const JobContext& context);

// Rebuilds captured parts that were lost (protect/rebuild.h), judges the arrays of every captured epoch,
// chooses the epochs to flush (recovery.h), reads every byte of those, and makes room for them in the shared
// directory. Collective; the outcome is the same on every rank.
Result<OldEpochs> judge_old_epochs(const JobContext& context, const SharedInventory& inventory);

}  // namespace tailrace::internal
