#include "agent/plan_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "base/units.h"
#include "doubles/memory_storage.h"
#include "flush/recorded_plan.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t run_uid = 77;

// Two nodes with two ranks each, on two machines; this is node 1.
class PlanKeeperTest : public testing::Test {
  protected:
    PlanKeeperTest() {
        context_.config.name = "job";
        context_.config.files = 1;
        context_.config.buffer_bytes = 1 * MiB;
        context_.config.keep_shared = 3;
        context_.local = local_;
        context_.hosts = {"a", "a", "b", "b"};
        context_.transport = std::move(make_in_process_transports(context_.hosts)[2]);
        context_.topology = make_topology(context_.hosts, 0);
        context_.node = 1;
        context_.tier = local_tier("/local", "/shared", "job");
        context_.run = 2;
        context_.run_uid = run_uid;
        directory_ = context_.tier.directory(1);
        EXPECT_TRUE(local_->make_directories(directory_).ok());
    }

    std::vector<NodeOffer> offers() const { return {{0, {{0, 8192, 4096, 1}}}, {1, {}}}; }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        const auto listed = local_->list(directory_);
        EXPECT_TRUE(listed.ok());
        for (const auto& entry : *listed) found.push_back(entry.name);
        return found;
    }
    Result<PlanRecord> read(const std::string& name) const {
        TAILRACE_ASSIGN(const auto file, local_->open(join_path(directory_, name), {}));
        TAILRACE_ASSIGN(const auto size, file->size());
        std::vector<std::byte> bytes(size);
        TAILRACE_TRY(file->read_at(bytes, 0).status());
        return decode_plan_record(bytes);
    }
    void put(const std::string& name) {
        ASSERT_TRUE(local_->open(join_path(directory_, name), {Access::write, DirectIo::off}).ok());
    }

    const std::shared_ptr<MemoryStorage> local_ = std::make_shared<MemoryStorage>();
    JobContext context_;
    std::string directory_;
};

const std::string epoch_5 = "job.e000000005.r0002.n00001.plan";

TEST_F(PlanKeeperTest, ARecordIsWrittenWhenPlanAndVerdictAreThereAndNotBefore) {
    for (const bool plan_first : {true, false}) {
        PlanKeeper keeper(context_);
        keeper.begin({});
        if (plan_first)
            keeper.planned({5, 2}, offers());
        else
            keeper.arrays_fit({5, 2});
        keeper.finish();
        EXPECT_THAT(names(), IsEmpty());
    }
    for (const bool plan_first : {true, false}) {
        PlanKeeper keeper(context_);
        keeper.begin({});
        if (plan_first) keeper.planned({5, 2}, offers());
        keeper.arrays_fit({5, 2});
        if (!plan_first) keeper.planned({5, 2}, offers());
        keeper.finish();
        EXPECT_THAT(names(), ElementsAre(epoch_5));
        const auto record = read(epoch_5);
        ASSERT_TRUE(record.ok()) << record.status().to_string();
        EXPECT_EQ(record->run_uid, run_uid);
        EXPECT_EQ(record->shared_dir, "/shared");
        EXPECT_EQ(record->keep_shared, 3u);
        EXPECT_EQ(record->node, 1u);
        EXPECT_EQ(record->own().host, "b");
        ASSERT_EQ(record->nodes.size(), 2u);
        EXPECT_EQ(record->nodes[0].streams, offers()[0].streams);
        EXPECT_TRUE(recorded_plan(*record).ok());
        ASSERT_TRUE(local_->remove(join_path(directory_, epoch_5)).ok());
    }
}

