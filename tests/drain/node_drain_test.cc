// Epochs whose program died: the nodes finish them, each on its own, from what lies in their directories.
#include "drain/node_drain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "aggregate/seeds.h"
#include "catalog/catalog.h"
#include "drain/node_drain_fixture.h"
#include "drain/recorded_epochs.h"
#include "shared/takeover.h"
#include "storage/forwarding_storage.h"
#include "threads/executor.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using State = DrainedEpoch::State;

class NodeDrainTest : public NodeDrainFixture {};

TEST_F(NodeDrainTest, TheNodesFinishWhatTheProgramHasCapturedInAnyOrder) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        machines_ = {};
        run_and_die_planned(2, concurrent);
        EXPECT_THAT(committed(), IsEmpty());
        ASSERT_THAT(planned_everywhere(), ElementsAre(1, 2));
        for (const int node : {2, 0, 3, 1}) {
            EXPECT_THAT(committed(), IsEmpty()) << "before node " << node;
            const auto pass = drain(node);
            ASSERT_TRUE(pass.ok()) << pass.status().to_string();
            ASSERT_THAT(pass->epochs, SizeIs(2));
            for (const auto& epoch : pass->epochs) {
                EXPECT_EQ(epoch.state, node == 1 ? State::committed : State::waiting)
                    << epoch.why.to_string();
                EXPECT_TRUE(epoch.wrote);
                EXPECT_GT(epoch.own_bytes, 2 * newest_bytes);
            }
        }
        EXPECT_THAT(committed(), ElementsAre(1, 2));
        EXPECT_THAT(left_in_shared(), IsEmpty());
        EXPECT_THAT(records_of(1), IsEmpty());
        EXPECT_THAT(records_of(0), SizeIs(2)) << "it has not heard of it yet";
        const auto again = drain(0);
        ASSERT_TRUE(again.ok());
        for (const auto& epoch : again->epochs) EXPECT_EQ(epoch.state, State::committed);
        EXPECT_THAT(records_of(0), IsEmpty());
        expect_in_shared(1);
        expect_in_shared(2);
    }
}

TEST_F(NodeDrainTest, TheNodesWriteFilesAsTheyWere) {
    with_original_files_ = true;
    int finished = 0;
    for (const bool concurrent : {true, false})
        for (uint64_t death = 12; death < 120; death += 4) {
            SCOPED_TRACE(testing::Message()
                         << "concurrent " << concurrent << ", death at operation " << death);
            machines_ = {};
            run_and_die(1, death, concurrent);
            if (planned_everywhere().empty() || !committed().empty()) continue;
            for (const int node : {2, 0, 3, 1}) ASSERT_TRUE(drain(node).ok());
            EXPECT_THAT(committed(), ElementsAre(1));
            expect_original_files(1);
            ++finished;
        }
    EXPECT_GT(finished, 5);
}

TEST_F(NodeDrainTest, ANodeSaysForWhomItWaits) {
    run_and_die_planned(1);
    auto pass = drain(0);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_THAT(texts_of(pass->epochs[0].waiting_for), ElementsAre("node 1 (m1)", "some of nodes 2 to 3"));
    ASSERT_TRUE(drain(1).ok());
    ASSERT_TRUE(drain(3).ok());
    pass = drain(3);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_THAT(texts_of(pass->epochs[0].waiting_for), ElementsAre("node 2 (m2)"));
    EXPECT_FALSE(pass->epochs[0].wrote) << "it wrote its share before";
    NodeDrain looking(config_, machines_.local_of("m2"), machines_.shared);
    const auto look = looking.look(directory_of(2));
    ASSERT_TRUE(look.ok() && look->epochs.size() == 1);
    EXPECT_EQ(look->epochs[0].state, State::waiting);
    EXPECT_THAT(texts_of(look->epochs[0].waiting_for), ElementsAre("node 2 (m2)"));
}

