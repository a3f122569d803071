// Finds what a copy of a shared directory leaves behind: epochs that lie in node-local tiers and
// are newer than the newest complete epoch of the directory. The tiers of this node are searched.
// For other nodes, the records of sessions tell (docs/records.md).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "drain/awaited_nodes.h"
#include "epoch_directory.h"
#include "kept_sets.h"

namespace tailrace::internal::tool {

struct NodeLocalEpoch {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;  // of the parts on this node
    // Counts of the parts on this node. No ranks if only a record tells of the epoch.
    uint32_t ranks_here = 0, rank_count = 0;
    bool for_shared = true;                // false: the epoch was meant to stay there
    std::vector<std::string> directories;  // that hold the parts
    std::string captured_for;  // another path, if the directory was moved or copied from there; else empty
    // The nodes that have to run `tailrace drain`, if the epoch has a plan record here; else empty.
    std::vector<AwaitedNodes> waiting_for;
    std::vector<KeptSet> kept;  // what protect objects on this node say of it
    std::string host;           // of the session whose record tells of the epoch; empty: no record does
    std::string other_tier;  // the node-local directory, if `tailrace drain` must be told of it; else empty
    bool in_use = false;     // a process has locked one of `directories`

    std::string text() const;
};

// `there`: the epochs of the directory. `local_dirs`: tiers to search in addition to those that
// this user's settings and the records of the directory's sessions name. The result ascends by
// (job, key). What cannot be read is passed over.
std::vector<NodeLocalEpoch> find_node_local(Storage& storage, const std::string& shared_dir,
                                            const std::string& job, const std::vector<ListedEpoch>& there,
                                            const std::vector<std::string>& local_dirs);

// The tiers that this user's settings, and the records of the directory's sessions, name, and `local_dir` if
// it is not empty. Each once, under its real path.
std::set<std::string> named_tiers(Storage& storage, const std::string& shared_dir,
                                  const std::string& local_dir);

}  // namespace tailrace::internal::tool
