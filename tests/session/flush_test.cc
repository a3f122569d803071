// Where an epoch goes after its capture: to the shared tier or not, in what order, when it counts, what is
// kept, and what the next session makes of what was left. Ranks are threads, storages are in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "catalog/catalog.h"
#include "session/sample_program.h"
#include "storage/forwarding_storage.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(FlushTest, EveryNthSaveGoesToTheSharedTierAndTheOthersStayLocal) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        job.config.shared_every = 3;
        job.config.keep_local = 4;
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 5; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait_all(for_ever).ok());
            for (const auto& [epoch, expected] : {std::pair{1, EpochState::committed},
                                                  {2, EpochState::kept_local},
                                                  {3, EpochState::kept_local},
                                                  {4, EpochState::committed},
                                                  {5, EpochState::kept_local}})
                EXPECT_EQ(session.state(static_cast<uint64_t>(epoch))->state, expected) << epoch;
            EXPECT_THAT(session.state(2)->note, HasSubstr("by shared_every"));
            expect_restored(session, std::nullopt, 5);
            ASSERT_TRUE(session.close().ok());
            EXPECT_EQ(session.state(3)->state, EpochState::kept_local);
            EXPECT_EQ(session.state(5)->state, EpochState::committed) << "the newest";
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(3 * job.config.files));
        Machines elsewhere;
        elsewhere.shared = machines.shared;
        run(job_on(elsewhere, job.hosts),
            [&](Checkpointer& session) { expect_restored(session, std::nullopt, 5); });
    }
}

// A shared storage in which, while it is held, no file with `part_of_path` in its path can be written.
class HeldStorage : public test::ForwardingStorage {
  public:
    explicit HeldStorage(std::shared_ptr<Storage> inner, std::string part_of_path = "")
        : ForwardingStorage(std::move(inner)), part_of_path_(std::move(part_of_path)) {}
    void hold(bool held) {
        std::lock_guard lock(mutex_);
        held_ = held;
        changed_.notify_all();
    }
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        if (options.access != Access::read && path.find(part_of_path_) != std::string::npos) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !held_; });
        }
        return inner().open(path, options);
    }

  private:
    const std::string part_of_path_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool held_ = false;
};

TEST(FlushTest, SkipKeepsAnEpochLocalWhileTheQueueIsFull) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        auto held = std::make_shared<HeldStorage>(machines.shared);
        job.shared = held;
        job.config.queue_policy = QueuePolicy::skip;
        job.config.queue_epochs = 1;
        held->hold(true);
        std::atomic<int> saved{0};
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            if (++saved == 4) held->hold(false);
            ASSERT_TRUE(session.wait_all(for_ever).ok());
            EXPECT_EQ(session.state(1)->state, EpochState::committed);
            EXPECT_EQ(session.state(2)->state, EpochState::kept_local);
            EXPECT_EQ(session.state(3)->state, EpochState::kept_local);
            EXPECT_THAT(session.state(3)->note, HasSubstr("by queue_policy skip"));
            ASSERT_TRUE(save(session, state, 4).ok());
            ASSERT_TRUE(session.wait(4, for_ever).ok());
            EXPECT_EQ(session.state(4)->state, EpochState::committed);
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(2 * job.config.files));
    }
}

TEST(FlushTest, DropOldestFlushesTheNewestOfWhatHasQueued) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        auto held = std::make_shared<HeldStorage>(machines.shared);
        job.shared = held;
        job.config.queue_policy = QueuePolicy::drop_oldest;
        held->hold(true);
        std::atomic<int> saved{0};
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 4; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            if (++saved == 4) held->hold(false);
            ASSERT_TRUE(session.wait_all(for_ever).ok());
            EXPECT_EQ(session.state(1)->state, EpochState::committed);
            EXPECT_EQ(session.state(2)->state, EpochState::kept_local);
            EXPECT_EQ(session.state(3)->state, EpochState::kept_local);
            EXPECT_THAT(session.state(3)->note, HasSubstr("by queue_policy drop_oldest"));
            EXPECT_EQ(session.state(4)->state, EpochState::committed);
        });
    }
}

