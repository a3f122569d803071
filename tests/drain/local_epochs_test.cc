// Epochs that a program that has died had kept in the node-local tier (settings shared_every and
// queue_policy): the newest one is finished, and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "drain/node_drain_fixture.h"
#include "drain/recorded_epochs.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using State = DrainedEpoch::State;

// ---- the rule -------------------------------------------------------------------------------------

using Keys = std::vector<EpochKey>;

EpochNeed need(EpochKey key, const Keys& usable, const Keys& begun = {}, const Keys& whole = {},
               bool local = true) {
    RecordedEpoch recorded;
    recorded.record.key = key;
    recorded.local = local;
    return need_of(recorded, usable, begun, whole);
}

TEST(LocalEpochRuleTest, TheNewestIsFinishedAndWhatWasMeantForTheSharedDirectory) {
    const Keys usable{{4, 1}, {5, 1}, {6, 1}};
    EXPECT_EQ(need({6, 1}, usable), EpochNeed::flush);
    EXPECT_EQ(need({5, 1}, usable), EpochNeed::stays);
    EXPECT_EQ(need({4, 1}, usable), EpochNeed::stays);
    EXPECT_EQ(need({4, 1}, usable, {}, {}, false), EpochNeed::flush);
    EXPECT_EQ(need({5, 1}, {{4, 1}, {5, 1}}), EpochNeed::flush) << "the newest is damaged here";
}

TEST(LocalEpochRuleTest, ACommittedEpochMakesOlderOnesPointless) {
    const Keys usable{{4, 1}, {5, 1}};
    EXPECT_EQ(need({5, 1}, usable, {}, {{5, 1}}), EpochNeed::committed);
    EXPECT_EQ(need({4, 1}, usable, {}, {{5, 1}}), EpochNeed::superseded);
    EXPECT_EQ(need({5, 1}, usable, {}, {{4, 1}}), EpochNeed::flush);
}

TEST(LocalEpochRuleTest, WhatTheProgramHasGoneBackFromIsNotNewer) {
    // Run 2 has gone back from epoch 50 of run 1, and saved 6 for the shared directory, and then 7.
    const Keys usable{{6, 2}, {7, 2}};
    EXPECT_EQ(need({7, 2}, usable, {}, {{50, 1}}), EpochNeed::flush);
    const Keys with_old{{6, 2}, {7, 2}, {50, 1}};
    EXPECT_EQ(need({7, 2}, with_old), EpochNeed::flush);
    EXPECT_EQ(need({50, 1}, with_old), EpochNeed::stays);
}

TEST(LocalEpochRuleTest, WhatAnotherNodeHasBegunIsFinishedToo) {
    const Keys usable{{4, 1}, {5, 1}, {6, 1}};
    EXPECT_EQ(need({5, 1}, usable, {{5, 1}}), EpochNeed::flush);
    EXPECT_EQ(need({4, 1}, usable, {{5, 1}}), EpochNeed::stays);
    // This node cannot finish what another one has begun.
    EXPECT_EQ(need({6, 1}, usable, {{7, 1}}), EpochNeed::flush);
    EXPECT_EQ(need({5, 1}, usable, {{7, 1}}), EpochNeed::stays);
    EXPECT_EQ(need({4, 1}, {{4, 1}, {6, 1}}, {{5, 1}}), EpochNeed::flush);
}

// Whatever records nodes have, the newest epoch that all of them have is begun by some node.
TEST(LocalEpochRuleTest, TheNewestEpochThatAllNodesHaveIsAlwaysFinished) {
    constexpr unsigned epochs = 5, subsets = 1u << epochs;
    const auto keys_of = [](unsigned subset) {
        Keys keys;
        for (uint64_t epoch = 0; epoch < epochs; ++epoch)
            if ((subset >> epoch & 1u) != 0) keys.push_back({epoch + 1, 1});
        return keys;
    };
    for (unsigned a = 1; a < subsets; ++a)
        for (unsigned b = a; b < subsets; ++b)
            for (unsigned c = b; c < subsets; ++c) {
                const Keys common = keys_of(a & b & c);
                if (common.empty()) continue;
                Keys begun;
                size_t before = 1;
                while (begun.size() != before) {
                    before = begun.size();
                    for (const unsigned node : {a, b, c})
                        for (const EpochKey key : keys_of(node))
                            if (need(key, keys_of(node), begun) == EpochNeed::flush &&
                                std::find(begun.begin(), begun.end(), key) == begun.end())
                                begun.push_back(key);
                }
                ASSERT_THAT(begun, testing::Contains(common.back())) << a << " " << b << " " << c;
                for (const unsigned node : {a, b, c})
                    ASSERT_EQ(need(common.back(), keys_of(node), begun), EpochNeed::flush);
            }
}

// ---- nodes ----------------------------------------------------------------------------------------

