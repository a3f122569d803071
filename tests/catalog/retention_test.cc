#include <gtest/gtest.h>

#include <algorithm>

#include "catalog/catalog.h"
#include "catalog/lineage.h"
#include "format/hostile.h"

namespace tailrace::internal {
namespace {

using Keys = std::vector<EpochKey>;

TEST(RetentionTest, KeepsTheNewestAndRemovesTheRest) {
    std::vector<EpochAge> epochs = {{{30, 1}, true, 0}, {{10, 1}, true, 0}, {{20, 1}, true, 0}};
    EXPECT_EQ(choose_removals(epochs, {2, {}}), (Keys{{10, 1}}));
    EXPECT_EQ(choose_removals(epochs, {1, {}}), (Keys{{10, 1}, {20, 1}}));
    EXPECT_EQ(choose_removals(epochs, {3, {}}), Keys());
    EXPECT_EQ(choose_removals(epochs, {UINT64_MAX, {}}), Keys());
}

TEST(RetentionTest, NeverRemovesTheNewestCompleteEpoch) {
    std::vector<EpochAge> epochs = {{{10, 1}, true, 900}, {{20, 1}, true, 800}, {{30, 1}, false, 0}};
    EXPECT_EQ(choose_removals(epochs, {0, {}}), (Keys{{10, 1}}));
    EXPECT_EQ(choose_removals(epochs, {{}, 0}), (Keys{{10, 1}}));
    EXPECT_EQ(choose_removals({}, {0, {}}), Keys());
}

TEST(RetentionTest, IncompleteEpochsAreNeitherCountedNorChosen) {
    std::vector<EpochAge> epochs = {
        {{10, 1}, true, 0}, {{15, 1}, false, 900}, {{20, 1}, true, 0}, {{30, 1}, false, 0}};
    EXPECT_EQ(choose_removals(epochs, {2, {}}), Keys());
    EXPECT_EQ(choose_removals(epochs, {1, {}}), (Keys{{10, 1}}));
}

TEST(RetentionTest, WhatCannotBeRestoredPushesNothingOut) {
    const EpochAge good{{10, 1}, true, 300}, bad{{20, 1}, true, 200, false}, newer{{30, 1}, true, 100};
    EXPECT_EQ(choose_removals({good, bad}, {1, {}}), Keys());
    EXPECT_EQ(choose_removals({good, bad}, {{}, 50}), Keys());
    EXPECT_EQ(choose_removals({good, bad, newer}, {1, {}}), (Keys{{10, 1}, {20, 1}}));
    EXPECT_EQ(choose_removals({good, bad, newer}, {2, {}}), Keys());
    EXPECT_EQ(choose_removals({bad, newer}, {{}, 150}), (Keys{{20, 1}}));
    // Nor does it replace an earlier attempt.
    EXPECT_EQ(choose_removals({good, {{10, 2}, true, 0, false}}, {}), Keys());
}

TEST(RetentionTest, OlderThanRemovesOnlyWhatIsOlder) {
    std::vector<EpochAge> epochs = {{{10, 1}, true, 300}, {{20, 1}, true, 200}, {{30, 1}, true, 100}};
    EXPECT_EQ(choose_removals(epochs, {{}, 200}), (Keys{{10, 1}}));
    EXPECT_EQ(choose_removals(epochs, {{}, 50}), (Keys{{10, 1}, {20, 1}}));
}

TEST(RetentionTest, BothFieldsMustMatch) {
    std::vector<EpochAge> epochs = {{{10, 1}, true, 300}, {{20, 1}, true, 200}, {{30, 1}, true, 100}};
    EXPECT_EQ(choose_removals(epochs, {1, 250}), (Keys{{10, 1}}));
    EXPECT_EQ(choose_removals(epochs, {2, 50}), (Keys{{10, 1}}));
    EXPECT_EQ(choose_removals(epochs, {3, 50}), Keys());
}

TEST(RetentionTest, AttemptThatALaterRunReplacedGoes) {
    std::vector<EpochAge> epochs = {
        {{10, 1}, true, 0}, {{20, 1}, true, 0}, {{20, 2}, true, 0}, {{20, 3}, false, 0}};
    EXPECT_EQ(choose_removals(epochs, {}), (Keys{{20, 1}}));  // run 3's attempt is not complete
    EXPECT_EQ(choose_removals(epochs, {2, {}}), (Keys{{20, 1}}));
    EXPECT_EQ(choose_removals(epochs, {1, {}}), (Keys{{10, 1}, {20, 1}}));
}

TEST(RetentionTest, ARunThatBeganAnewKeepsItsOwnEpochs) {
    // Run 2 goes on from nothing, or from epoch 10, beside what run 1 had reached.
    std::vector<EpochAge> epochs = {{{90, 1}, true, 0}, {{100, 1}, true, 0}, {{10, 2}, true, 0}};
    EXPECT_EQ(choose_removals(epochs, {1, {}}), Keys());
    epochs.push_back({{20, 2}, true, 0});
    epochs.push_back({{15, 1}, true, 0});
    EXPECT_EQ(choose_removals(epochs, {1, {}}), (Keys{{10, 2}, {15, 1}}));
    EXPECT_EQ(choose_removals(epochs, {2, {}}), (Keys{{15, 1}}));
    // Once it has passed them, what it left behind goes first.
    epochs.push_back({{100, 2}, true, 0});
    EXPECT_EQ(choose_removals(epochs, {2, {}}), (Keys{{10, 2}, {15, 1}, {90, 1}, {100, 1}}));
    EXPECT_EQ(choose_removals(epochs, {}), (Keys{{100, 1}}));
    // By age alone everything may go but the newest of each.
    EXPECT_EQ(choose_removals({{{90, 1}, true, 9}, {{100, 1}, true, 9}, {{10, 2}, true, 9}}, {{}, 5}),
              (Keys{{90, 1}}));
}

// Whatever the rule: what stays is at least the newest keep_newest epochs, and nothing incomplete is chosen.
TEST(RetentionTest, WhatStaysIsEnough) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 500; ++i) {
        std::vector<EpochAge> epochs;
        for (uint64_t e = 0; e < below(random, 8); ++e)
            for (uint32_t run = 1; run <= 3; ++run)
                if (below(random, 2) == 0)
                    epochs.push_back({{e, run}, below(random, 3) != 0, below(random, 100)});
        std::shuffle(epochs.begin(), epochs.end(), random);
        RetentionRule rule;
        if (below(random, 2) == 0) rule.keep_newest = below(random, 5);
        if (below(random, 2) == 0) rule.older_than_seconds = below(random, 100);
        auto removals = choose_removals(epochs, rule);
        EXPECT_TRUE(std::is_sorted(removals.begin(), removals.end()));
        std::vector<uint64_t> complete, left;  // that are not left behind
        std::vector<EpochKey> whole;
        for (const auto& epoch : epochs)
            if (epoch.complete) whole.push_back(epoch.key);
        const Lineage lineage(whole);
        for (const auto& epoch : epochs) {
            bool removed = std::count(removals.begin(), removals.end(), epoch.key) > 0;
            if (removed) {
                EXPECT_TRUE(epoch.complete);
                EXPECT_TRUE(!rule.older_than_seconds || epoch.age_seconds > *rule.older_than_seconds);
            }
            if (!epoch.complete || lineage.left_behind(epoch.key)) continue;
            complete.push_back(epoch.key.epoch);
            if (!removed) left.push_back(epoch.key.epoch);
        }
        for (auto* numbers : {&complete, &left}) {
            std::sort(numbers->rbegin(), numbers->rend());
            numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
        }
        size_t wanted =
            std::min<size_t>(complete.size(), std::max<uint64_t>(rule.keep_newest.value_or(1), 1));
        ASSERT_GE(left.size(), wanted);
        for (size_t n = 0; n < wanted; ++n) EXPECT_EQ(left[n], complete[n]);
    }
}

}  // namespace
}  // namespace tailrace::internal
