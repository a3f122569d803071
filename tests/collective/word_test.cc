// Messages survive their encoding, and other bytes are refused.
#include "collective/word.h"

#include <gtest/gtest.h>

#include "aggregate/seeds.h"
#include "collective/plan.h"
#include "collective/statistics.h"

namespace tailrace::collective {

namespace {

Word sample() {
    Word word;
    word.kind = Word::Kind::offer;
    word.window = 7;
    word.count = 2;
    word.bytes = 30;
    word.step = 3;
    word.slot = 5;
    word.granted = true;
    word.shared = true;
    word.list = {1, 2, 3, 4};
    word.data = {5, 6, 7, 8};
    word.ids = {9, 10};
    word.runs = {{0, 10}, {20, 20}};
    return word;
}

}  // namespace

TEST(WordTest, ComesOutAsItWentIn) {
    const Word word = sample();
    const auto back = decode_word(encode(word));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->kind, word.kind);
    EXPECT_EQ(back->window, word.window);
    EXPECT_EQ(back->count, word.count);
    EXPECT_EQ(back->bytes, word.bytes);
    EXPECT_EQ(back->step, word.step);
    EXPECT_EQ(back->slot, word.slot);
    EXPECT_FALSE(back->failed);
    EXPECT_TRUE(back->granted);
    EXPECT_FALSE(back->answer);
    EXPECT_TRUE(back->shared);
    EXPECT_EQ(back->list, word.list);
    EXPECT_EQ(back->data, word.data);
    EXPECT_EQ(back->ids, word.ids);
    EXPECT_EQ(back->runs, word.runs);
}

TEST(WordTest, OtherBytesAreRefused) {
    const std::vector<std::byte> whole = encode(sample());
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
        EXPECT_FALSE(decode_word(std::span(whole).first(bytes)).ok()) << bytes << " bytes";
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_word(longer).ok());
    std::vector<std::byte> foreign = whole;
    foreign[0] = std::byte{99};
    EXPECT_FALSE(decode_word(foreign).ok());
}

// Two windows of an owner are under way between two ranks at once, in rounds that follow each other.
TEST(WordTest, TransfersOfTwoRoundsHaveTagsOfTheirOwn) {
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

}  // namespace tailrace::collective
