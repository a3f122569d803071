// Messages survive their encoding, and other bytes are refused.
#include "collective/call_message.h"

#include <gtest/gtest.h>

#include "aggregate/seeds.h"
#include "collective/plan.h"
#include "requests/statistics.h"

namespace tailrace::internal::collective {

namespace {

CallMessage sample() {
    CallMessage message;
    message.kind = CallMessage::Kind::offer;
    message.window = 7;
    message.count = 2;
    message.bytes = 30;
    message.step = 3;
    message.slot = 5;
    message.granted = true;
    message.shared = true;
    message.list = {1, 2, 3, 4};
    message.data = {5, 6, 7, 8};
    message.ids = {9, 10};
    message.runs = {{0, 10}, {20, 20}};
    return message;
}

}  // namespace

TEST(CallMessageTest, ComesOutAsItWentIn) {
    const CallMessage message = sample();
    const auto back = decode_call_message(encode(message));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->kind, message.kind);
    EXPECT_EQ(back->window, message.window);
    EXPECT_EQ(back->count, message.count);
    EXPECT_EQ(back->bytes, message.bytes);
    EXPECT_EQ(back->step, message.step);
    EXPECT_EQ(back->slot, message.slot);
    EXPECT_FALSE(back->failed);
    EXPECT_TRUE(back->granted);
    EXPECT_FALSE(back->answer);
    EXPECT_TRUE(back->shared);
    EXPECT_EQ(back->list, message.list);
    EXPECT_EQ(back->data, message.data);
    EXPECT_EQ(back->ids, message.ids);
    EXPECT_EQ(back->runs, message.runs);
}

TEST(CallMessageTest, OtherBytesAreRefused) {
    const std::vector<std::byte> whole = encode(sample());
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
        EXPECT_FALSE(decode_call_message(std::span(whole).first(bytes)).ok()) << bytes << " bytes";
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_call_message(longer).ok());
    std::vector<std::byte> foreign = whole;
    foreign[0] = std::byte{99};
    EXPECT_FALSE(decode_call_message(foreign).ok());
}

// Two windows of an owner are under way between two ranks at once, in rounds that follow each other.
TEST(CallMessageTest, TransfersOfTwoRoundsHaveTagsOfTheirOwn) {
    for (const int owners : {1, 8191, 8192, 8193}) {
        DomainSettings settings;
        settings.align_bytes = settings.window_bytes = 1;
        const Domains domains({0, 100'000}, owners, settings);
        const auto next = static_cast<uint64_t>(owners);  // the second window of the first owner
        EXPECT_NE(data_tag(domains, 0), data_tag(domains, next)) << owners;
        EXPECT_NE(runs_tag(domains, 0), runs_tag(domains, next)) << owners;
        EXPECT_NE(runs_tag(domains, 0), data_tag(domains, 0)) << owners;
        EXPECT_NE(runs_tag(domains, next), data_tag(domains, 0)) << owners;
    }
}

TEST(StatisticsTest, SumsAndMaxima) {
    Statistics a, b;
    a.requests = 3;
    a.rounds = 2;
    a.total = 1.5;
    b.requests = 4;
    b.rounds = 5;
    b.total = 0.5;
    const std::vector<std::byte> bytes = encode(b);
    const auto travelled = decode_statistics(bytes);
    ASSERT_TRUE(travelled.ok());
    a.add(*travelled);
    EXPECT_EQ(a.requests, 7u);
    EXPECT_EQ(a.rounds, 5u);
    EXPECT_EQ(a.total, 1.5);
    EXPECT_FALSE(decode_statistics(std::span(bytes).first(10)).ok());
}

}  // namespace tailrace::internal::collective
