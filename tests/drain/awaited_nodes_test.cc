#include "drain/awaited_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Nodes = std::vector<AwaitedNodes>;

TEST(AwaitedNodesTest, NodesAreNamedOnceAndInOrder) {
    EXPECT_THAT(texts_of(merge_awaited({{10, 10, "b"}, {0, 3}, {2, 2}, {9, 9, "a"}, {10, 10}})),
                ElementsAre("node 2", "node 9 (a)", "node 10 (b)"));
    EXPECT_THAT(texts_of(merge_awaited({{8, 15}, {7, 7, "a"}, {8, 15}})),
                ElementsAre("node 7 (a)", "some of nodes 8 to 15"));
    EXPECT_THAT(merge_awaited({}), IsEmpty());
}

TEST(AwaitedNodesTest, ANodeOfARangeIsFoundBehindALargerRange) {
    EXPECT_THAT(texts_of(merge_awaited({{0, 7}, {0, 3}, {5, 5}})),
                ElementsAre("some of nodes 0 to 3", "node 5"));
}

TEST(AwaitedNodesTest, AHostDoesNotChangeWhoIsMeant) {
    EXPECT_THAT(merge_awaited({{1, 1, "3 (of 4), some of nodes 2 to 9"}, {2, 9}}),
                ElementsAre(AwaitedNodes{1, 1, "3 (of 4), some of nodes 2 to 9"}, AwaitedNodes{2, 9}));
    EXPECT_EQ(to_string(Nodes{{1, 1, "a"}, {2, 9}}), "node 1 (a), some of nodes 2 to 9");
}

}  // namespace
}  // namespace tailrace::internal
