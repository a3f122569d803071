// The node-local tier: which directories it has, which captured parts lie in them, and which parts
// may be removed.
//
// Every node has a directory of its own, <local_dir>/<job>-<hash of shared_dir>.node<number>, so
// that jobs with different shared directories do not meet. If two paths have the same hash all the
// same, the path in each part's header tells whose part it is. Version 0.1.0 used a shorter hash
// and no path in its headers; the directories that it left are still found.
//
// A machine may hold directories of nodes that this session does not have, because the layout has
// changed. The lowest of its nodes looks after those.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "catalog/catalog.h"
#include "storage/storage.h"
#include "transport/topology.h"

namespace tailrace::internal {

struct LocalTier {
    std::string local_dir;
    std::string prefix;      // the directories' names begin with it; it ends with ".node"
    std::string old_prefix;  // the prefix that version 0.1.0 would use
    // The path of the shared directory in the headers of this tier's parts.
    std::string shared_text;
    std::string directory(int node) const;
    // Whether a part belongs to this tier: its header names this shared directory, or none (0.1.0).
    bool owns(const PartHeader& header) const;
};
LocalTier local_tier(const std::string& local_dir, const std::string& shared_dir, const std::string& job);

// The directories on this machine that `node` looks after: its own, and, if `node` is the lowest
// node on this machine, those of nodes that are not on this machine now. `hosts` is indexed by
// rank. Empty if local_dir is missing.
Result<std::vector<std::string>> directories_of_node(Storage& storage, const LocalTier& tier, int node,
                                                     const Topology& topology,
                                                     const std::vector<std::string>& hosts);

// Lists one of these directories, without parts of another shared directory. If the directory
// cannot be trusted, because it is another user's (storage/own_directories.h), logs a warning and
// returns an empty list.
Result<LocalListing> list_tier(Storage& storage, const LocalTier& tier, const std::string& directory,
                               const std::string& job);

// What the name of a leftover says. Empty if it is not the name of a part.
std::optional<PartFileName> part_file_name(const Leftover& leftover);

// A captured part anywhere in the job, as its node's representative found it.
struct KnownPart {
    int node = 0;  // the node that looks after it
    std::string path;
    PartHeader header;
};
// The parts that a node has found, as it tells the others.
struct OfferedParts {
    std::vector<CapturedPart> parts;
    std::string damaged;  // what is wrong with a part that was complete once; empty: no such part
};
struct KnownParts {
    std::vector<KnownPart> parts;
    std::string damaged;
};
std::vector<std::byte> encode_parts(const OfferedParts& offered);
Result<KnownParts> decode_parts(std::span<const std::byte> bytes, int node);

// All parts of one epoch that belong together.
struct LocalEpoch {
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    uint64_t sequence = 0;
    bool for_shared = true;
    std::vector<KnownPart> parts;  // one for each rank that has one, ascending by rank
    bool complete() const { return parts.size() == rank_count; }
};
// The epochs in ascending order of keys. If epochs have the same key but different run_uid or
// rank_count, the most complete one counts. If several nodes have a rank's part, the lowest node's
// is taken.
std::vector<LocalEpoch> gather_local_epochs(const std::vector<KnownPart>& parts);

// Chooses the captured epochs to remove, ascending. These stay:
//   - the `keep` safe epochs that a restore of the newest would try first (catalog/lineage.h; safe
//     and unheard epochs count as whole there);
//   - of the epochs that outlive a node, the newest, if it is not in the shared tier: until a newer one
//     outlives a node, it is all that is left when a node is lost;
//   - epochs in use;
//   - epochs newer than the newest safe one, unless they are useless;
//   - of the unheard epochs, `keep` and one more, since the newest may lack a rank that died during
//     its capture.
// Bytes are checked only when they are read. So an epoch that only the shared tier has does not
// count towards `keep`, and what was captured before it stays.
struct LocalAge {
    EpochKey key;
    bool safe = false;       // restorable on all ranks, as far as heads and lengths tell
    bool in_use = false;     // not ended: a flush may still read it
    bool useless = false;    // never going to be whole
    bool unheard = false;    // this session will not learn whether it is whole
    bool elsewhere = false;  // in the shared tier only
    enum class AfterLoss { gone, rebuilt, shared };  // of a node: gone, or it comes back from the tier named
    AfterLoss after_loss = AfterLoss::gone;
};
std::vector<EpochKey> choose_local_removals(std::vector<LocalAge> epochs, uint32_t keep);

}  // namespace tailrace::internal