TEST(FlushTest, NoFileHasItsFinalNameBeforeEveryGroupHasCommitted) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 1));
        job.concurrent = concurrent;
        auto held = std::make_shared<HeldStorage>(machines.shared, "2of2");
        job.shared = held;
        held->hold(true);
        const auto first =
            join_path(job.config.shared_dir, to_string(SharedFileName{"job", {1, 1}, 0, 2, false})) +
            ".unfinished";
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 1).ok());
            if (session.rank() == 0) {
                auto committed = [&] {
                    const auto head = read_shared_head(*machines.shared, first);
                    return head.ok() && head->slots[0].ok();
                };
                while (!committed()) std::this_thread::sleep_for(1ms);
                EXPECT_EQ(session.wait(1, 20ms).code(), Code::timeout);
            } else if (!concurrent) {
                EXPECT_EQ(session.wait(1, 20ms).code(), Code::timeout);
            }
            if (session.rank() == 0) {
                EXPECT_THAT(shared_names(machines, job.config),
                            testing::ElementsAre("job.e000000001.r0001.1of2.tailrace.unfinished"));
                held->hold(false);
            }
            ASSERT_TRUE(session.wait(1, for_ever).ok());
            EXPECT_EQ(session.state(1)->state, EpochState::committed);
            EXPECT_TRUE(session.close().ok());
        });
        EXPECT_THAT(shared_names(machines, job.config),
                    testing::UnorderedElementsAre("job.e000000001.r0001.1of2.tailrace",
                                                  "job.e000000001.r0001.2of2.tailrace"));
    }
}

TEST(FlushTest, AnEpochWhoseFilesCannotBeRenamedIsCommittedAllTheSame) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 1));
        job.concurrent = concurrent;
        FaultPlan plan;
        plan.rename_error = 1;
        job.shared = std::make_shared<FaultyStorage>(machines.shared, 1, plan);
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 1).ok());
            ASSERT_TRUE(session.wait(1, for_ever).ok());
            EXPECT_EQ(session.state(1)->state, EpochState::committed);
            EXPECT_TRUE(session.close().ok());
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::Each(testing::EndsWith("unfinished")));
        job = job_on(machines, {"elsewhere"});
        run(job, [&](Checkpointer& session) {
            auto reader = session.open_epoch(1, std::nullopt, true);
            EXPECT_TRUE(reader.ok()) << reader.status().to_string();
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::Each(testing::EndsWith("tailrace")));
    }
}

TEST(FlushTest, WaitPolicyHoldsSaveUntilThereIsRoomAndWaitTimesOut) {
    Machines machines;
    auto job = job_on(machines, {"m"});
    auto held = std::make_shared<HeldStorage>(machines.shared);
    job.shared = held;
    job.config.queue_epochs = 2;
    held->hold(true);
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(save(session, state, 2).ok());
        EXPECT_EQ(session.wait(1, 20ms).code(), Code::timeout);
        EXPECT_NE(session.state(2)->state, EpochState::committed);
        std::atomic<bool> third{false};
        std::thread saver([&] {
            EXPECT_TRUE(save(session, state, 3).ok());
            third = true;
        });
        std::this_thread::sleep_for(50ms);
        EXPECT_FALSE(third);
        held->hold(false);
        saver.join();
        EXPECT_TRUE(session.wait_all(for_ever).ok());
        EXPECT_EQ(session.state(3)->state, EpochState::committed);
    });
}

TEST(FlushTest, RetentionKeepsTheNewestInBothTiers) {
    for (const bool offer_map : {false, true}) {
        Machines machines;
        machines.local_options.offer_map = offer_map;
        auto job = job_on(machines, hosts_of(2, 1));
        job.config.keep_local = 2;
        job.config.keep_shared = 3;
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 9; ++epoch) {
                const auto saved = save(session, state, epoch);
                ASSERT_TRUE(saved.ok()) << saved.to_string();
                const auto waited = session.wait(epoch, for_ever);
                ASSERT_TRUE(waited.ok()) << waited.to_string();
            }
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(3 * job.config.files));
        for (auto& [host, storage] : machines.local) {
            auto tiers = storage->list("/local");
            ASSERT_TRUE(tiers.ok());
            ASSERT_EQ(tiers->size(), 1u);
            auto listing = list_local(*storage, "/local/" + (*tiers)[0].name, "job");
            ASSERT_TRUE(listing.ok());
            EXPECT_EQ(listing->parts.size(), 2u);
            EXPECT_EQ(listing->parts.back().header.key.epoch, 9u);
            EXPECT_TRUE(listing->leftovers.empty());
        }
        run(job, [&](Checkpointer& session) {
            expect_restored(session, std::nullopt, 9);
            expect_restored(session, 8, 8);
            expect_restored(session, 7, 7);
            State state;
            EXPECT_EQ(session.restore(6, {}).status().code(), Code::invalid_argument);
        });
    }
}

