// What a session makes of what earlier ones, or people, left in the shared directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/log.h"
#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "doubles/faulty_storage.h"
#include "format/part_file.h"
#include "session/sample_program.h"
#include "shared/epoch_files.h"
#include "shared/inventory.h"
#include "shared/retention.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(RecoveryTest, AGroupThatCommittedAloneLeavesNothingToTheNextSession) {
    // Its file is whole, the other group never came to create its own.
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
    });
    auto& shared = *machines.shared;
    const SharedFileName first{"job", {1, 1}, 0, 2, false}, second{"job", {1, 1}, 1, 2, false};
    const auto path = [&](const SharedFileName& name) {
        return join_path(job.config.shared_dir, to_string(name));
    };
    ASSERT_TRUE(shared.rename(path(first), path(first) + ".unfinished").ok());
    ASSERT_TRUE(shared.remove(path(second)).ok());
    ASSERT_TRUE(clean_shared(shared, job.config.shared_dir, "job").ok());
    EXPECT_THAT(shared_names(machines, job.config), IsEmpty());
}

// It could not be flushed, and the one before it would be hidden behind it in every session from now on.
TEST(RecoveryTest, ADamagedNewestGivesWayToTheOneBefore) {
    set_log_level(LogLevel::off);
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.shared_every = 100;
    job.config.keep_local = 3;
    job.config.flush_at_close = false;
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        ASSERT_TRUE(session.close().ok());
    });
    const auto tier = local_tier(job.config.local_dir, job.config.shared_dir, job.config.name);
    const auto newest = join_path(tier.directory(1), to_string(PartFileName{"job", {3, 1}, 1, false}));
    {
        const auto part = machines.local_of("m1")->open(newest, {Access::write, DirectIo::off});
        ASSERT_TRUE(part.ok());
        const std::vector<std::byte> wrong(1, std::byte{0x5a});
        ASSERT_TRUE((*part)->write_at(wrong, (*part)->size().value() - 1).ok());
    }
    run(job, [&](Checkpointer& session) { EXPECT_TRUE(session.close().ok()); });
    const auto listed = list_shared(*machines.shared, job.config.shared_dir, "job");
    ASSERT_TRUE(listed.ok() && !listed->empty());
    EXPECT_EQ(listed->back().key, (EpochKey{2, 1}));
}