// Just before a file of the shared directory is opened for the n-th time, others write their shares.
class OthersWriteMeanwhile : public test::ForwardingStorage {
  public:
    OthersWriteMeanwhile(std::shared_ptr<Storage> inner, int moment, std::function<void()> write)
        : ForwardingStorage(std::move(inner)), moment_(moment), write_(std::move(write)) {}
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        if (++opened_ == moment_) write_();
        return ForwardingStorage::open(path, options);
    }

  private:
    const int moment_;
    const std::function<void()> write_;
    int opened_ = 0;
};

// Another node writes the last share at any moment of this node's pass.
TEST_F(NodeDrainTest, WhoWaitsSaysForWhom) {
    bool written = true;
    for (int moment = 1; written; ++moment) {
        SCOPED_TRACE(moment);
        machines_ = {};
        run_and_die_planned(1);
        for (const int node : {0, 1, 2}) ASSERT_TRUE(drain(node).ok());
        written = false;
        const auto shared = std::make_shared<OthersWriteMeanwhile>(machines_.shared, moment, [&] {
            written = true;
            ASSERT_TRUE(drain(3).ok());
        });
        const auto pass = drain(0, shared);
        ASSERT_TRUE(pass.ok()) << pass.status().to_string();
        ASSERT_THAT(pass->epochs, SizeIs(1));
        const auto& epoch = pass->epochs[0];
        EXPECT_EQ(epoch.state == State::waiting, !epoch.waiting_for.empty()) << name_of(epoch.state);
        ASSERT_LT(moment, 1000);
    }
}

// The program dies at every operation of its flushes, the drains after it at any operation of theirs, some
// of them by a loss of power. The nodes go on until nobody waits.
TEST_F(NodeDrainTest, WhateverIsInterruptedIsFinishedByALaterPass) {
    for (const uint64_t seed : seeds(1, 150)) {
        SCOPED_TRACE("TAILRACE_SEED=" + std::to_string(seed));
        Random random(seed);
        machines_ = {};
        config_.files = 1 + static_cast<uint32_t>(below(random, 6));
        config_.keep_shared = static_cast<uint32_t>(below(random, 3));
        with_original_files_ = below(random, 2) == 0;
        run_and_die(2, 1 + below(random, 160), below(random, 2) == 0);
        const auto planned = planned_everywhere();
        const auto before = committed();
        for (uint64_t i = below(random, 8); i > 0; --i) {
            FaultPlan faults;
            faults.die_at_operation = 1 + below(random, 60);
            const auto shared = std::make_shared<FaultyStorage>(machines_.shared, seed, faults);
            const int node = static_cast<int>(below(random, node_count));
            (void)drain(node, shared);
            if (below(random, 3) == 0)
                machines_.shared->crash(random);
            else
                machines_.shared->process_death();
            machines_.local_of(host_of(node))->process_death();
        }
        for (int round = 0; round < 2; ++round)
            for (int node = 0; node < node_count; ++node) {
                const auto pass = drain(node);
                ASSERT_TRUE(pass.ok()) << pass.status().to_string();
                for (const auto& epoch : pass->epochs)
                    EXPECT_NE(epoch.state, State::failed) << epoch.why.to_string();
            }
        machines_.shared->crash(random);  // what is committed is durable
        const auto after = complete();
        std::set<uint64_t> expected(before.begin(), before.end());
        expected.insert(planned.begin(), planned.end());
        if (config_.keep_shared == 1 && expected.size() == 2) expected.erase(1);
        EXPECT_THAT(after, testing::IsSupersetOf(expected));
        for (const auto epoch : after) expect_in_shared(epoch);
        if (with_original_files_)
            for (const auto epoch : complete()) expect_original_files(epoch);
    }
}

