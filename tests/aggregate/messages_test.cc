// Messages survive the wire, and damaged ones are refused.
#include "aggregate/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregate/aggregator.h"
#include "aggregate/seeds.h"

namespace tailrace::internal {
namespace {

const EpochKey key{123456789012, 7};

FlushPlan sample_plan() {
    PlanSettings settings;
    settings.file_count = 2;
    settings.leaders_per_file = 2;
    settings.chunk_bytes = 8192;
    settings.stripe_align = 12'288;
    settings.placement = Placement::contiguous;
    const Group group = group_of_node(2, 4, 2);
    auto plan = make_plan("job-1", key, 0x1234567890abcdef, 9, group,
                          {{2, {{4, 70'000, 4096, 1}, {8, 0, 0, 2}}}, {3, {{5, 90'000, 8192, 3}}}}, settings);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
}

std::vector<AggregatorMessage> samples() {
    const Status failure(Code::no_space, "writing 4096 bytes: full");
    OfferMessage offer{key, "job-1", 42, 9, {3, {{5, 90'000, 8192, 3}, {6, 0, 0, 0}}}, Status()};
    OfferMessage refusal{key, "job-1", 42, 9, {3, {}}, failure};
    return {offer,
            refusal,
            PlanMessage{sample_plan()},
            CreditMessage{key, 77},
            ChunkMessage{key, 77, 5, 81'920, 8'080},
            EmptyMessage{key, 77, failure},
            EmptyMessage{key, 78, Status()},
            SegmentMessage{key, failure, {160'000, 7}},
            FailedMessage{key, failure},
            AbortMessage{key, failure},
            ResultMessage{key, Status()}};
}

TEST(MessagesTest, EveryMessageComesBackAsItWasSent) {
    for (const AggregatorMessage& message : samples()) {
        SCOPED_TRACE(name_of(message));
        const auto bytes = encode(message);
        EXPECT_TRUE(is_aggregator_message(bytes));
        auto back = decode_aggregator_message(bytes);
        ASSERT_TRUE(back.ok()) << back.status().message();
        EXPECT_EQ(back->index(), message.index());
        EXPECT_EQ(key_of(*back), key);
        EXPECT_EQ(encode(*back), bytes);
    }
}

// Group [2, 5): its coordinator is node 2.
TEST(MessagesTest, OnlyTheCoordinatorDecidesAndOnlyItIsToldOfOffersAndFailures) {
    const Group group{1, 2, 5, 1, 2};
    for (const AggregatorMessage& message : samples()) {
        SCOPED_TRACE(name_of(message));
        const auto goes = [&](int source, int target) {
            return check_way(message, source, target, group).ok();
        };
        const bool decides = std::holds_alternative<PlanMessage>(message) ||
                             std::holds_alternative<AbortMessage>(message) ||
                             std::holds_alternative<ResultMessage>(message);
        const bool tells = std::holds_alternative<OfferMessage>(message) ||
                           std::holds_alternative<SegmentMessage>(message) ||
                           std::holds_alternative<FailedMessage>(message);
        EXPECT_EQ(goes(2, 4), !tells);
        EXPECT_EQ(goes(4, 2), !decides);
        EXPECT_EQ(goes(3, 4), !tells && !decides);
        EXPECT_FALSE(goes(1, 2)) << "of another group";
        EXPECT_FALSE(goes(5, 2)) << "of another group";
    }
    EXPECT_EQ(check_way(ResultMessage{key, Status()}, 4, 3, group).message(),
              "node 4 told node 3 RESULT, which does not go that way in a group of nodes 2 to 4");
}

TEST(MessagesTest, PlanIsTheSameOnEveryMember) {
    auto back = decode_aggregator_message(encode(PlanMessage{sample_plan()}));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(std::get<PlanMessage>(*back).plan, sample_plan());
}

TEST(MessagesTest, FieldsKeepTheirMeaning) {
    auto back = decode_aggregator_message(
        encode(EmptyMessage{key, 77, Status(Code::no_space, "writing 4096 bytes: full")}));
    ASSERT_TRUE(back.ok());
    const auto& empty = std::get<EmptyMessage>(*back);
    EXPECT_EQ(empty.credit, 77u);
    EXPECT_EQ(empty.why.code(), Code::no_space);
    EXPECT_EQ(empty.why.message(), "writing 4096 bytes: full");
    back = decode_aggregator_message(encode(ChunkMessage{key, 1, 5, 81'920, 8'080}));
    ASSERT_TRUE(back.ok());
    const auto& chunk = std::get<ChunkMessage>(*back);
    EXPECT_EQ(chunk.rank, 5u);
    EXPECT_EQ(chunk.stream_offset, 81'920u);
    EXPECT_EQ(chunk.bytes, 8'080u);
}

TEST(MessagesTest, TruncatedOrLengthenedMessagesAreRefused) {
    for (const AggregatorMessage& message : samples()) {
        SCOPED_TRACE(name_of(message));
        auto bytes = encode(message);
        for (size_t length = 0; length < bytes.size(); ++length)
            ASSERT_FALSE(decode_aggregator_message(std::span(bytes).first(length)).ok()) << length;
        bytes.push_back(std::byte{0});
        // corrupt would say that a captured part is lost (RootLedger::result).
        EXPECT_EQ(decode_aggregator_message(bytes).status().code(), Code::transport);
    }
}

TEST(MessagesTest, ForeignMarkUnknownTypeAndUnknownCodeAreRefused) {
    auto bytes = encode(CreditMessage{key, 1});
    bytes[0] = std::byte{0x17};
    EXPECT_FALSE(is_aggregator_message(bytes));
    EXPECT_FALSE(decode_aggregator_message(bytes).ok());
    bytes = encode(CreditMessage{key, 1});
    bytes[1] = std::byte{200};
    EXPECT_FALSE(decode_aggregator_message(bytes).ok());
    bytes = encode(ResultMessage{key, Status()});
    bytes[14] = std::byte{99};
    EXPECT_FALSE(decode_aggregator_message(bytes).ok());
    EXPECT_FALSE(is_aggregator_message({}));
}

TEST(MessagesTest, PlanThatCannotBeCarriedOutIsRefused) {
    FlushPlan plan = sample_plan();
    plan.leaders = {9};
    EXPECT_FALSE(decode_aggregator_message(encode(PlanMessage{plan})).ok());
    plan = sample_plan();
    plan.chunk_bytes = 1;
    EXPECT_FALSE(decode_aggregator_message(encode(PlanMessage{plan})).ok());
    plan = sample_plan();
    plan.stripe_align = 5;
    EXPECT_FALSE(decode_aggregator_message(encode(PlanMessage{plan})).ok());
    plan = sample_plan();
    plan.offers[1].streams[0].rank = 4;
    EXPECT_FALSE(decode_aggregator_message(encode(PlanMessage{plan})).ok());
}

// What a damaged message decodes to, if to anything, must still be usable: a plan most of all.
TEST(MessagesTest, DamagedMessagesNeverYieldAPlanThatBreaksTheAllocator) {
    for (uint64_t seed : seeds(1, 3000)) {
        SCOPED_TRACE(seed);
        Random random(seed);
        const auto all = samples();
        auto bytes = encode(all[below(random, all.size())]);
        for (uint64_t flips = 1 + below(random, 4); flips > 0; --flips)
            bytes[2 + below(random, bytes.size() - 2)] = static_cast<std::byte>(below(random, 256));
        auto back = decode_aggregator_message(bytes);
        if (!back.ok()) continue;
        ASSERT_EQ(encode(*back), bytes);
        if (const auto* plan = std::get_if<PlanMessage>(&*back)) {
            ASSERT_TRUE(check_plan(plan->plan).ok());
            ExtentAllocator allocator(plan->plan, 0);
            ASSERT_LE(allocator.file_end(0), uint64_t{1} << 62);
        }
    }
}

}  // namespace
}  // namespace tailrace::internal
