// Opening: the first steps of a session. After each step all ranks agree before any goes on.
//
//   1. Settings that must be equal are compared. The topology follows from the hosts.
//   2. Every representative asks the agent process of its node, if there is one, to let go of its
//      locks.
//   3. Rank 0 makes, locks and cleans the shared directory. Every representative makes and locks
//      its directory of the node-local tier.
//   4. The run gets its number, which is above every number seen in either tier.
//
// After these steps the session judges what earlier runs have left (old_epochs.h), and starts the
// background (background.h).
#pragma once

#include <memory>
#include <vector>

#include "agent/agent_link.h"
#include "agent/job_context.h"
#include "base/status.h"
#include "shared/inventory.h"

namespace tailrace::internal {

struct Opening {
    JobContext context;
    std::unique_ptr<DirectoryLock> local_lock;  // a representative's, of its node's directory
    std::unique_ptr<AgentLink> agent;           // a representative's, if its node has an agent process
    bool agent_is_late = false;                 // there is one, and it still holds locks of an earlier run
    SharedInventory inventory;                  // the same on every rank
    // The parts of earlier runs that this node looks after. Only representatives have some.
    std::vector<KnownPart> old_parts;
};

// Collective; the outcome is the same on every rank.
Result<Opening> open_directories(Config config, std::shared_ptr<Transport> transport,
                                 std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared,
                                 AgentDoor* agents);

// Rank 0 cleans the shared directory again, which the session has locked. Collective; the outcome is
// the same on every rank.
Result<SharedInventory> look_into_shared(const JobContext& context);

}  // namespace tailrace::internal
