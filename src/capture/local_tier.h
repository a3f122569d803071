// The node-local tier: which directories it has, which captured parts lie in them, and which may go.
//
// Every node has a directory of its own, <local_dir>/<job>-<hash of shared_dir>.node<number>, so that jobs
// with different shared directories do not meet; should two paths have the same hash all the same, the path
// in each part's header tells whose it is. Version 1.0 had a shorter hash and no path in its headers: what it
// left under its names is found. A machine may hold directories of nodes that this session does not have (the
// layout has changed); one of its nodes looks after those.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/catalog.h"
#include "storage/storage.h"
#include "transport/topology.h"

namespace tailrace::internal {

struct LocalTier {
    std::string local_dir;
    std::string prefix;       // of the directories' names, up to and with ".node"
    std::string old_prefix;   // the same as version 1.0 made it
    std::string shared_text;  // what the headers of its parts say of the shared directory
    std::string directory(int node) const;
    // By its header: of this shared directory, or of version 1.0, which does not say.
    bool owns(const PartHeader& header) const;
};
LocalTier local_tier(const std::string& local_dir, const std::string& shared_dir, const std::string& job);

// The node directories of this tier on this machine that `node` looks after: its own, and those whose node
// is not on this machine now, if `node` is the lowest here. `hosts` by rank. Nothing when local_dir is
// missing.
Result<std::vector<std::string>> directories_of_node(Storage& storage, const LocalTier& tier, int node,
                                                     const Topology& topology,
                                                     const std::vector<std::string>& hosts);

// What lies in one of these directories, less what belongs to another shared directory. Nothing, with a
// warning, when the directory is not believed (another user's, see storage/own_directories.h).
Result<LocalListing> list_tier(Storage& storage, const LocalTier& tier, const std::string& directory,
                               const std::string& job);

// What the name of something that is no whole part says; nothing when it is no part's name.
std::optional<PartFileName> part_file_name(const Leftover& leftover);

// A captured part somewhere in the job, as its node's representative found it.
struct KnownPart {
    int node = 0;  // that looks after it
    std::string path;
    PartHeader header;
};
// What a node has to offer, as it is told to the others.
struct OfferedParts {
    std::vector<CapturedPart> parts;
    std::string damaged;  // what is wrong with a part that was whole once; empty: there is none
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
// Ascending by key; of namesakes with different run_uid or rank_count the most complete one counts. When
// several nodes have a rank's part, the lowest node's is taken.
std::vector<LocalEpoch> gather_local_epochs(const std::vector<KnownPart>& parts);

// What of the node-local tier may be removed: everything but the `keep` safe epochs that a restore of the
// newest would try first (format/lineage.h; what is safe or unheard of counts as whole), epochs in use,
// and epochs newer than the newest safe one; of those nothing more is heard of, `keep` and one more stay (the
// newest may lack a rank that died while it was captured). `safe`: restorable as a whole, as far as heads and
// lengths tell. Bytes are only checked when they are read, so what lies in the shared tier alone takes no
// place in this one: what was captured before it stays.
// Ascending.
struct LocalAge {
    EpochKey key;
    bool safe = false;
    bool in_use = false;     // unfinished: a flush may still read it
    bool useless = false;    // known never to become whole
    bool unheard = false;    // whether it is whole will not be known in this session
    bool elsewhere = false;  // in the shared tier only
};
std::vector<EpochKey> choose_local_removals(std::vector<LocalAge> epochs, uint32_t keep);

}  // namespace tailrace::internal
