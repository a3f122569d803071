#include "transport/topology.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace tailrace::internal {

Topology make_topology(const std::vector<std::string>& hosts, uint32_t ranks_per_node) {
    std::map<std::string, std::vector<int>> ranks_of_host;
    for (size_t rank = 0; rank < hosts.size(); ++rank)
        ranks_of_host[hosts[rank]].push_back(static_cast<int>(rank));

    Topology topology;
    for (auto& [host, ranks] : ranks_of_host) {
        const size_t size = ranks_per_node == 0 ? ranks.size() : ranks_per_node;
        for (size_t first = 0; first < ranks.size(); first += size) {
            const size_t last = std::min(ranks.size(), first + size);
            topology.ranks_of_node.emplace_back(ranks.begin() + static_cast<ptrdiff_t>(first),
                                                ranks.begin() + static_cast<ptrdiff_t>(last));
        }
    }
    std::sort(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
    topology.node_of_rank.resize(hosts.size());
    for (int node = 0; node < topology.node_count(); ++node) {
        for (int rank : topology.ranks_of_node[static_cast<size_t>(node)])
            topology.node_of_rank[static_cast<size_t>(rank)] = node;
    }
    return topology;
}

}  // namespace tailrace::internal
