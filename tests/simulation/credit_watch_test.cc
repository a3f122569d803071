// What the watch of credits says of messages that add up, and of such that do not.
#include "simulation/credit_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregate/messages.h"

namespace tailrace::internal::testing_support {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr EpochKey key{1, 1};

// Rank 0 leads; ranks 1 and 2 follow.
class CreditWatchTest : public ::testing::Test {
  protected:
    void grant(int follower, uint32_t credit) {
        watch_.posted(0, follower, encode(CreditMessage{key, credit}));
    }
    void chunk(int follower, uint32_t credit, uint64_t bytes = 100) {
        watch_.posted(follower, 0, encode(ChunkMessage{key, credit, 0, 0, bytes}));
    }
    void empty(int follower, uint32_t credit) {
        watch_.posted(follower, 0, encode(EmptyMessage{key, credit, {}}));
    }

    std::vector<std::string> said_;
    CreditWatch watch_{{5, 4096}, [this](const std::string& what) { said_.push_back(what); }};
};

TEST_F(CreditWatchTest, CreditsThatAddUpAreNotMentioned) {
    for (const uint32_t credit : {1, 2, 3, 4}) grant(1, credit);
    grant(2, 5);
    EXPECT_EQ(watch_.open(), 5u);
    chunk(1, 2, 4096);
    watch_.receive_begins(0, data_tag(2));
    watch_.receive_begins(0, data_tag(2) + 1);  // somebody else's transfer
    watch_.receive_ends(0, data_tag(2));
    empty(2, 5);
    grant(1, 2);  // the number is free again
    for (const uint32_t credit : {1, 2, 3, 4}) empty(1, credit);
    watch_.posted(1, 0, encode(SegmentMessage{key, {}, {}}));
    EXPECT_EQ(watch_.open(), 0u);
    EXPECT_THAT(said_, IsEmpty());
}

TEST_F(CreditWatchTest, ACreditIsNotGivenTwice) {
    grant(1, 7);
    grant(2, 7);
    EXPECT_THAT(said_, IsEmpty()) << "numbers are those of a pair";
    grant(1, 7);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("credit 7 to 1, who has it already")));
}

TEST_F(CreditWatchTest, AFollowerHasFewCredits) {
    for (const uint32_t credit : {1, 2, 3, 4, 5}) grant(1, credit);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("follower 1 has 5 credits")));
}

TEST_F(CreditWatchTest, OnlyOpenCreditsAreAnswered) {
    grant(1, 1);
    chunk(2, 1);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("follower 2 answers credit 1")));
    chunk(1, 1);
    empty(1, 1);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("follower 2"), HasSubstr("follower 1 answers credit 1")));
}

TEST_F(CreditWatchTest, AChunkFitsIntoABuffer) {
    grant(1, 1);
    chunk(1, 1, 4097);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("4097 bytes for a buffer of 4096")));
}

TEST_F(CreditWatchTest, CreditsAndReceivesHaveABufferEach) {
    for (const uint32_t credit : {1, 2, 3}) {
        grant(1, credit);
        chunk(1, credit);
        watch_.receive_begins(0, data_tag(credit));
    }
    grant(2, 4);
    grant(2, 5);
    EXPECT_THAT(said_, IsEmpty());
    grant(2, 6);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("3 credits open and 3 receives, and only 5 buffers")));
}

TEST_F(CreditWatchTest, WhatCannotBeDecodedIsSaid) {
    auto bytes = encode(CreditMessage{key, 1});
    bytes.pop_back();
    watch_.posted(0, 1, bytes);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("rank 0 sends what cannot be decoded")));
}

}  // namespace
}  // namespace tailrace::internal::testing_support