// A node has three files for itself. The program has completed two of them, and the node's first pass commits
// its segment in the third and then dies. Streams are spread over all files, and not in the same way.
TEST_F(NodeDrainTest, FilesOfOneNodeComeFromOneAttempt) {
    hosts_ = hosts_of(1, 2);
    config_.files = 3;
    const SharedFileName first{config_.name, {1, 1}, 0, 3, false}, last{config_.name, {1, 1}, 2, 3, false};
    int mixtures = 0;
    for (uint64_t session_dies = 20; session_dies < 90; ++session_dies) {
        machines_ = {};
        run_and_die(1, session_dies);
        const auto is_there = [&](const SharedFileName& name) {
            const auto head =
                read_shared_head(*machines_.shared, join_path(config_.shared_dir, unfinished_name(name)));
            return head.ok() && head->slots[0].ok();
        };
        if (records_of(0).empty() || !is_there(first) || !is_there(last)) continue;
        for (const auto& lost : {first, last})
            for (uint64_t drain_dies = 4; drain_dies < 120; ++drain_dies) {
                SCOPED_TRACE(testing::Message() << "operations " << session_dies << " and " << drain_dies);
                machines_ = {};
                run_and_die(1, session_dies);
                (void)machines_.shared->remove(join_path(config_.shared_dir, unfinished_name(lost)));
                FaultPlan faults;
                faults.die_at_operation = drain_dies;
                (void)drain(0, std::make_shared<FaultyStorage>(machines_.shared, 1, faults));
                machines_.shared->process_death();
                machines_.local_of("m0")->process_death();
                const auto pass = drain(0);
                ASSERT_TRUE(pass.ok());
                ASSERT_THAT(committed(), ElementsAre(1))
                    << (pass->epochs.empty() ? "" : pass->epochs[0].why.to_string());
                EXPECT_THAT(left_in_shared(), IsEmpty());
                ++mixtures;
            }
        break;
    }
    EXPECT_GT(mixtures, 0);
}

// The machines come in another order, so the groups of the next session have other ranks. It flushes what was
// captured, and dies with some file complete.
TEST_F(NodeDrainTest, AFlushInOtherGroupsIsNotMixedWithThatOfTheRecords) {
    config_.files = 3;
    int mixtures = 0;
    for (uint64_t dies = 30; dies < 90; ++dies) {
        SCOPED_TRACE(testing::Message() << "operation " << dies);
        machines_ = {};
        run_and_die_planned(1);
        ASSERT_THAT(planned_everywhere(), ElementsAre(1));
        std::reverse(hosts_.begin(), hosts_.end());
        run_and_die(0, dies);
        std::reverse(hosts_.begin(), hosts_.end());
        if (planned_everywhere().empty() || !complete().empty()) continue;
        for (uint32_t k = 0; k < config_.files; ++k) {
            const SharedFileName name{config_.name, {1, 1}, k, config_.files, false};
            const auto head =
                read_shared_head(*machines_.shared, join_path(config_.shared_dir, unfinished_name(name)));
            mixtures += head.ok() && std::all_of(head->slots.begin(), head->slots.end(),
                                                 [](const auto& slot) { return slot.ok(); });
        }
        for (int round = 0; round < 2; ++round)
            for (int node = 0; node < node_count; ++node) ASSERT_TRUE(drain(node).ok());
        ASSERT_THAT(committed(), ElementsAre(1));
        EXPECT_THAT(left_in_shared(), IsEmpty());
        expect_in_shared(1);
    }
    EXPECT_GT(mixtures, 0);
}

TEST_F(NodeDrainTest, AWatcherHearsHowFarAShareIs) {
    run_and_die_planned(2);
    NodeDrain drain(config_, machines_.local_of("m0"), machines_.shared);
    std::map<uint64_t, std::vector<uint64_t>> heard;  // bytes, by epoch
    drain.watch([&](const DrainedEpoch& epoch, uint64_t, uint64_t bytes) {
        heard[epoch.key.epoch].push_back(bytes);
    });
    const auto pass = drain.pass(directory_of(0), never);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 2);
    for (const auto& epoch : pass->epochs) {
        const auto& bytes = heard[epoch.key.epoch];
        ASSERT_GE(bytes.size(), 2u);
        EXPECT_EQ(bytes.front(), 0u);
        EXPECT_EQ(bytes.back(), epoch.own_bytes);
        EXPECT_TRUE(std::is_sorted(bytes.begin(), bytes.end()));
    }
    heard.clear();
    ASSERT_TRUE(drain.pass(directory_of(0), never).ok());
    EXPECT_THAT(heard, IsEmpty()) << "its share is written already";
}

