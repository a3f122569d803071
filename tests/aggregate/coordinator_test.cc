// The fate of an epoch, decided from messages alone.
#include "aggregate/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const EpochKey key{4, 1};

class CoordinatorTest : public testing::Test {
  protected:
    CoordinatorTest() {
        PlanSettings settings;
        settings.chunk_bytes = 4096;
        settings.leaders_per_file = 2;
        Coordinator::Effects effects;
        effects.tell = [this](int node, const AggregatorMessage& message) {
            if (node == 2) told.emplace_back(name_of(message));
            if (const auto* result = std::get_if<ResultMessage>(&message)) results.push_back(result->status);
        };
        effects.discard = [this](auto) { did.push_back("discard"); };
        coordinator = std::make_unique<Coordinator>(group_of_node(0, 3, 1), settings, effects);
    }
    OfferMessage offer(int node, uint64_t bytes) {
        return {key, "job", 1, 3, {node, {{static_cast<uint32_t>(node), bytes, 0, 0}}}, Status()};
    }
    void offer_all() {
        for (int node : {2, 0, 1}) coordinator->take(node, offer(node, 100 * static_cast<uint64_t>(node)));
    }
    // The leader has written so many bytes of its own rank.
    void segment(int node, Status status, uint64_t bytes) {
        WrittenChunks written;
        written.add(static_cast<uint32_t>(node), 0, bytes);
        coordinator->take(node, SegmentMessage{key, std::move(status), written});
    }

    std::unique_ptr<Coordinator> coordinator;
    std::vector<std::string> told;  // to node 2
    std::vector<Status> results;    // to all nodes
    std::vector<std::string> did;
    const Status failure{Code::io_error, "the disk is gone"};
};

TEST_F(CoordinatorTest, PlanFollowsTheLastOffer) {
    coordinator->take(0, offer(0, 5));
    coordinator->take(2, offer(2, 5));
    EXPECT_THAT(told, IsEmpty());
    coordinator->take(1, offer(1, 5));
    EXPECT_THAT(told, ElementsAre("PLAN"));
}

TEST_F(CoordinatorTest, ResultIsOkOnlyAfterAllSegments) {
    offer_all();
    segment(2, Status(), 200);
    EXPECT_THAT(results, IsEmpty());
    segment(1, Status(), 100);
    EXPECT_THAT(did, IsEmpty());
    ASSERT_EQ(results.size(), 3u);
    EXPECT_TRUE(results[0].ok());
    EXPECT_TRUE(coordinator->idle());
}

TEST_F(CoordinatorTest, SegmentsThatMissBytesFailTheEpoch) {
    offer_all();
    segment(2, Status(), 200);
    segment(1, Status(), 99);
    EXPECT_THAT(did, ElementsAre("discard"));
    coordinator->discarded(key);
    ASSERT_EQ(results.size(), 3u);
    EXPECT_THAT(results[0].message(), HasSubstr("299 of 300 bytes"));
}

// Leader 0 has written its own chunk twice, and nobody that of node 2.
TEST_F(CoordinatorTest, AChunkThatWasWrittenTwiceDoesNotMakeUpForAnother) {
    for (const int node : {0, 1, 2}) coordinator->take(node, offer(node, 100));
    WrittenChunks twice;
    twice.add(0, 0, 100);
    twice.add(0, 0, 100);
    coordinator->take(0, SegmentMessage{key, Status(), twice});
    segment(1, Status(), 100);
    EXPECT_THAT(did, ElementsAre("discard"));
    coordinator->discarded(key);
    ASSERT_FALSE(results.empty());
    EXPECT_THAT(results[0].message(), HasSubstr("300 of 300 bytes, but not those of the plan"));
}

TEST_F(CoordinatorTest, FilesAreRemovedOnlyWhenEveryLeaderHasReported) {
    offer_all();
    coordinator->take(FailedMessage{key, failure});
    EXPECT_THAT(told, ElementsAre("PLAN", "ABORT"));
    segment(2, failure, 0);
    EXPECT_THAT(did, IsEmpty());
    segment(1, Status(), 100);
    EXPECT_THAT(did, ElementsAre("discard"));
    EXPECT_THAT(results, IsEmpty());
    coordinator->discarded(key);
    EXPECT_THAT(told, ElementsAre("PLAN", "ABORT", "RESULT"));
    EXPECT_EQ(results[0].message(), failure.message());
    EXPECT_EQ(results[0].code(), Code::io_error);
}

TEST_F(CoordinatorTest, FirstFailureIsTheEpochs) {
    offer_all();
    segment(2, failure, 0);
    coordinator->take(FailedMessage{key, Status(Code::no_space, "later")});
    segment(1, Status(Code::aborted, "later still"), 0);
    coordinator->discarded(key);
    EXPECT_EQ(results[0].message(), failure.message());
}

TEST_F(CoordinatorTest, FailureAfterEverythingIsCommittedChangesNothing) {
    offer_all();
    segment(2, Status(), 200);
    segment(1, Status(), 100);
    coordinator->take(FailedMessage{key, failure});
    ASSERT_EQ(results.size(), 3u);
    EXPECT_TRUE(results[0].ok());
}

TEST_F(CoordinatorTest, RefusedOfferEndsTheEpochAtOnceAndNamesTheNode) {
    coordinator->take(0, offer(0, 5));
    OfferMessage refused = offer(1, 0);
    refused.refused = failure;
    coordinator->take(1, refused);
    EXPECT_THAT(told, ElementsAre("RESULT"));
    EXPECT_EQ(results[0].message(), "node 1: the disk is gone");
    coordinator->take(2, offer(2, 5));  // late: no second result, nothing left behind
    EXPECT_THAT(told, ElementsAre("RESULT"));
    EXPECT_TRUE(coordinator->idle());
}

TEST_F(CoordinatorTest, FailureOfAnEpochNobodyOfferedIsToldToAll) {
    coordinator->take(FailedMessage{key, failure});
    EXPECT_THAT(told, ElementsAre("RESULT"));
    offer_all();
    EXPECT_THAT(told, ElementsAre("RESULT"));
}

TEST_F(CoordinatorTest, OffersOfAnotherRunOrAnotherNodeFailTheEpoch) {
    OfferMessage other = offer(1, 5);
    other.run_uid = 2;
    coordinator->take(0, offer(0, 5));
    coordinator->take(1, other);
    ASSERT_EQ(results.size(), 3u);
    EXPECT_THAT(results[0].message(), HasSubstr("do not belong to the same run"));

    OfferMessage false_node = offer(1, 5);
    false_node.key = {5, 1};
    coordinator->take(2, false_node);
    ASSERT_EQ(results.size(), 6u);
    EXPECT_THAT(results[3].message(), HasSubstr("came from node 2"));
}

TEST_F(CoordinatorTest, ReportsOfOthersThanLeadersAndRepeatedOnesDoNotCount) {
    offer_all();
    segment(0, Status(), 300);
    segment(2, Status(), 200);
    segment(2, Status(), 200);
    EXPECT_THAT(results, IsEmpty());
    segment(1, Status(), 100);
    EXPECT_EQ(results.size(), 3u);
}

}  // namespace
}  // namespace tailrace::internal