TEST_F(PlanKeeperTest, ARecordGoesWithItsEpochUnlessThePartsStay) {
    struct Case {
        EpochState state;
        bool everywhere, refused, stays;
    };
    for (const auto& [state, everywhere, refused, stays] :
         {Case{EpochState::committed, true, false, false}, Case{EpochState::failed, true, false, true},
          Case{EpochState::failed, false, false, false}, Case{EpochState::failed, true, true, false}}) {
        PlanKeeper keeper(context_);
        keeper.begin({});
        keeper.planned({5, 2}, offers());
        keeper.arrays_fit({5, 2});
        EpochEnded ended{{5, 2}, state, {}, 0, everywhere};
        ended.refused = refused;
        keeper.ended(ended);
        keeper.finish();
        EXPECT_EQ(names().size(), stays ? 1u : 0u) << static_cast<int>(state) << everywhere << refused;
        (void)local_->remove(join_path(directory_, epoch_5));
    }
}

// It counts if the epoch is the newest one when the program dies.
TEST_F(PlanKeeperTest, AnEpochThatIsKeptHasARecordUntilANewerOneIsCommitted) {
    const std::string local_5 = "job.e000000005.r0002.n00001.local-plan";
    for (const bool plan_last : {false, true}) {
        PlanKeeper keeper(context_);
        keeper.begin({});
        if (!plan_last) keeper.planned_local({5, 2}, offers());
        keeper.arrays_fit({5, 2});
        keeper.ended({{5, 2}, EpochState::kept_local, {}, 0, true});
        if (plan_last) keeper.planned_local({5, 2}, offers());
        keeper.planned({4, 2}, offers());
        keeper.arrays_fit({4, 2});
        keeper.ended({{4, 2}, EpochState::committed, {}, 0, true});
        keeper.finish();
        EXPECT_THAT(names(), ElementsAre(local_5)) << "an older one is committed";
        const auto record = read(local_5);
        ASSERT_TRUE(record.ok()) << record.status().to_string();
        EXPECT_EQ(record->nodes[0].streams, offers()[0].streams);
        if (!plan_last) (void)local_->remove(join_path(directory_, local_5));
    }
    PlanKeeper keeper(context_);
    keeper.begin({});
    keeper.planned_local({6, 2}, offers());
    keeper.arrays_fit({6, 2});
    keeper.ended({{6, 2}, EpochState::kept_local, {}, 0, true});
    keeper.planned({7, 2}, offers());
    keeper.arrays_fit({7, 2});
    keeper.ended({{7, 2}, EpochState::committed, {}, 0, true});
    keeper.finish();
    EXPECT_THAT(names(), IsEmpty()) << "neither of 5 nor of 6";
}

TEST_F(PlanKeeperTest, WhatAGroupBringsIsKnownWithItsLastNode) {
    PlanKeeper keeper(context_);
    EXPECT_EQ(keeper.offered({5, 2}, offers()[1], 2), std::nullopt);
    EXPECT_EQ(keeper.offered({5, 2}, offers()[1], 2), std::nullopt) << "the same node";
    EXPECT_EQ(keeper.offered({6, 2}, offers()[0], 2), std::nullopt) << "another epoch";
    const auto all = keeper.offered({5, 2}, offers()[0], 2);
    ASSERT_TRUE(all.has_value());
    EXPECT_THAT(*all, testing::UnorderedElementsAre(offers()[0], offers()[1]));
}

TEST_F(PlanKeeperTest, RecordsOfEarlierRunsGoUnlessTheirEpochIsFlushedAgain) {
    put("job.e000000003.r0001.n00001.plan");
    put("job.e000000004.r0001.n00001.plan");
    put("job.e000000004.r0001.n00001.plan.unfinished");
    put("job.e000000004.r0001.p00001.capture");
    put("other.e000000003.r0001.n00001.plan");
    {
        PlanKeeper keeper(context_);
        keeper.recovered({4, 1});
        keeper.begin({});
        keeper.finish();
    }
    EXPECT_THAT(names(),
                ElementsAre("job.e000000004.r0001.n00001.plan", "job.e000000004.r0001.p00001.capture",
                            "other.e000000003.r0001.n00001.plan"));
    {
        PlanKeeper keeper(context_);
        keeper.recovered({4, 1});
        keeper.begin({});
        keeper.ended({{4, 1}, EpochState::committed, {}, 0, true});
        keeper.finish();
    }
    EXPECT_THAT(names(),
                ElementsAre("job.e000000004.r0001.p00001.capture", "other.e000000003.r0001.n00001.plan"));
}