TEST_F(NodeDrainTest, TheBandwidthCapCountsWhatEarlierPassesHaveWritten) {
    run_and_die_planned(1);
    const auto cap = std::make_shared<BandwidthCap>(1);
    const std::chrono::nanoseconds now = SteadyClock::now().time_since_epoch();
    cap->book(static_cast<uint64_t>(now.count()), 1'000'000);  // days
    NodeDrain drain(config_, machines_.local_of("m0"), machines_.shared);
    drain.share(cap);
    int asked = 0;
    const auto pass = drain.pass(directory_of(0), [&] { return ++asked > 3; });
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::stopped);
}

TEST_F(NodeDrainTest, ASessionThatLivesIsNotDisturbed) {
    run_and_die_planned(1);
    Job job = job_on(machines_, hosts_);
    job.config = config_;
    // Its shared directory is another one, so it uses other directories of the node-local tier.
    const auto local = machines_.local_of("m0")->lock_directory(directory_of(0));
    ASSERT_TRUE(local.ok());
    auto pass = drain(0);
    ASSERT_TRUE(pass.ok());
    EXPECT_EQ(pass->busy.code(), Code::busy);
    EXPECT_THAT(pass->epochs, IsEmpty());
    const auto shared = machines_.shared->lock_directory(config_.shared_dir);
    ASSERT_TRUE(shared.ok());
    pass = drain(1);
    ASSERT_TRUE(pass.ok());
    EXPECT_EQ(pass->busy.code(), Code::busy);
    EXPECT_THAT(pass->epochs, IsEmpty());
    EXPECT_THAT(records_of(0), SizeIs(1));
}

TEST_F(NodeDrainTest, ADrainExcludesSessionsAndNotOtherDrains) {
    run_and_die_planned(1);
    NodeDrain first(config_, machines_.local_of("m0"), machines_.shared);
    int asked = 0;
    // While the first node works, another one works as well, but no session, and not the same node twice.
    const auto pass = first.pass(directory_of(0), [&] {
        if (asked++ == 0) {
            const auto second = drain(1);
            EXPECT_TRUE(second.ok() && second->busy.ok());
            const auto same = drain(0);
            EXPECT_TRUE(same.ok());
            EXPECT_EQ(same->busy.code(), Code::busy);
        }
        return false;
    });
    ASSERT_TRUE(pass.ok());
    EXPECT_GT(asked, 0);
    EXPECT_TRUE(machines_.shared->lock_directory(config_.shared_dir).ok()) << "it is free again";
}

TEST_F(NodeDrainTest, ADamagedOrMissingPartIsNotCommitted) {
    for (const bool missing : {true, false}) {
        machines_ = {};
        run_and_die_planned(1);
        const auto part = join_path(directory_of(2), to_string(PartFileName{config_.name, {1, 1}, 5, false}));
        auto& local = *machines_.local_of("m2");
        if (missing) {
            ASSERT_TRUE(local.remove(part).ok());
        } else {
            const auto file = local.open(part, {Access::write, DirectIo::off});
            ASSERT_TRUE(file.ok());
            ASSERT_TRUE((*file)->write_at(std::vector<std::byte>(64), 20000).ok());
        }
        for (int node = 0; node < node_count; ++node) {
            const auto pass = drain(node);
            ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
            EXPECT_EQ(pass->epochs[0].state, node == 2 ? State::failed : State::waiting);
            if (node == 2) {
                EXPECT_THAT(pass->epochs[0].why.message(), HasSubstr("p00005.capture"));
            }
        }
        EXPECT_THAT(committed(), IsEmpty());
    }
}

TEST_F(NodeDrainTest, APartOfAnotherRunIsNotTaken) {
    run_and_die_planned(1);
    auto& local = *machines_.local_of("m2");
    const auto part = join_path(directory_of(2), to_string(PartFileName{config_.name, {1, 1}, 5, false}));
    const auto file = local.open(part, {Access::write, DirectIo::off});
    ASSERT_TRUE(file.ok());
    auto header = captured_part(local, part)->header;
    header.run_uid ^= 1;
    ASSERT_TRUE((*file)->write_at(encode(header), 0).ok());
    const auto pass = drain(2);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::failed);
    EXPECT_THAT(pass->epochs[0].why.message(), HasSubstr("not the captured part"));
}

