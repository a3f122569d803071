// What a copy of a shared directory leaves behind: epochs that are newer than what is complete in it and lie
// in node-local tiers. This node's tiers are looked into; of other nodes the records of sessions tell
// (docs/records.md).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "epoch_directory.h"

namespace tailrace::internal::tool {

struct NodeLocalEpoch {
    std::string job;
    EpochKey key;
    // Of the parts on this node; no ranks when only a record tells of the epoch.
    uint32_t ranks_here = 0, rank_count = 0;
    bool for_shared = true;                // false: it was meant to stay there
    std::vector<std::string> directories;  // with the parts
    std::string captured_for;  // another path: the directory was moved or copied from there; else empty
    std::string host;          // of the session whose record tells of it; empty: none does

    std::string text() const;
};

// `there`: the epochs of the directory. `local_dirs`: where to look, besides where the settings of this user
// and the records of the directory's sessions say. Ascending by (job, key). What cannot be read is passed
// over.
std::vector<NodeLocalEpoch> find_node_local(Storage& storage, const std::string& shared_dir,
                                            const std::string& job, const std::vector<JudgedEpoch>& there,
                                            const std::vector<std::string>& local_dirs);

}  // namespace tailrace::internal::tool