TEST(FlushTest, SavesOneAfterTheOtherLeaveNoMoreThanIsToBeKept) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, {"m", "m", "m"});
        job.concurrent = concurrent;
        job.config.keep_local = 2;
        job.config.shared_every = 1000;
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 60; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        });
        auto& storage = *machines.local.at("m");
        const auto tiers = storage.list("/local");
        ASSERT_TRUE(tiers.ok() && tiers->size() == 1);
        const auto listing = list_local(storage, "/local/" + tiers->front().name, "job");
        ASSERT_TRUE(listing.ok());
        std::vector<std::pair<uint64_t, uint32_t>> left;
        for (const auto& part : listing->parts)
            left.emplace_back(part.header.key.epoch, part.header.stream.rank);
        using testing::Pair;
        EXPECT_THAT(left, testing::ElementsAre(Pair(59, 0), Pair(59, 1), Pair(59, 2), Pair(60, 0),
                                               Pair(60, 1), Pair(60, 2)));
    }
}

TEST(FlushTest, ARunThatBeginsAnewKeepsWhatItCommitsAndIsWarned) {
    std::mutex mutex;
    std::string warnings;
    set_log_callback([&](LogLevel, std::string_view message) {
        std::lock_guard lock(mutex);
        warnings.append(message).append("\n");
    });
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.keep_shared = 2;
    auto save_all = [&](std::initializer_list<uint64_t> epochs) {
        run(job, [&](Checkpointer& session) {
            State state;
            for (const uint64_t epoch : epochs) {
                ASSERT_TRUE(save(session, state, epoch).ok());
                ASSERT_TRUE(session.wait(epoch, for_ever).ok());
            }
        });
    };
    save_all({100, 110, 120});
    EXPECT_EQ(warnings, "");
    save_all({10, 20, 30});
    set_log_callback({});
    EXPECT_THAT(warnings, HasSubstr("epoch 10 is saved while epoch 120 of run 1 lies in"));
    run(job, [&](Checkpointer& session) {
        expect_restored(session, 20, 20);
        expect_restored(session, 30, 30);
        expect_restored(session, 120, 120);
        expect_restored(session, std::nullopt, 30);
        EXPECT_EQ(session.open_epoch(10, std::nullopt, false).status().code(), Code::invalid_argument);
    });
}

TEST(FlushTest, FewerRanksThanSavedAreWarnedOfWhatNobodyRead) {
    std::mutex mutex;
    std::string warnings;
    set_log_callback([&](LogLevel level, std::string_view message) {
        std::lock_guard lock(mutex);
        if (level == LogLevel::warning) warnings.append(message).append("\n");
    });
    Machines machines;
    run(job_on(machines, hosts_of(4, 1)), [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
    });
    run(job_on(machines, hosts_of(4, 1)),
        [&](Checkpointer& session) { expect_restored(session, std::nullopt, 1); });
    EXPECT_EQ(warnings, "");
    run(job_on(machines, hosts_of(3, 1)),
        [&](Checkpointer& session) { expect_restored(session, std::nullopt, 1); });
    set_log_callback({});
    EXPECT_THAT(warnings,
                HasSubstr("was saved by 4 ranks and is restored by 3: the plain regions of ranks from 3 on"));
    EXPECT_THAT(warnings, HasSubstr("region \"first\""));
}

TEST(FlushTest, AnEpochThatLacksAFileLeavesNothingBehind) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    auto save_from = [&](std::optional<uint64_t> from, uint64_t first, uint64_t last) {
        run(job, [&](Checkpointer& session) {
            if (from) expect_restored(session, *from, *from);
            State state;
            for (uint64_t epoch = first; epoch <= last; ++epoch)
                ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.close().ok());
        });
    };
    save_from(std::nullopt, 1, 4);
    save_from(2, 3, 3);
    run(job, [&](Checkpointer& session) {
        expect_restored(session, std::nullopt, 3);
        std::vector<uint64_t> listed;
        for (const auto& info : *session.list()) listed.push_back(info.epoch);
        EXPECT_THAT(listed, testing::ElementsAre(3, 2, 1, 4));  // what is left behind comes last
    });
    machines.local.clear();
    for (const auto& host : job.hosts) machines.local_of(host);
    for (const auto& name : shared_names(machines, job.config)) {
        if (name.find("3.r0002.2of2") != std::string::npos) {
            ASSERT_TRUE(machines.shared->remove(join_path(job.config.shared_dir, name)).ok());
        }
    }
    run(job, [&](Checkpointer& session) { expect_restored(session, std::nullopt, 4); });
}