// The next session finds some takeovers complete and others not. It flushes what it has captured itself, and
// nothing of a takeover stays.
TEST_F(NodeDrainTest, TheNextSessionGoesOnFromWhereTheNodesAre) {
    for (const auto& nodes : std::vector<std::vector<int>>{{0}, {0, 1}, {2, 3, 0}, {0, 1, 2, 3}}) {
        machines_ = {};
        run_and_die_planned(2);
        for (const int node : nodes) ASSERT_TRUE(drain(node).ok());
        Job job = job_on(machines_, hosts_);
        job.config = config_;
        run(job, [&](Checkpointer& session) {
            expect_restored(session, std::nullopt, 2);
            ASSERT_TRUE(session.wait_all(for_ever).ok());
        });
        EXPECT_THAT(committed(), ElementsAre(1, 2));
        EXPECT_THAT(left_in_shared(), IsEmpty());
        for (int node = 0; node < node_count; ++node) EXPECT_THAT(records_of(node), IsEmpty());
        expect_in_shared(1);
        expect_in_shared(2);
    }
}

TEST_F(NodeDrainTest, TheNewestEpochGoesFirstWhereTimeIsShort) {
    run_and_die_planned(2);
    NodeDrain drain(config_, machines_.local_of("m0"), machines_.shared);
    bool first = true;
    const auto pass = drain.pass(
        directory_of(0), [&] { return !std::exchange(first, false); }, NodeDrain::Order::newest_first);
    ASSERT_TRUE(pass.ok());
    ASSERT_THAT(pass->epochs, SizeIs(2));
    EXPECT_EQ(pass->epochs[0].state, State::stopped);
    EXPECT_EQ(pass->epochs[1].key.epoch, 2u);
    EXPECT_THAT(pass->epochs[1].state, AnyOf(State::waiting, State::stopped));
}

TEST_F(NodeDrainTest, WhatANewerEpochHasMadePointlessIsDropped) {
    config_.keep_shared = 1;
    run_and_die_planned(2);
    for (int node = 0; node < node_count; ++node)
        ASSERT_TRUE(machines_.local_of(host_of(node))
                        ->rename(join_path(directory_of(node), records_of(node).front()),
                                 join_path(directory_of(node), "kept"))
                        .ok());
    for (int node = 0; node < node_count; ++node) ASSERT_TRUE(drain(node).ok());
    EXPECT_THAT(committed(), ElementsAre(2));
    for (int node = 0; node < node_count; ++node) {
        const PlanFileName name{config_.name, {1, 1}, static_cast<uint32_t>(node), false};
        ASSERT_TRUE(machines_.local_of(host_of(node))
                        ->rename(join_path(directory_of(node), "kept"),
                                 join_path(directory_of(node), to_string(name)))
                        .ok());
        const auto pass = drain(node);
        ASSERT_TRUE(pass.ok() && !pass->epochs.empty());
        EXPECT_EQ(pass->epochs[0].state, State::superseded);
        EXPECT_THAT(records_of(node), IsEmpty());
    }
    EXPECT_THAT(committed(), ElementsAre(2));
}

TEST_F(NodeDrainTest, OlderEpochsAreCommittedAfterTheNewest) {
    run_and_die_planned(2);
    for (int node = 0; node < node_count; ++node)
        ASSERT_TRUE(drain(node, nullptr, NodeDrain::Order::newest_first).ok());
    EXPECT_THAT(committed(), ElementsAre(1, 2));
    expect_in_shared(1);
}

