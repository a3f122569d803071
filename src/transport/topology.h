// Topology: which ranks share a machine, and so memory, a node-local tier and one background. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tailrace::internal {

// Nodes are numbered by their lowest rank. Ranks of a node ascend. The representative is the
// lowest.
struct Topology {
    std::vector<int> node_of_rank;
    std::vector<std::vector<int>> ranks_of_node;
    int node_count() const { return static_cast<int>(ranks_of_node.size()); }
    int representative(int node) const { return ranks_of_node[static_cast<size_t>(node)].front(); }
    bool operator==(const Topology&) const = default;
};
// hosts[r] is rank r's machine. If ranks_per_node is 0, a node is a machine. Otherwise consecutive
// ranks of one machine form several nodes of that many ranks; the last may have fewer.
Topology make_topology(const std::vector<std::string>& hosts, uint32_t ranks_per_node);

}  // namespace tailrace::internal
