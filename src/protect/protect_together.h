// ProtectTogether: protects an epoch's captured parts in collective calls, for transports that allow
// no communication in the background. protector.h does the same with messages.
//
// Every node sends its columns to the nodes that keep parity over them (partner: its part to its
// keeper), block by block, and these sum up and write. So each node's link carries K times its part
// out, and as much in, whatever the size of the set. A ring would carry the same, and would wait for
// every node in turn. Memory: about together_bytes per node.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "protect/protect_file.h"
#include "protect/protect_object.h"
#include "protect/sets.h"
#include "storage/storage.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

inline constexpr uint64_t together_bytes = 8 << 20;

struct ProtectWork {
    EpochIdentity identity;
    std::vector<std::vector<StreamInfo>> parts;  // by node: what each has captured, in any order
    // The file of each of this node's parts, by rank. Only representatives need them.
    std::vector<std::pair<uint32_t, std::string>> paths;
};

struct ProtectSettings {
    std::string directory;       // this node's, of the node-local tier
    bool sync = false;           // setting local_sync
    uint64_t bandwidth_cap = 0;  // bytes per second that a node sends; 0: no cap
};

struct ProtectedTogether {
    // The same on every rank. Ok: every node of a set of several has its object. Otherwise no node has
    // one, and the epoch is as safe as before.
    Status status;
    // This rank's, if it is a representative.
    uint64_t sent_bytes = 0;
    uint64_t written_bytes = 0;  // of the object
};

// Collective.
ProtectedTogether protect_together(Transport& transport, Storage& local, const Topology& topology,
                                   const Sets& sets, const ProtectWork& work,
                                   const ProtectSettings& settings);

// A node's logical part in these files. corrupt if one is missing.
Result<std::shared_ptr<LogicalPart>> logical_part(Storage& storage, const MemberParts& member,
                                                  const std::vector<std::pair<uint32_t, std::string>>& paths);

}  // namespace tailrace::internal
