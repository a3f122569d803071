// NodeLedger: which epochs all ranks of one node have captured. A pure state machine without threads, clocks
// or files; whoever drives it sends on what it says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/agent_messages.h"

namespace tailrace::internal {

class NodeLedger {
  public:
    NodeLedger(int node, size_t rank_count) : node_(node), rank_count_(rank_count) {}

    // The captures of all ranks of the node, once the last one is in; empty before.
    struct Complete {
        NodeCaptured news;
        std::vector<Captured> captures;  // in the order they came
    };
    std::optional<Complete> captured(const Captured& capture);

    // The sequence numbers from `first` on will never be complete: some rank has ended its session. What has
    // begun is reported as failed with `why`, and so is what comes later. The least `first` counts.
    std::vector<Complete> end_from(uint64_t first, const Status& why);

  private:
    Complete complete(uint64_t sequence, std::vector<Captured> captures, Status extra) const;

    int node_;
    size_t rank_count_;
    std::map<uint64_t, std::vector<Captured>> open_;  // by sequence
    std::optional<uint64_t> end_from_;
    Status end_why_;
};

// The digest of a node's arrays: those of its ranks, in their order.
Residues arrays_of_node(const ArrayPoints& points, std::vector<Captured> captures);

}  // namespace tailrace::internal
