// Opening: the first steps of a session; after each, all ranks agree before anyone goes on.
//
//   1. settings that must be equal are compared, the topology follows from the hosts;
//   2. rank 0 makes, locks and cleans the shared directory; every representative makes and locks its
//      directory of the node-local tier;
//   3. the run gets its number, above every number seen in either tier.
//
// What earlier runs have left is judged after that (old_epochs.h), and the background begins (background.h).
#pragma once

#include <memory>
#include <vector>

#include "agent/job_context.h"
#include "base/status.h"
#include "shared/inventory.h"

namespace tailrace::internal {

struct Opening {
    JobContext context;
    std::unique_ptr<DirectoryLock> local_lock;  // a representative's, of its node's directory
    SharedInventory inventory;                  // the same on every rank
    std::vector<KnownPart> old_parts;  // of earlier runs, that this node looks after (representatives)
};

// Collective; the same outcome on every rank.
Result<Opening> open_directories(Config config, std::shared_ptr<Transport> transport,
                                 std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared);

}  // namespace tailrace::internal