TEST_F(NodeDrainTest, WhatIsLeftToDoFollowsFromTheCompleteEpochs) {
    const std::vector<EpochKey> whole{{5, 1}, {7, 1}};
    EXPECT_EQ(epoch_need({7, 1}, 0, whole), EpochNeed::committed);
    EXPECT_EQ(epoch_need({8, 1}, 1, whole), EpochNeed::flush);
    EXPECT_EQ(epoch_need({6, 1}, 0, whole), EpochNeed::flush);
    EXPECT_EQ(epoch_need({6, 1}, 2, whole), EpochNeed::flush);
    EXPECT_EQ(epoch_need({6, 1}, 1, whole), EpochNeed::superseded);
    EXPECT_EQ(epoch_need({6, 1}, 0, {{5, 2}}), EpochNeed::superseded) << "a later run went on from 5";
    EXPECT_EQ(epoch_need({4, 1}, 0, {{5, 2}}), EpochNeed::flush);
}

// Counts how often captured parts are opened, or does not find a file that is to be written.
class WatchedStorage final : public test::ForwardingStorage {
  public:
    using ForwardingStorage::ForwardingStorage;
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        parts_opened += path.ends_with(".capture");
        if (lacks_files && options.access != Access::read)
            return Status(Code::not_found, fmt::format("opening '{}': it is not there (injected)", path));
        return ForwardingStorage::open(path, options);
    }
    std::atomic<int> parts_opened{0};
    std::atomic<bool> lacks_files{false};
};

// It may have been moved away for a while. What was captured is sound.
// As a file server may leave it after a crash, or somebody else may have put it there.
TEST_F(NodeDrainTest, AFileThatHasNothingButItsNameIsReplaced) {
    for (const size_t bytes : {0, 5000}) {
        SCOPED_TRACE(bytes);
        machines_ = {};
        run_and_die_planned(2);
        ASSERT_THAT(planned_everywhere(), ElementsAre(1, 2));
        for (uint32_t file = 0; file < config_.files; ++file) {
            const SharedFileName name{config_.name, {2, 1}, file, config_.files, false};
            const auto path = join_path(config_.shared_dir, to_string(name));
            auto opened = machines_.shared->open(path, {Access::write, DirectIo::off});
            ASSERT_TRUE(opened.ok());
            ASSERT_TRUE((*opened)->write_at(std::vector<std::byte>(bytes, std::byte{'x'}), 0).ok());
        }
        EXPECT_THAT(complete(), IsEmpty());
        for (const int node : {2, 0, 3, 1}) {
            const auto pass = drain(node);
            ASSERT_TRUE(pass.ok()) << pass.status().to_string();
            for (const auto& epoch : pass->epochs)
                EXPECT_EQ(epoch.state, node == 1 ? State::committed : State::waiting) << epoch.key.epoch;
        }
        EXPECT_THAT(committed(), ElementsAre(1, 2));
        expect_in_shared(2);
    }
}

TEST_F(NodeDrainTest, AFileThatIsMissingInTheSharedDirectoryIsNoReasonToGiveUp) {
    run_and_die_planned(2);
    for (int node = 0; node < node_count; ++node) {  // epoch 2 alone
        auto& local = *machines_.local_of(host_of(node));
        const auto first = join_path(directory_of(node), records_of(node).front());
        ASSERT_TRUE(local.rename(first, join_path(directory_of(node), "kept")).ok());
    }
    for (const int node : {1, 2, 3, 0}) ASSERT_TRUE(drain(node).ok());
    ASSERT_THAT(committed(), ElementsAre(2));
    ASSERT_THAT(records_of(0), IsEmpty());
    const auto record = to_string(PlanFileName{config_.name, {1, 1}, 0, false});
    ASSERT_TRUE(machines_.local_of("m0")
                    ->rename(join_path(directory_of(0), "kept"), join_path(directory_of(0), record))
                    .ok());
    const auto shared = std::make_shared<WatchedStorage>(machines_.shared);
    shared->lacks_files = true;
    const auto pass = drain(0, shared);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::failed);
    EXPECT_EQ(pass->epochs[0].why.code(), Code::not_found);
    EXPECT_THAT(records_of(0), ElementsAre(record));
    // A missing part is one.
    const auto part = join_path(directory_of(0), to_string(PartFileName{config_.name, {1, 1}, 1, false}));
    ASSERT_TRUE(machines_.local_of("m0")->remove(part).ok());
    const auto again = drain(0);
    ASSERT_TRUE(again.ok() && again->epochs.size() == 1);
    EXPECT_EQ(again->epochs[0].state, State::superseded);
    EXPECT_THAT(records_of(0), IsEmpty());
}