// Two complete epochs of two files each, and what the next session makes of the second after `change`.
class ChangedByHandTest : public ::testing::Test {
  protected:
    void SetUp() override {
        run(job_, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 1).ok());
            ASSERT_TRUE(save(session, state, 2).ok());
        });
    }
    std::string path(uint64_t epoch, uint32_t k, bool unfinished = false, uint32_t count = 2) {
        return join_path(job_.config.shared_dir,
                         to_string(SharedFileName{"job", {epoch, 1}, k, count, unfinished}));
    }
    void rename(const std::string& from, const std::string& to) {
        ASSERT_TRUE(machines_.shared->rename(from, to).ok());
    }
    void flip(const std::string& file_path, uint64_t offset) {
        auto file = machines_.shared->open(file_path, {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        std::byte one{};
        ASSERT_TRUE((*file)->read_at({&one, 1}, offset).ok());
        one ^= std::byte{1};
        ASSERT_TRUE((*file)->write_at({&one, 1}, offset).ok());
    }
    void put(const std::string& file_path) {
        ASSERT_TRUE(machines_.shared->open(file_path, {Access::write, DirectIo::off}).ok());
    }
    void expect_nothing_removed() {
        const auto before = shared_names(machines_, job_.config);
        ASSERT_TRUE(clean_shared(*machines_.shared, job_.config.shared_dir, "job").ok());
        EXPECT_EQ(shared_names(machines_, job_.config), before);
    }

    Machines machines_;
    Job job_ = job_on(machines_, hosts_of(2, 1));
};

TEST_F(ChangedByHandTest, ADamagedEpochThatWasGettingItsNamesStays) {
    rename(path(2, 1), path(2, 1, true));
    flip(path(2, 0), 100);
    expect_nothing_removed();
}

TEST_F(ChangedByHandTest, ACommittedEpochWithoutFinalNamesAndWithADamagedIndexStays) {
    const auto head = read_shared_head(*machines_.shared, path(2, 0));
    ASSERT_TRUE(head.ok());
    for (uint32_t k = 0; k < 2; ++k) rename(path(2, k), path(2, k, true));
    flip(path(2, 0, true), index_offset(head->header, 0) + 40);
    expect_nothing_removed();
}

TEST_F(ChangedByHandTest, AnUnfinishedFileOfAnotherNumberTakesNoCompleteEpochAway) {
    const auto before = shared_names(machines_, job_.config);
    put(path(2, 0, true, 3));
    const auto inventory = clean_shared(*machines_.shared, job_.config.shared_dir, "job");
    ASSERT_TRUE(inventory.ok());
    EXPECT_EQ(inventory->newest_committed, (EpochKey{2, 1}));
    EXPECT_EQ(shared_names(machines_, job_.config), before) << "only the leftover is gone";
}

TEST_F(ChangedByHandTest, FilesWithExchangedNamesStay) {
    rename(path(2, 0), path(2, 0, true) + "x");
    rename(path(2, 1), path(2, 0, true));
    rename(path(2, 0, true) + "x", path(2, 1, true));
    expect_nothing_removed();
}

TEST_F(ChangedByHandTest, AFileUnderTheNameOfAnotherEpochStays) {
    rename(path(2, 0), path(3, 0, true));
    expect_nothing_removed();
}

TEST_F(ChangedByHandTest, AnUnfinishedEpochIsStillRemoved) {
    for (uint32_t k = 0; k < 2; ++k) rename(path(2, k), path(2, k, true));
    const auto head = read_shared_head(*machines_.shared, path(2, 1, true));
    ASSERT_TRUE(head.ok());
    flip(path(2, 1, true), slot_offset(head->header, 0) + 50);  // torn
    ASSERT_TRUE(clean_shared(*machines_.shared, job_.config.shared_dir, "job").ok());
    EXPECT_THAT(shared_names(machines_, job_.config), SizeIs(2));
}

TEST_F(ChangedByHandTest, ASlotThatWasNotSyncedIsBeforeItsEpochCounts) {
    const auto head = read_shared_head(*machines_.shared, path(2, 0));
    ASSERT_TRUE(head.ok());
    const uint64_t offset = slot_offset(head->header, 0);
    std::vector<std::byte> slot(head->header.block_bytes);
    const std::vector<std::byte> empty(slot.size());
    std::mt19937_64 random(1);
    for (int i = 0; i < 40; ++i) {  // a crash loses one write in four
        // Written in full, and the process died before the sync.
        rename(path(2, 0), path(2, 0, true));
        auto file = machines_.shared->open(path(2, 0, true), {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE((*file)->read_at(slot, offset).ok());
        ASSERT_TRUE((*file)->write_at(empty, offset).ok() && (*file)->sync().ok());
        ASSERT_TRUE((*file)->write_at(slot, offset).ok());
        ASSERT_EQ(clean_shared(*machines_.shared, job_.config.shared_dir, "job")->newest_committed,
                  (EpochKey{2, 1}));
        machines_.shared->crash(random);
        const auto inventory = clean_shared(*machines_.shared, job_.config.shared_dir, "job");
        ASSERT_TRUE(inventory.ok());
        ASSERT_EQ(inventory->newest_committed, (EpochKey{2, 1})) << "after crash " << i;
    }
}

TEST_F(ChangedByHandTest, AnEpochThatCannotBeMadeDurableDoesNotCount) {
    rename(path(2, 0), path(2, 0, true));
    FaultPlan plan;
    plan.sync_error = 1;
    FaultyStorage faulty(machines_.shared, 1, plan);
    const auto inventory = clean_shared(faulty, job_.config.shared_dir, "job");
    ASSERT_TRUE(inventory.ok());
    EXPECT_EQ(inventory->newest_committed, (EpochKey{1, 1}));
    EXPECT_THAT(inventory->unclean, ElementsAre(EpochKey{2, 1}));
    EXPECT_THAT(shared_names(machines_, job_.config), SizeIs(4));
}

TEST_F(ChangedByHandTest, AnAttemptIsReplacedOnlyByOneThatIsSound) {
    // A later run saved epoch 1 again; then its files were damaged. Newer epochs are complete.
    for (uint32_t k = 0; k < 2; ++k) {
        const SharedFileName later{"job", {1, 2}, k, 2, false};
        put(join_path(job_.config.shared_dir, to_string(later)));
    }
    expect_nothing_removed();
    std::vector<EpochKey> known;
    ASSERT_TRUE(apply_shared_retention(*machines_.shared, job_.config.shared_dir, "job", 0, known, {}).ok());
    EXPECT_THAT(shared_names(machines_, job_.config), SizeIs(6));
}

}  // namespace
}  // namespace tailrace::internal
