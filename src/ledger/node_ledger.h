// NodeLedger: knows which epochs all ranks of a node have captured. It is a pure state machine
// without threads, clocks or files. Its driver sends on what it says.
//
// The captures come from other ranks. The driver has checked that a capture is of a rank of this node;
// the ledger checks that it is a new one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ledger/agent_messages.h"

namespace tailrace::internal {

class NodeLedger {
  public:
    NodeLedger(int node, size_t rank_count) : node_(node), rank_count_(rank_count) {}

    // The captures of all ranks of the node. captured() returns them with the last rank's capture,
    // and nothing before. Returns transport, and changes nothing, if the rank has told of this save, or
    // of a later one, before.
    struct Complete {
        NodeCaptured news;
        std::vector<Captured> captures;  // in order of arrival
    };
    Result<std::optional<Complete>> captured(const Captured& capture);

    // Saves with sequence numbers from `first` on will never be complete, because some rank has
    // closed its session. Those that have begun are returned as failed with `why`, and so are those
    // that begin later. If this is called more than once, the lowest `first` counts.
    std::vector<Complete> end_from(uint64_t first, const Status& why);

  private:
    Complete complete(uint64_t sequence, std::vector<Captured> captures, Status extra) const;

    int node_;
    size_t rank_count_;
    std::map<uint64_t, std::vector<Captured>> open_;  // by sequence number
    std::map<uint32_t, uint64_t> newest_of_rank_;     // the last sequence number that has come
    std::optional<uint64_t> end_from_;
    Status end_why_;
};

// Why a save fails that some rank, which has closed its session, will never make.
Status saves_ended_why();

// The digest of a node's arrays: its ranks' digests, combined in ascending order of ranks.
Residues arrays_of_node(const ArrayPoints& points, std::vector<Captured> captures);

}  // namespace tailrace::internal