// Other shares of the epoch are written meanwhile, and an epoch that is complete gets its names.
TEST_F(NodeDrainTest, AShareThatHasFailedIsNotReadAgainUntilItHasRested) {
    run_and_die_planned(1);
    const auto part = join_path(directory_of(0), to_string(PartFileName{config_.name, {1, 1}, 1, false}));
    const auto file = machines_.local_of("m0")->open(part, {Access::write, DirectIo::off});
    ASSERT_TRUE(file.ok() && (*file)->write_at(std::vector<std::byte>(64), 20000).ok());
    const auto local = std::make_shared<WatchedStorage>(machines_.local_of("m0"));
    FailedShares failed;
    NodeDrain drain(config_, local, machines_.shared);
    drain.rest_after_failures(failed);
    std::string why;
    for (int pass = 0; pass < 5; ++pass) {
        if (pass == 4) failed.end_rests();
        local->parts_opened = 0;
        const auto done = drain.pass(directory_of(0), never);
        ASSERT_TRUE(done.ok() && done->epochs.size() == 1);
        EXPECT_EQ(done->epochs[0].state, State::failed);
        EXPECT_EQ(local->parts_opened > 0, pass == 0 || pass == 4) << pass;
        if (pass == 0) why = done->epochs[0].why.message();
        EXPECT_THAT(done->epochs[0].why.message(), HasSubstr("checksum"));
        EXPECT_EQ(done->epochs[0].why.message(), why);
    }
}

TEST(FailedSharesTest, ARestIsTwiceAsLongAfterEachFurtherFailure) {
    using namespace std::chrono_literals;
    FailedShares failed;
    const ShareId share{"/shared", "job", {1, 1}, 3}, other{"/shared", "job", {2, 1}, 3};
    SteadyClock::time_point now{100s};
    for (const auto rest : {10s, 20s, 40s, 80s, 160s, 300s, 300s}) {
        EXPECT_FALSE(failed.resting(share, now).has_value());
        failed.failed(share, {Status(Code::corrupt, "bad"), true}, now);
        EXPECT_FALSE(failed.resting(other, now).has_value());
        ASSERT_TRUE(failed.resting(share, now + rest - 1s).has_value());
        EXPECT_EQ(failed.resting(share, now + rest - 1s)->why.message(), "bad");
        EXPECT_TRUE(failed.resting(share, now + rest - 1s)->parts_unusable);
        now += rest;
    }
    failed.failed(share, {Status(Code::io_error, "worse"), false}, now);
    failed.end_rests();
    EXPECT_FALSE(failed.resting(share, now).has_value());
    failed.failed(share, {Status(Code::io_error, "worse"), false}, now);
    EXPECT_TRUE(failed.resting(share, now + 299s).has_value()) << "it goes on from there";
    failed.forget(share);
    failed.failed(share, {Status(Code::io_error, "anew"), false}, now);
    EXPECT_FALSE(failed.resting(share, now + 10s).has_value());
}

TEST_F(NodeDrainTest, DirectoriesAreFoundByTheirRecords) {
    run_and_die_planned(1);
    auto& local = *machines_.local_of("m1");
    std::vector<std::string> skipped;
    const auto found = directories_to_drain(local, config_.local_dir, skipped);
    ASSERT_TRUE(found.ok());
    EXPECT_THAT(*found, ElementsAre(directory_of(1)));
    EXPECT_THAT(*directories_to_drain(local, "/nowhere", skipped), IsEmpty());
    for (int node = 0; node < node_count; ++node) (void)drain(node);
    (void)drain(1);
    EXPECT_THAT(*directories_to_drain(local, config_.local_dir, skipped), IsEmpty());
}

}  // namespace
}  // namespace tailrace::internal