// A shared storage in which somebody removes a file before it gets its final name.
class ThievingStorage : public MemoryStorage {
  public:
    Status rename(const std::string& from, const std::string& to) override {
        if (to.find("1of2") != std::string::npos) (void)MemoryStorage::remove(from);
        return MemoryStorage::rename(from, to);
    }
};

TEST(FlushTest, AnEpochWhoseFileDisappearsBeforeItHasItsNameIsNotCommitted) {
    set_log_level(LogLevel::off);
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.shared = std::make_shared<ThievingStorage>();
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        const auto waited = session.wait(1, for_ever);
        EXPECT_EQ(waited.code(), Code::not_found);
        EXPECT_THAT(waited.message(), HasSubstr("has disappeared"));
        expect_restored(session, std::nullopt, 1);  // from the node-local tier
    });
    set_log_level(LogLevel::warning);
}

TEST(FlushTest, ACapturedPartThatIsCutIsNoFirstRun) {
    set_log_level(LogLevel::off);
    Machines machines;
    auto job = job_on(machines, hosts_of(1, 2));
    job.config.shared_every = 2;
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(save(session, state, 2).ok());
        ASSERT_TRUE(session.close().ok());
    });
    const auto& local = machines.local.begin()->second;
    const auto node = join_path(job.config.local_dir, local->list(job.config.local_dir)->front().name);
    for (const auto& part : *local->list(node)) {
        auto file = local->open(join_path(node, part.name), {Access::write, DirectIo::off});
        if (file.ok() && part.name.ends_with(".capture")) {
            ASSERT_TRUE((*file)->truncate(5000).ok());
        }
    }
    for (const auto& name : shared_names(machines, job.config))
        ASSERT_TRUE(machines.shared->remove(join_path(job.config.shared_dir, name)).ok());
    run(job, [&](Checkpointer& session) {
        const auto restored = session.restore(std::nullopt, {}).status();
        EXPECT_EQ(restored.code(), Code::corrupt);
        EXPECT_THAT(restored.message(), HasSubstr(".capture"));
    });
    set_log_level(LogLevel::warning);
}

// Files that are not what their names say: a copy under a later run's name, one under another K, an empty one
// of a run that cannot be.
TEST(FlushTest, StrayFilesHideNothing) {
    set_log_level(LogLevel::off);
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 5; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        ASSERT_TRUE(session.close().ok());
    });
    machines.local.clear();
    for (const auto& host : job.hosts) machines.local_of(host);
    const auto& directory = job.config.shared_dir;
    const auto copy = [&](const SharedFileName& from, const SharedFileName& to) {
        auto source =
            machines.shared->open(join_path(directory, to_string(from)), {Access::read, DirectIo::off});
        auto target =
            machines.shared->open(join_path(directory, to_string(to)), {Access::write, DirectIo::off});
        ASSERT_TRUE(source.ok() && target.ok());
        std::vector<std::byte> bytes(*(*source)->size());
        ASSERT_TRUE((*source)->read_at(bytes, 0).ok());
        ASSERT_TRUE((*target)->write_at(bytes, 0).ok());
    };
    for (const uint32_t k : {0u, 1u}) copy({"job", {3, 1}, k, 2, false}, {"job", {3, 9}, k, 2, false});
    copy({"job", {5, 1}, 0, 2, false}, {"job", {5, 1}, 0, 1, false});
    const SharedFileName of_no_run{"job", {2, UINT32_MAX}, 0, 1, false};
    ASSERT_TRUE(
        machines.shared->open(join_path(directory, to_string(of_no_run)), {Access::write, DirectIo::off})
            .ok());
    for (int again = 0; again < 2; ++again)
        run(job, [&](Checkpointer& session) {
            const auto newest = 5 + static_cast<uint64_t>(again);
            expect_restored(session, std::nullopt, newest);
            expect_restored(session, 5, 5);
            State state;
            ASSERT_TRUE(save(session, state, newest + 1).ok());
            ASSERT_TRUE(session.close().ok());
        });
    set_log_level(LogLevel::warning);
}

// ---- recovery --------------------------------------------------------------------------------------------

