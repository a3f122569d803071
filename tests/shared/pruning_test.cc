// What goes when somebody prunes a directory from outside, and in favour of what.
#include "shared/pruning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/invariant.h"
#include "base/log.h"
#include "doubles/memory_storage.h"
#include "read/epoch_builder.h"
#include "shared/retention.h"

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

class PruningTest : public testing::Test {
  protected:
    void write(uint64_t number, BuiltRegion region, bool cut_off = false) {
        BuiltEpoch built;
        built.key = {number, 1};
        built.ranks = {{std::move(region)}};
        built.last_slot_missing = cut_off;
        const Status written = write_shared_files(storage_, "/shared", built);
        ASSERT_TRUE(written.ok()) << written.message();
    }
    void write(uint64_t number, bool cut_off = false) {
        write(number, {"density", pattern(number, 5000), std::nullopt}, cut_off);
    }
    // The epochs that go, with the reason. Fills `read` and `told`.
    std::vector<std::pair<uint64_t, std::string>> prune(const PruneRule& rule) {
        read.clear();
        told.clear();
        auto found = find_epochs(storage_, "/shared", "");
        EXPECT_TRUE(found.ok()) << found.status().message();
        const auto judged = judge_all(storage_, std::move(found->epochs));
        std::vector<const JudgedEpoch*> epochs;
        for (const auto& epoch : judged) epochs.push_back(&epoch);
        PruneSteps steps;
        steps.read_every_byte = [&](const JudgedEpoch& epoch) {
            const uint64_t number = epoch.found.key.epoch;
            read.push_back(number);
            return damaged.contains(number) ? Status(Code::corrupt, "a byte is wrong") : Status();
        };
        steps.tell = [&](const std::string& sentence) { told.push_back(sentence); };
        std::vector<std::pair<uint64_t, std::string>> gone;
        for (const auto& pruned : choose_pruned(storage_, epochs, rule, steps))
            gone.emplace_back(epochs[pruned.epoch]->found.key.epoch, pruned.why);
        return gone;
    }
    static PruneRule keep(uint64_t newest) {
        PruneRule rule;
        rule.retention.keep_newest = newest;
        return rule;
    }

    MemoryStorage storage_;
    std::set<uint64_t> damaged;
    std::vector<uint64_t> read;
    std::vector<std::string> told;
};

TEST_F(PruningTest, WhereNothingGoesNothingIsRead) {
    write(1);
    write(2);
    EXPECT_THAT(prune(keep(2)), IsEmpty());
    EXPECT_THAT(prune({}), IsEmpty());
    EXPECT_THAT(read, IsEmpty());
}

TEST_F(PruningTest, TheNewestThatStaysIsReadAndDoesNotCountIfItIsDamaged) {
    for (uint64_t number = 1; number <= 4; ++number) write(number);
    EXPECT_THAT(prune(keep(2)), ElementsAre(std::pair(1, "older than what is kept"),
                                            std::pair(2, "older than what is kept")));
    EXPECT_THAT(read, ElementsAre(4));
    damaged = {4, 3};
    EXPECT_THAT(prune(keep(1)), ElementsAre(std::pair(1, "older than what is kept")));
    EXPECT_THAT(read, ElementsAre(4, 3, 2));
    EXPECT_THAT(told, ElementsAre(HasSubstr("epoch 4 of run 1 is damaged and not counted: a byte is wrong"),
                                  HasSubstr("epoch 3 of run 1 is damaged")));
    damaged = {1, 2, 3, 4};
    EXPECT_THAT(prune(keep(1)), IsEmpty()) << "nothing is sound, so nothing goes";
}

TEST_F(PruningTest, WhatCannotBeRestoredDoesNotCount) {
    write(1);
    write(2);
    write(3, counting_array("half", {4, 4}, {0, 0}, {2, 4}));
    EXPECT_THAT(prune(keep(1)), ElementsAre(std::pair(1, "older than what is kept")));
    EXPECT_THAT(told, ElementsAre(HasSubstr("not counted: epoch 3 of run 1: ")));
    EXPECT_THAT(read, ElementsAre(2));
}

TEST_F(PruningTest, WhatLacksFilesGoesOnlyIfNobodyWritesOrWhenAskedFor) {
    write(1, true);
    write(2);
    write(3, true);
    auto rule = keep(1);
    EXPECT_THAT(prune(rule), IsEmpty());
    rule.nobody_writes = true;
    EXPECT_THAT(prune(rule), ElementsAre(std::pair(1, "incomplete, older than what is kept")));
    PruneRule leftovers;
    leftovers.leftovers = true;
    EXPECT_THAT(prune(leftovers), ElementsAre(std::pair(1, "incomplete"), std::pair(3, "incomplete")));
}

TEST(RetentionInvariantsTest, EpochsComeInAscendingOrder) {
    set_log_level(LogLevel::off);
    std::vector<SharedEpochFiles> epochs(2);
    epochs[0].key = {1, 1};
    epochs[1].key = {1, 2};
    EXPECT_TRUE(replaces_another(epochs, 1));
    std::swap(epochs[0], epochs[1]);
    EXPECT_THROW((void)replaces_another(epochs, 1), BrokenInvariant);
    EXPECT_THROW((void)replaces_another(epochs, 2), BrokenInvariant);
    set_log_level(LogLevel::warning);
}

}  // namespace
}  // namespace tailrace::internal
