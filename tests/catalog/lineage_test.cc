#include "catalog/lineage.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "format/hostile.h"

namespace tailrace::internal {
namespace {

using Keys = std::vector<EpochKey>;

Keys in_order(Keys keys) {
    const Lineage lineage(keys);
    std::sort(keys.begin(), keys.end(),
              [&](const EpochKey& a, const EpochKey& b) { return lineage.goes_first(a, b); });
    return keys;
}

TEST(LineageTest, RunsThatGoOnFromTheNewestLeaveNothingBehind) {
    EXPECT_EQ(in_order({{10, 1}, {30, 2}, {20, 1}, {40, 3}}), (Keys{{40, 3}, {30, 2}, {20, 1}, {10, 1}}));
    EXPECT_FALSE(Lineage({}).left_behind({1, 1}));
}

TEST(LineageTest, WhatARunThatWentBackHasSavedComesBeforeWhatItLeftBehind) {
    // Run 2 went back to epoch 20, run 3 on from 50.
    EXPECT_EQ(in_order({{10, 1}, {20, 1}, {30, 1}, {90, 1}, {25, 2}, {50, 2}, {60, 3}}),
              (Keys{{60, 3}, {50, 2}, {25, 2}, {20, 1}, {10, 1}, {90, 1}, {30, 1}}));
}

TEST(LineageTest, AnEpochThatALaterRunSavedAgainIsLeftBehind) {
    const Lineage lineage({{10, 1}, {10, 2}});
    EXPECT_TRUE(lineage.left_behind({10, 1}));
    EXPECT_FALSE(lineage.left_behind({10, 2}));
}

TEST(LineageTest, AnEpochThatIsNotWholeLeavesNothingBehind) {
    const Lineage lineage({{10, 1}, {20, 1}});
    EXPECT_FALSE(lineage.left_behind({20, 1}));
    EXPECT_FALSE(lineage.left_behind({15, 2}));
}

// Against the definition.
TEST(LineageTest, AgreesWithTheDefinitionAndIsAStrictOrder) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 300; ++i) {
        Keys keys;
        for (uint64_t n = below(random, 12); n > 0; --n)
            keys.push_back({below(random, 10), static_cast<uint32_t>(1 + below(random, 4))});
        const Lineage lineage(keys);
        for (const auto& a : keys) {
            const bool expected = std::any_of(keys.begin(), keys.end(), [&](const EpochKey& later) {
                return later.run > a.run && later.epoch <= a.epoch;
            });
            EXPECT_EQ(lineage.left_behind(a), expected);
            for (const auto& b : keys)
                EXPECT_EQ(lineage.goes_first(a, b) + lineage.goes_first(b, a), a == b ? 0 : 1);
        }
    }
}

}  // namespace
}  // namespace tailrace::internal