class LocalEpochDrainTest : public NodeDrainFixture {
  protected:
    LocalEpochDrainTest() {
        config_.shared_every = 3;
        config_.keep_local = 3;
        config_.flush_at_close = false;  // as if it had died
    }
    void run_and_leave(uint64_t epochs, bool concurrent) {
        Job job = job_on(machines_, hosts_);
        job.concurrent = concurrent;
        job.config = config_;
        run(job, [&](Checkpointer& session) {
            State_ state;
            for (uint64_t epoch = 1; epoch <= epochs; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.close().ok());
        });
    }
    void forget(int node, uint64_t epoch) {
        const PlanFileName name{config_.name, {epoch, 1}, static_cast<uint32_t>(node), false, true};
        ASSERT_TRUE(
            machines_.local_of(host_of(node))->remove(join_path(directory_of(node), to_string(name))).ok());
    }
    // The epochs that were finished, or wait for other nodes.
    std::vector<uint64_t> drain_all(const std::vector<int>& nodes) {
        std::vector<uint64_t> seen;
        for (const int node : nodes) {
            const auto pass = drain(node);
            EXPECT_TRUE(pass.ok() && pass->busy.ok());
            for (const auto& epoch : pass->epochs)
                if (epoch.state != State::superseded) seen.push_back(epoch.key.epoch);
        }
        return seen;
    }
};

TEST_F(LocalEpochDrainTest, TheNewestOneIsCommittedAndOlderOnesStay) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        machines_ = {};
        run_and_leave(6, concurrent);
        EXPECT_THAT(committed(), ElementsAre(1, 4));
        EXPECT_THAT(drain_all({3, 1, 0, 2}), Each(6u));
        EXPECT_THAT(committed(), ElementsAre(1, 4, 6));
        (void)drain_all({0, 1, 2, 3});
        for (int node = 0; node < node_count; ++node) EXPECT_THAT(records_of(node), IsEmpty()) << node;
        expect_in_shared(6);
    }
}

TEST_F(LocalEpochDrainTest, ANodeThatHasNoRecordOfTheNewestBringsTheOthersToTheOneBefore) {
    run_and_leave(6, true);
    forget(2, 6);
    (void)drain_all({0, 1, 2, 3});
    EXPECT_THAT(committed(), ElementsAre(1, 4)) << "nodes 0 and 1 do not know yet";
    (void)drain_all({0, 1, 2, 3});
    EXPECT_THAT(committed(), ElementsAre(1, 4, 5));
    expect_in_shared(5);
}

// Another node may have its share in these files, and so needs no takeover that would show this node that it
// has no record of the newest.
TEST_F(LocalEpochDrainTest, WhatTheProgramHadBegunIsFinishedBesideTheNewest) {
    run_and_leave(6, true);
    const SharedFileName name{config_.name, {5, 1}, 0, config_.files, true};
    ASSERT_TRUE(machines_.shared->open(join_path(config_.shared_dir, to_string(name)), {Access::write}).ok());
    EXPECT_THAT(drain_all({0}), UnorderedElementsAre(5u, 6u));
}

TEST_F(LocalEpochDrainTest, ADamagedNewestGivesWayToTheOneBefore) {
    run_and_leave(6, true);
    const auto& storage = machines_.local_of(host_of(1));
    const auto part = join_path(directory_of(1), to_string(PartFileName{config_.name, {6, 1}, 2}));
    ASSERT_TRUE(storage->remove(part).ok());
    for (int round = 0; round < 2; ++round) (void)drain_all({0, 1, 2, 3});
    EXPECT_THAT(committed(), ElementsAre(1, 4, 5));
    expect_in_shared(5);
}

TEST_F(LocalEpochDrainTest, ASessionThatComesFirstFlushesItAndNothingIsLeft) {
    run_and_leave(6, true);
    ASSERT_TRUE(drain(0).ok());
    run_and_leave(0, true);
    EXPECT_THAT(committed(), ElementsAre(1, 4, 6));
    EXPECT_THAT(left_in_shared(), IsEmpty());
    for (int node = 0; node < node_count; ++node) EXPECT_THAT(records_of(node), IsEmpty()) << node;
}

// With a copy of what a lost node had captured.
TEST_F(LocalEpochDrainTest, ALostNodesShareIsWrittenFromItsCopy) {
    config_.redundancy = "partner";
    config_.redundancy_set = 2;
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        for (const uint32_t files : {1u, 4u}) {  // one group, or one of each node
            machines_ = {};
            config_.files = files;
            run_and_leave(6, concurrent);
            (void)lose(1);
            lost_.emplace(std::chrono::seconds(0));
            (void)drain_all({0, 2, 3});
            EXPECT_THAT(committed(), ElementsAre(1, 4, 6)) << files;
            expect_in_shared(6);
        }
    }
}

}  // namespace
}  // namespace tailrace::internal
