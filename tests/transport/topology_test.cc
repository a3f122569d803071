// Which ranks belong to which node.
#include "transport/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "aggregate/seeds.h"

namespace tailrace::internal {
namespace {

using testing::ElementsAre;

TEST(TopologyTest, NodeIsMachineWithoutRanksPerNode) {
    const Topology topology = make_topology({"b", "b", "a", "a", "a"}, 0);
    EXPECT_THAT(topology.ranks_of_node, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4)));
    EXPECT_THAT(topology.node_of_rank, ElementsAre(0, 0, 1, 1, 1));
    EXPECT_EQ(topology.representative(1), 2);
}

TEST(TopologyTest, CyclicPlacementKeepsRanksOfOneMachineTogether) {
    const Topology topology = make_topology({"a", "b", "a", "b", "a", "b", "a", "b"}, 0);
    EXPECT_THAT(topology.ranks_of_node, ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST(TopologyTest, RanksPerNodeCutsMachineIntoSeveralNodesAndTheLastMayBeSmaller) {
    const Topology topology = make_topology({"a", "a", "a", "a", "a"}, 2);
    EXPECT_THAT(topology.ranks_of_node, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(TopologyTest, RanksPerNodeNeverPutsTwoMachinesIntoOneNode) {
    const Topology topology = make_topology({"a", "b", "a", "b", "a"}, 2);
    EXPECT_THAT(topology.ranks_of_node, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3), ElementsAre(4)));
    EXPECT_THAT(topology.node_of_rank, ElementsAre(0, 1, 0, 1, 2));
}

TEST(TopologyTest, EveryRankIsInExactlyOneNodeAndNodesAreNumberedByLowestRank) {
    for (uint64_t seed : seeds(1, 300)) {
        SCOPED_TRACE(seed);
        Random random(seed);
        std::vector<std::string> hosts(1 + below(random, 40));
        const uint64_t machines = 1 + below(random, 6);
        for (auto& host : hosts) host = std::to_string(below(random, machines));
        const auto ranks_per_node = static_cast<uint32_t>(below(random, 5));
        const Topology topology = make_topology(hosts, ranks_per_node);
        std::vector<int> seen;
        int last_representative = -1;
        for (int node = 0; node < topology.node_count(); ++node) {
            const auto& ranks = topology.ranks_of_node[static_cast<size_t>(node)];
            ASSERT_FALSE(ranks.empty());
            ASSERT_TRUE(std::is_sorted(ranks.begin(), ranks.end()));
            ASSERT_GT(topology.representative(node), last_representative);
            last_representative = topology.representative(node);
            if (ranks_per_node > 0) {
                ASSERT_LE(ranks.size(), ranks_per_node);
            }
            for (int rank : ranks) {
                ASSERT_EQ(topology.node_of_rank[static_cast<size_t>(rank)], node);
                ASSERT_EQ(hosts[static_cast<size_t>(rank)], hosts[static_cast<size_t>(ranks.front())]);
                seen.push_back(rank);
            }
        }
        std::sort(seen.begin(), seen.end());
        std::vector<int> all(hosts.size());
        std::iota(all.begin(), all.end(), 0);
        ASSERT_EQ(seen, all);
    }
}

}  // namespace
}  // namespace tailrace::internal