TEST_F(PlanKeeperTest, AnEpochThatEndedFirstGetsNoRecord) {
    PlanKeeper keeper(context_);
    keeper.begin({});
    keeper.planned({5, 2}, offers());
    keeper.ended({{5, 2}, EpochState::failed, {}, 0, true});
    keeper.arrays_fit({5, 2});
    keeper.finish();
    EXPECT_THAT(names(), IsEmpty());
}

// The message that brings the plan of another node's group may come after the news that the epoch has failed.
TEST_F(PlanKeeperTest, AKeptRecordMayComeAfterAFailureThatLeavesTheParts) {
    context_.config.files = 2;
    context_.sets = make_sets(std::vector<std::string>{"a", "b"}, {Scheme::partner, 1}, 2);
    const std::string kept = "job.e000000005.r0002.n00000.kept-plan";
    struct Case {
        EpochState state;
        bool everywhere, refused, fit, stays;
    };
    for (const auto& [state, everywhere, refused, fit, stays] :
         {Case{EpochState::failed, true, false, true, true},
          Case{EpochState::failed, true, false, false, false},
          Case{EpochState::failed, false, false, true, false},
          Case{EpochState::failed, true, true, true, false},
          Case{EpochState::committed, true, false, true, false}}) {
        PlanKeeper keeper(context_);
        keeper.begin({});
        keeper.planned({5, 2}, {{1, {}}});
        if (fit) keeper.arrays_fit({5, 2});
        EpochEnded ended{{5, 2}, state, {}, 0, everywhere};
        ended.refused = refused;
        keeper.ended(ended);
        keeper.planned_for({5, 2}, 0, {{0, {{0, 8192, 4096, 1}}}});
        keeper.finish();
        if (stays)
            EXPECT_THAT(names(), ElementsAre(kept, epoch_5));
        else
            EXPECT_THAT(names(), IsEmpty()) << static_cast<int>(state) << everywhere << refused << fit;
        for (const auto& name : names()) (void)local_->remove(join_path(directory_, name));
    }
}

TEST_F(PlanKeeperTest, APathThatMayHaveBeenCutIsNotRecorded) {
    context_.tier.shared_text = local_tier("/local", "/" + std::string(8000, 'd'), "job").shared_text;
    PlanKeeper keeper(context_);
    keeper.begin({});
    keeper.planned({5, 2}, offers());
    keeper.arrays_fit({5, 2});
    keeper.finish();
    EXPECT_THAT(names(), IsEmpty());
}

// Lists directories only when the gate is open.
class GatedStorage final : public MemoryStorage {
  public:
    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        gate_.wait();
        return MemoryStorage::list(directory);
    }
    void open_gate() { gate_.count_down(); }

  private:
    std::latch gate_{1};
};

// The thread is still looking for old records when an epoch that it must spare ends.
TEST_F(PlanKeeperTest, ARecoveredEpochThatEndsAtOnceKeepsItsRecordIfItsPartsStay) {
    const auto gated = std::make_shared<GatedStorage>();
    context_.local = gated;
    ASSERT_TRUE(gated->make_directories(directory_).ok());
    const auto path = join_path(directory_, "job.e000000004.r0001.n00001.plan");
    ASSERT_TRUE(gated->open(path, {Access::write, DirectIo::off}).ok());
    PlanKeeper keeper(context_);
    keeper.recovered({4, 1});
    keeper.begin({});
    keeper.ended({{4, 1}, EpochState::failed, {}, 0, true});
    gated->open_gate();
    keeper.finish();
    EXPECT_TRUE(gated->open(path, {}).ok());
}

}  // namespace
}  // namespace tailrace::internal
