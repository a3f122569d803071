// JobContext: what a session knows about the job and its own place in it. It is settled when the
// session is opened and does not change while the session's threads run, so any thread may read it
// without a lock. (close() gives shared_lock back when these threads have ended.)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array/array_summary.h"
#include "capture/local_tier.h"
#include "config/config.h"
#include "format/epoch_key.h"
#include "protect/sets.h"
#include "storage/storage.h"
#include "threads/throttle.h"
#include "transport/topology.h"
#include "transport/transport.h"
#include "when/stop_signals.h"

namespace tailrace::internal {

struct JobContext {
    Config config;  // complete
    std::shared_ptr<Transport> transport;
    std::shared_ptr<Storage> local, shared;
    std::shared_ptr<DirectoryLock> shared_lock;  // rank 0's, where the file system can lock

    std::vector<std::string> hosts;  // by rank
    Topology topology;
    int node = 0;  // this rank's
    LocalTier tier;
    Sets sets;                         // which nodes protect each other; none without setting redundancy
    std::vector<std::string> domains;  // the nodes' failure domains; none without setting redundancy
    uint32_t run = 0;
    uint64_t run_uid = 0;  // a random number, which tells apart runs that have the same `run`
    uint64_t block_bytes = 4096;
    uint64_t stripe_align = 0;
    ArrayPoints points{0};                       // drawn from run_uid
    WorkingName working_name = unfinished_name;  // of shared files
    // Of shared files: the permission bits that the program's umask leaves. An agent or a drain writes
    // with these. 0: not known.
    uint32_t file_rights = 0;
    // On what this node writes to shared files, where one aggregator follows another. Null: the setting's.
    std::shared_ptr<BandwidthCap> cap;
    std::shared_ptr<StopSignals> signals;  // null: none are watched

    int rank() const { return transport->rank(); }
    int rank_count() const { return transport->size(); }
    int node_count() const { return topology.node_count(); }
    // The rank that runs the background of this rank's node.
    int representative() const { return topology.representative(node); }
    bool is_representative() const { return representative() == rank(); }
    // Rank 0 decides for the job and looks after the shared directory.
    bool is_root() const { return rank() == 0; }
    const std::vector<int>& ranks_of_own_node() const {
        return topology.ranks_of_node[static_cast<size_t>(node)];
    }
};

// A signal that has asked this rank to stop, as a reason; nothing if none has.
std::optional<std::string> stop_signal_of(const JobContext& context);

}  // namespace tailrace::internal