TEST(FlushTest, ACapturedEpochWhoseFlushFailedIsFlushedByTheNextSession) {
    for (const bool concurrent : {true, false})
        for (const int nodes_later : {2, 1, 4}) {
            Machines machines;
            auto job = job_on(machines, std::vector<std::string>(4, "m"));  // one machine, laid out as nodes
            job.concurrent = concurrent;
            job.config.ranks_per_node = 2;
            auto faulty = std::make_shared<FaultyStorage>(machines.shared, 1);
            job.shared = faulty;
            std::atomic<int> ready{0};
            run(job, [&](Checkpointer& session) {
                State state;
                ASSERT_TRUE(save(session, state, 1).ok());
                ASSERT_TRUE(session.wait_all(for_ever).ok());
                if (++ready == 4) {
                    FaultPlan plan;
                    plan.sync_error = 1;
                    faulty->set_plan(plan);
                }
                while (ready < 4) std::this_thread::sleep_for(1ms);
                ASSERT_TRUE(save(session, state, 2).ok());
                EXPECT_FALSE(session.wait(2, for_ever).ok());
                EXPECT_EQ(session.state(2)->state, EpochState::failed);
                expect_restored(session, std::nullopt, 2);  // from the node-local tier
                EXPECT_FALSE(session.close().ok());
            });
            job.shared = machines.shared;
            job.config.ranks_per_node = static_cast<uint32_t>(4 / nodes_later);
            run(job, [&](Checkpointer& session) {
                expect_restored(session, std::nullopt, 2);
                EXPECT_TRUE(session.close().ok());
            });
            EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(2 * job.config.files));
            machines.local.clear();
            machines.local_of("m");
            run(job, [&](Checkpointer& session) { expect_restored(session, std::nullopt, 2); });
        }
}

TEST(FlushTest, LeftoversOfUnfinishedEpochsAreRemovedAndNeverRestored) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
    });
    auto copy = [&](const std::string& from, const std::string& to) {
        auto source = machines.shared->open(from, {Access::read, DirectIo::off});
        ASSERT_TRUE(source.ok());
        std::vector<std::byte> bytes((*source)->size().value());
        ASSERT_TRUE((*source)->read_at(bytes, 0).ok());
        auto target = machines.shared->open(to, {Access::write, DirectIo::off});
        ASSERT_TRUE(target.ok() && (*target)->write_at(bytes, 0).ok());
    };
    const auto dir = job.config.shared_dir;
    const SharedFileName first{"job", {1, 1}, 0, 2, false};
    auto torn = first;
    torn.key = {2, 1};
    torn.unfinished = true;
    auto begun = machines.shared->open(join_path(dir, to_string(torn)), {Access::write, DirectIo::off});
    ASSERT_TRUE(begun.ok() && (*begun)->write_at(std::vector<std::byte>(8192), 0).ok());
    auto foreign = first;
    foreign.job = "neighbour";
    foreign.key = {7, 1};
    copy(join_path(dir, to_string(first)), join_path(dir, to_string(foreign)));
    run(job, [&](Checkpointer& session) { expect_restored(session, std::nullopt, 1); });
    EXPECT_THAT(
        shared_names(machines, job.config),
        testing::UnorderedElementsAre(to_string(first), to_string(SharedFileName{"job", {1, 1}, 1, 2, false}),
                                      to_string(foreign)));
}

TEST(FlushTest, AFullSharedTierFailsTheEpochAndTheNextOneGoesThrough) {
    Machines machines;
    auto job = job_on(machines, hosts_of(4, 1));
    std::atomic<int> arrived{0};
    auto meet = [&](int round) {
        ++arrived;
        while (arrived < 4 * round) std::this_thread::sleep_for(1ms);
    };
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        meet(1);
        if (session.rank() == 0) machines.shared->set_capacity(machines.shared->used_bytes() + 100000);
        meet(2);
        ASSERT_TRUE(save(session, state, 2).ok());
        const auto failed = session.wait(2, for_ever);
        EXPECT_EQ(failed.code(), Code::no_space);
        EXPECT_THAT(
            failed.message(),
            HasSubstr(
                "its captured parts stay in the node-local tiers until newer ones take their place, and "
                "the next session or `tailrace drain` flushes them; earlier epochs are intact"));
        meet(3);
        if (session.rank() == 0) machines.shared->set_capacity(UINT64_MAX);
        meet(4);
        ASSERT_TRUE(save(session, state, 3).ok());
        EXPECT_TRUE(session.wait(3, for_ever).ok());
        EXPECT_FALSE(session.close().ok());
    });
    EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(2 * job.config.files));
}

}  // namespace
}  // namespace tailrace::internal
