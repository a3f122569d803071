// Epochs whose program died and one of whose nodes is lost: a node that keeps a copy of what that one had
// captured writes its share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "aggregate/seeds.h"
#include "base/log.h"
#include "drain/kept_share.h"
#include "drain/node_drain_fixture.h"
#include "drain/recorded_epochs.h"
#include "protect/protect_object.h"
#include "storage/forwarding_storage.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using State = DrainedEpoch::State;

class LostNodeTest : public NodeDrainFixture {
  protected:
    LostNodeTest() { config_.redundancy = "partner"; }
    void take_for_lost_at_once() { lost_.emplace(0s); }
    std::string object_of(int node, uint64_t epoch = 1) const {
        return protect_path(directory_of(node), config_.name, {epoch, 1}, node);
    }
    std::string kept_plan_of(int keeper, int node, uint64_t epoch = 1) const {
        const KeptPlanFileName name{config_.name, {epoch, 1}, static_cast<uint32_t>(node), false};
        return join_path(directory_of(keeper), to_string(name));
    }
    long kept_plans(int node) {
        const auto names = local(node).list(directory_of(node));
        return std::count_if(names->begin(), names->end(), [](const DirectoryEntry& entry) {
            return parse_kept_plan_file_name(entry.name).has_value();
        });
    }
    MemoryStorage& local(int node) { return *machines_.local_of(host_of(node)); }
    void overwrite(int node, const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
        const auto file = local(node).open(path, {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE((*file)->write_at(bytes, offset).ok());
    }
    // Two passes of every node but this one.
    void drain_all_but(int lost) {
        for (int round = 0; round < 2; ++round)
            for (int node = 0; node < node_count; ++node)
                if (node != lost) {
                    const auto pass = drain(node);
                    ASSERT_TRUE(pass.ok()) << pass.status().to_string();
                    for (const auto& epoch : pass->epochs)
                        EXPECT_NE(epoch.state, State::failed) << epoch.why.to_string();
                }
    }
};

TEST_F(LostNodeTest, AnEpochThatWasProtectedIsCommittedWithoutItsNode) {
    take_for_lost_at_once();
    for (const uint32_t files : {1u, 2u, 4u, 5u})
        for (const bool concurrent : {true, false})
            for (int lost = 0; lost < node_count; ++lost) {
                SCOPED_TRACE(testing::Message() << files << " files, " << concurrent << ", node " << lost);
                machines_ = {};
                config_.files = files;
                run_and_die_planned(2, concurrent);
                EXPECT_THAT(committed(), IsEmpty());
                ASSERT_THAT(planned_everywhere(), ElementsAre(1, 2));
                (void)lose(lost);
                drain_all_but(lost);
                EXPECT_THAT(committed(), ElementsAre(1, 2));
                EXPECT_THAT(left_in_shared(), IsEmpty());
                expect_in_shared(1);
                expect_in_shared(2);
                for (int node = 0; node < node_count; ++node)
                    if (node != lost) {
                        EXPECT_EQ(kept_plans(node), 0) << node;
                    }
            }
}

// Their data is in the copy, but in no shared file.
TEST_F(LostNodeTest, FilesAsTheyWereOfALostNodeAreWrittenFromTheCopy) {
    take_for_lost_at_once();
    with_original_files_ = true;
    config_.files = 2;
    FaultPlan faults;
    faults.die_at_operation = 12;
    faults.before_death = [&](const std::string&) {
        const auto deadline = SteadyClock::now() + std::chrono::seconds(20);
        while (!planned_everywhere(1) && SteadyClock::now() < deadline)
            sleep_for(std::chrono::milliseconds(1));
    };
    run_and_die(1, faults, true);
    ASSERT_TRUE(planned_everywhere(1));
    (void)lose(1);
    drain_all_but(1);
    EXPECT_THAT(committed(), ElementsAre(1));
    expect_original_files(1);
}

TEST_F(LostNodeTest, ParityOverASingleNodeIsACopy) {
    take_for_lost_at_once();
    struct Level {
        std::string redundancy;
        uint32_t set = 8;
        bool copies = false;
    };
    for (const Level& level : {Level{"xor", 2, true}, Level{"rs:3", 4, true}, Level{"rs:1", 2, true},
                               Level{"xor", 4, false}, Level{"rs:2", 4, false}}) {
        SCOPED_TRACE(level.redundancy + " of " + std::to_string(level.set));
        machines_ = {};
        config_.redundancy = level.redundancy;
        config_.redundancy_set = level.set;
        run_and_die_planned(1);
        (void)lose(1);
        drain_all_but(1);
        if (!level.copies) {
            EXPECT_THAT(committed(), IsEmpty()) << "no node can do it alone";
            continue;
        }
        EXPECT_THAT(committed(), ElementsAre(1));
        expect_in_shared(1);
    }
}

TEST_F(LostNodeTest, NothingIsWrittenForANodeThatIsOnlyLate) {
    run_and_die_planned(1);
    const auto late = lose(1);
    drain_all_but(1);
    auto pass = drain(0);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::waiting) << "nobody has asked for it";
    EXPECT_THAT(texts_of(pass->epochs[0].waiting_for), ElementsAre("node 1 (m1)"));
    EXPECT_FALSE(pass->epochs[0].may_write_more);
    lost_.emplace(1h);
    pass = drain(2);  // keeps the copy
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::waiting);
    EXPECT_TRUE(pass->epochs[0].may_write_more);
    pass = drain(3);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_FALSE(pass->epochs[0].may_write_more) << "its copy is of another node";
    machines_.local["m1"] = late;
    pass = drain(1);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::committed);
}

TEST_F(LostNodeTest, WhatANodeDidForAnotherIsSaid) {
    run_and_die_planned(1);
    (void)lose(1);
    drain_all_but(1);
    take_for_lost_at_once();
    NodeDrain drain(config_, machines_.local_of("m2"), machines_.shared);
    drain.write_for(*lost_);
    std::vector<uint64_t> heard;
    uint64_t share = 0;
    drain.watch([&](const DrainedEpoch&, uint64_t share_bytes, uint64_t bytes) {
        heard.push_back(bytes);
        share = share_bytes;
    });
    const auto pass = drain.pass(directory_of(2), never);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    const auto& epoch = pass->epochs[0];
    EXPECT_EQ(epoch.state, State::committed);
    EXPECT_FALSE(epoch.wrote) << "its own share was written before";
    EXPECT_THAT(epoch.wrote_for, ElementsAre("node 1 (m1)"));
    EXPECT_GT(share, 2 * newest_bytes);
    EXPECT_EQ(epoch.written_bytes, share);
    ASSERT_GE(heard.size(), 2u);
    EXPECT_EQ(heard.front(), 0u);
    EXPECT_EQ(heard.back(), share);
}

// Calls something once: before the first lock on a share is taken, or when its first file has been opened.
class Meanwhile : public test::ForwardingStorage {
  public:
    enum class When { before_the_lock, while_writing };
    Meanwhile(std::shared_ptr<Storage> inner, When when, std::function<void()> call)
        : ForwardingStorage(std::move(inner)), when_(when), call_(std::move(call)) {}
    bool called() const { return called_; }

    Result<std::unique_ptr<NumberLock>> lock_number(const std::string& path, uint64_t number) override {
        if (when_ == When::before_the_lock) call();
        return ForwardingStorage::lock_number(path, number);
    }
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        auto file = ForwardingStorage::open(path, options);
        if (when_ == When::while_writing && options.access != Access::read) call();
        return file;
    }

  private:
    void call() {
        if (!called_.exchange(true)) call_();
    }
    const When when_;
    const std::function<void()> call_;
    std::atomic<bool> called_{false};
};

// Whoever comes second finds the share locked. The other one is in the middle of it.
TEST_F(LostNodeTest, TwoProcessesNeverWriteOneShare) {
    config_.files = 1;
    for (const bool node_first : {true, false}) {
        SCOPED_TRACE(node_first);
        machines_ = {};
        lost_.reset();
        run_and_die_planned(1);
        for (const int node : {0, 2, 3}) ASSERT_TRUE(drain(node).ok());
        take_for_lost_at_once();
        const int first = node_first ? 1 : 2, second = node_first ? 2 : 1;
        LostNodes others(0s);
        const auto shared =
            std::make_shared<Meanwhile>(machines_.shared, Meanwhile::When::while_writing, [&] {
                NodeDrain its_drain(config_, machines_.local_of(host_of(second)), machines_.shared);
                its_drain.write_for(others);
                const auto pass = its_drain.pass(directory_of(second), never);
                ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
                EXPECT_EQ(pass->epochs[0].state, State::waiting);
                EXPECT_FALSE(pass->epochs[0].wrote);
                EXPECT_THAT(pass->epochs[0].wrote_for, IsEmpty());
                EXPECT_EQ(pass->epochs[0].may_write_more, node_first);
            });
        const auto pass = drain(first, shared);
        EXPECT_TRUE(shared->called());
        ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
        EXPECT_EQ(pass->epochs[0].state, State::committed) << pass->epochs[0].why.to_string();
        expect_in_shared(1);
        const auto again = drain(second);
        ASSERT_TRUE(again.ok() && again->epochs.size() == 1);
        EXPECT_EQ(again->epochs[0].state, State::committed);
        EXPECT_THAT(left_in_shared(), IsEmpty());
    }
}

// The lost node comes back and commits the epoch just before its keeper gets the lock.
TEST_F(LostNodeTest, AShareThatIsWrittenIsNotBegunAgain) {
    run_and_die_planned(1);
    for (const int node : {0, 2, 3}) ASSERT_TRUE(drain(node).ok());
    take_for_lost_at_once();
    const auto shared = std::make_shared<Meanwhile>(machines_.shared, Meanwhile::When::before_the_lock, [&] {
        NodeDrain owner(config_, machines_.local_of("m1"), machines_.shared);
        const auto pass = owner.pass(directory_of(1), never);
        ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
        EXPECT_EQ(pass->epochs[0].state, State::committed);
    });
    const auto pass = drain(2, shared);
    ASSERT_TRUE(pass.ok() && pass->epochs.size() == 1);
    EXPECT_EQ(pass->epochs[0].state, State::committed);
    EXPECT_THAT(pass->epochs[0].wrote_for, IsEmpty());
    EXPECT_THAT(committed(), ElementsAre(1));
    EXPECT_THAT(left_in_shared(), IsEmpty());
}

// The same, but a newer epoch is committed as well, and this one was removed in its favour.
TEST_F(LostNodeTest, AShareThatHasBecomePointlessIsNotBegun) {
    config_.keep_shared = 1;
    run_and_die_planned(2);
    for (const int node : {0, 2, 3}) ASSERT_TRUE(drain(node).ok());
    take_for_lost_at_once();
    const auto shared = std::make_shared<Meanwhile>(machines_.shared, Meanwhile::When::before_the_lock, [&] {
        NodeDrain owner(config_, machines_.local_of("m1"), machines_.shared);
        ASSERT_TRUE(owner.pass(directory_of(1), never).ok());
        EXPECT_THAT(committed(), ElementsAre(2));
    });
    const auto pass = drain(2, shared);
    ASSERT_TRUE(pass.ok());
    EXPECT_THAT(committed(), ElementsAre(2));
    EXPECT_THAT(left_in_shared(), testing::Each(HasSubstr(".lock"))) << "no file was begun";
    ASSERT_TRUE(drain(0).ok());
    EXPECT_THAT(left_in_shared(), IsEmpty());
}

TEST_F(LostNodeTest, WithoutLocksOnlyANodeItselfWritesItsShare) {
    machines_.shared = std::make_shared<MemoryStorage>(MemoryStorageOptions{.offer_number_locks = false});
    run_and_die_planned(1);
    const auto back = lose(1);
    take_for_lost_at_once();
    int warnings = 0;
    set_log_callback([&](LogLevel, std::string_view line) {
        warnings += line.find("cannot write the share of node 1") != line.npos &&
                    line.find("no such locks") != line.npos;
    });
    drain_all_but(1);
    set_log_callback(nullptr);
    EXPECT_EQ(warnings, 1) << "said once";
    EXPECT_THAT(committed(), IsEmpty());
    machines_.local["m1"] = back;
    ASSERT_TRUE(drain(1).ok());
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(LostNodeTest, ACopyThatIsDamagedIsNotUsed) {
    take_for_lost_at_once();
    run_and_die_planned(1);
    (void)lose(1);
    const auto head = ObjectReader::read_head(local(2), object_of(2));
    ASSERT_TRUE(head.ok());
    overwrite(2, object_of(2), record_bytes(*head) + part_header_bytes + 20000, std::vector<std::byte>(64));
    std::string said;
    set_log_callback([&](LogLevel, std::string_view line) { said += line; });
    drain_all_but(1);
    set_log_callback(nullptr);
    EXPECT_THAT(committed(), IsEmpty());
    EXPECT_THAT(said, HasSubstr("node 2 cannot write the share of node 1, whose copy it keeps"));
    EXPECT_THAT(said, HasSubstr("checksum"));
}

class BadFile : public test::ForwardingStorage {
  public:
    BadFile(std::shared_ptr<Storage> inner, std::string path)
        : ForwardingStorage(std::move(inner)), path_(std::move(path)) {}
    bool bad = true;
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        if (bad && path == path_) return Status(Code::io_error, "the disk is tired");
        return ForwardingStorage::open(path, options);
    }

  private:
    const std::string path_;
};

TEST_F(LostNodeTest, ACopyThatCannotBeReadNowIsTriedAgainWhenItHasRested) {
    run_and_die_planned(1);
    (void)lose(1);
    for (const int node : {0, 3}) ASSERT_TRUE(drain(node).ok());
    const auto keeper = std::make_shared<BadFile>(machines_.local_of("m2"), object_of(2));
    LostNodes lost(0s);
    FailedShares failed;
    NodeDrain drain(config_, keeper, machines_.shared);
    drain.write_for(lost);
    drain.rest_after_failures(failed);
    int warnings = 0;
    set_log_callback(
        [&](LogLevel, std::string_view line) { warnings += line.find("the disk is tired") != line.npos; });
    const auto pass = [&] {
        const auto done = drain.pass(directory_of(2), never);
        return done.ok() && done->epochs.size() == 1 ? done->epochs[0].state : State::failed;
    };
    for (int round = 0; round < 3; ++round) EXPECT_EQ(pass(), State::waiting);
    EXPECT_EQ(warnings, 1);
    failed.end_rests();
    EXPECT_EQ(pass(), State::waiting);
    EXPECT_EQ(warnings, 2);
    keeper->bad = false;
    EXPECT_EQ(pass(), State::waiting);
    failed.end_rests();
    EXPECT_EQ(pass(), State::committed);
    set_log_callback(nullptr);
}

// What find_kept_share believes.
class KeptShareTest : public LostNodeTest {
  protected:
    void SetUp() override {
        config_.files = 2;  // nodes 0 and 1, nodes 2 and 3
        run_and_die_planned(1);
    }
    Result<std::optional<KeptShare>> find(
        int node, std::function<void(PlanRecord&)> change = [](auto&) {}) {
        const auto records = list_plan_records(local(node), directory_of(node));
        EXPECT_TRUE(records.ok() && records->size() == 1);
        auto own = records->front().record;
        change(own);
        return find_kept_share(local(node), directory_of(node), own);
    }
    void change_header(int node, std::function<void(PartHeader&)> change) {
        const auto head = ObjectReader::read_head(local(node), object_of(node));
        ASSERT_TRUE(head.ok());
        auto part = captured_part(local(node), object_of(node), record_bytes(*head));
        ASSERT_TRUE(part.ok());
        change(part->header);
        overwrite(node, object_of(node), record_bytes(*head), encode(part->header));
    }
    void change_head(int node, std::function<void(ProtectHead&)> change) {
        auto head = ObjectReader::read_head(local(node), object_of(node));
        ASSERT_TRUE(head.ok());
        change(*head);
        overwrite(node, object_of(node), 0, encode(*head));
    }
    void change_kept_plan(int keeper, int node, std::function<void(PlanRecord&)> change) {
        auto record = read_plan_record(local(keeper), kept_plan_of(keeper, node));
        ASSERT_TRUE(record.ok()) << record.status().to_string();
        change(*record);
        overwrite(keeper, kept_plan_of(keeper, node), 0, encode(*record));
    }
};

TEST_F(KeptShareTest, ANodesRecordLiesBesideItsCopyWhereItIsOfAnotherGroup) {
    for (int node = 0; node < node_count; ++node) {
        const auto share = find(node);
        ASSERT_TRUE(share.ok() && share->has_value()) << share.status().to_string();
        const int copied = (node + 3) % node_count;
        EXPECT_EQ((*share)->record.node, static_cast<uint32_t>(copied));
        EXPECT_THAT((*share)->streams, SizeIs(2));
        const auto its_own = list_plan_records(local(copied), directory_of(copied));
        ASSERT_TRUE(its_own.ok() && its_own->size() == 1);
        EXPECT_EQ((*share)->record, its_own->front().record) << "as that node has it itself";
        EXPECT_EQ((*share)->record.file_rights, usual_file_rights()) << "on every node";
    }
    EXPECT_FALSE(local(1).open(kept_plan_of(1, 0), {}).ok()) << "of one group";
    EXPECT_TRUE(local(2).open(kept_plan_of(2, 1), {}).ok());
    ASSERT_TRUE(local(2).remove(kept_plan_of(2, 1)).ok());
    EXPECT_FALSE(find(2)->has_value()) << "its place in the files is not known";
    ASSERT_TRUE(local(3).remove(object_of(3)).ok());
    EXPECT_FALSE(find(3)->has_value());
}

TEST_F(KeptShareTest, ACopyIsBelievedOnlyForTheEpochOfTheRecord) {
    for (const auto& change : std::vector<std::function<void(PlanRecord&)>>{
             [](PlanRecord& own) { own.run_uid ^= 1; }, [](PlanRecord& own) { own.rank_count += 1; },
             [](PlanRecord& own) { own.shared_dir += "x"; },
             [](PlanRecord& own) { own.nodes[0].streams[0].manifest_crc ^= 1; }}) {
        const auto share = find(1, change);  // keeps a copy of node 0, which is of its group
        EXPECT_EQ(share.status().code(), Code::corrupt);
    }
    ASSERT_TRUE(find(1)->has_value());
    // Node 0's object under the name of node 1's.
    std::vector<std::byte> bytes(500000);
    const auto other = local(0).open(object_of(0), {});
    ASSERT_TRUE(other.ok());
    bytes.resize(*(*other)->read_at(bytes, 0));
    overwrite(1, object_of(1), 0, bytes);
    EXPECT_THAT(find(1).status().message(), HasSubstr("not this node's copy"));
}

TEST_F(KeptShareTest, ACopyOfAnotherPartIsNotTaken) {
    for (const auto& change : std::vector<std::function<void(PartHeader&)>>{
             [](PartHeader& header) { header.run_uid ^= 1; }, [](PartHeader& header) { header.key.run += 1; },
             [](PartHeader& header) { header.stream.manifest_crc ^= 1; }}) {
        machines_ = {};
        SetUp();
        change_header(1, change);
        EXPECT_THAT(find(1).status().message(), HasSubstr("not the captured part"));
    }
}

TEST_F(KeptShareTest, AKeptPlanIsBelievedOnlyForItsNodeAndEpoch) {
    for (const auto& change : std::vector<std::function<void(PlanRecord&)>>{
             [](PlanRecord& record) { record.node = 0; }, [](PlanRecord& record) { record.run_uid ^= 1; },
             [](PlanRecord& record) { record.key.epoch += 1; },
             [](PlanRecord& record) { record.shared_dir += "x"; },
             [](PlanRecord& record) { record.keep_shared += 1; }}) {
        machines_ = {};
        SetUp();
        change_kept_plan(2, 1, change);
        EXPECT_THAT(find(2).status().message(), HasSubstr("it is not the record of node 1"));
    }
    machines_ = {};
    SetUp();
    overwrite(2, kept_plan_of(2, 1), 100, std::vector<std::byte>(8, std::byte{0xff}));
    EXPECT_EQ(find(2).status().code(), Code::corrupt);
    take_for_lost_at_once();
    (void)lose(1);
    drain_all_but(1);
    EXPECT_THAT(committed(), IsEmpty());
}

TEST_F(LostNodeTest, KeptPlansGoWithTheirEpochs) {
    run_and_die_planned(2);
    EXPECT_EQ(kept_plans(2), 2);
    EXPECT_EQ(kept_plans(1), 0) << "of one group";
    Job job = job_on(machines_, hosts_);
    job.config = config_;
    run(job, [&](Checkpointer& session) {
        State_ state;
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        ASSERT_TRUE(save(session, state, 3).ok());
    });
    for (int node = 0; node < node_count; ++node) EXPECT_EQ(kept_plans(node), 0) << node;
}

TEST(LostNodesTest, ANodeIsLostWhenItsShareWasMissingLongEnough) {
    LostNodes lost(10s);
    const ShareId share{"/shared", "job", {1, 1}, 3}, other{"/shared", "job", {1, 1}, 4};
    const SteadyClock::time_point start{100s};
    EXPECT_FALSE(lost.note_missing(share, start));
    EXPECT_EQ(lost.next(start), start + 10s);
    EXPECT_FALSE(lost.note_missing(other, start + 5s));
    EXPECT_FALSE(lost.note_missing(share, start + 9s));
    EXPECT_TRUE(lost.note_missing(share, start + 10s));
    EXPECT_EQ(lost.next(start + 10s), start + 15s);
    lost.failed(share, false, start + 11s);
    EXPECT_FALSE(lost.note_missing(share, start + 12s));
    EXPECT_TRUE(lost.note_missing(share, start + 21s)) << "it is tried again";
    lost.failed(share, true, start + 21s);
    EXPECT_TRUE(lost.given_up(share));
    EXPECT_FALSE(lost.note_missing(share, start + 100s));
    EXPECT_FALSE(lost.given_up(other));
    lost.forget(other);
    EXPECT_FALSE(lost.note_missing(other, start + 100s)) << "it begins anew";
}

// Programs die at any operation, nodes are lost and come back, drains are interrupted at any operation of
// theirs, some by a loss of power, and two of them work at once. At most one node is away, and in the end it
// may stay away. Every epoch that was planned and protected on all nodes is committed, and can be restored
// from the shared directory alone.
TEST_F(LostNodeTest, WhateverHappensAProtectedEpochIsCommitted) {
    int without_a_node = 0;
    for (const uint64_t seed : seeds(1, 150)) {
        SCOPED_TRACE("TAILRACE_SEED=" + std::to_string(seed));
        Random random(seed);
        machines_ = {};
        lost_.reset();
        config_.files = 1 + static_cast<uint32_t>(below(random, 6));
        config_.keep_shared = static_cast<uint32_t>(below(random, 3));
        config_.redundancy = std::vector<std::string>{"partner", "partner", "xor", "rs:3"}[below(random, 4)];
        config_.redundancy_set = config_.redundancy == "xor" ? 2 : 4;
        run_and_die(2, 1 + below(random, 160), below(random, 2) == 0);
        const auto planned = planned_everywhere();
        const auto before = committed();
        take_for_lost_at_once();
        std::optional<int> away;
        std::shared_ptr<MemoryStorage> its_storage;
        const auto leave_or_return = [&] {
            if (away) {
                machines_.local[host_of(*away)] = its_storage;
                away.reset();
            } else {
                away = static_cast<int>(below(random, node_count));
                its_storage = lose(*away);
            }
        };
        for (uint64_t i = below(random, 10); i > 0; --i) {
            if (below(random, 3) == 0) leave_or_return();
            const int node = static_cast<int>(below(random, node_count));
            if (node == away) continue;
            if (below(random, 3) == 0) {
                const int other =
                    static_cast<int>((static_cast<uint64_t>(node) + 1 + below(random, 3)) % node_count);
                if (other == away) continue;
                LostNodes others(0s);
                std::thread second([&] {
                    NodeDrain its_drain(config_, machines_.local.at(host_of(other)), machines_.shared);
                    its_drain.write_for(others);
                    (void)its_drain.pass(directory_of(other), never);
                });
                (void)drain(node);
                second.join();
                continue;
            }
            FaultPlan faults;
            faults.die_at_operation = 1 + below(random, 60);
            (void)drain(node, std::make_shared<FaultyStorage>(machines_.shared, seed, faults));
            if (below(random, 3) == 0)
                machines_.shared->crash(random);
            else
                machines_.shared->process_death();
            local(node).process_death();
        }
        if (below(random, 2) == 0) leave_or_return();
        take_for_lost_at_once();  // what was given up was so by processes that are gone
        for (int round = 0; round < 3; ++round)
            for (int node = 0; node < node_count; ++node) {
                if (node == away) continue;
                const auto pass = drain(node);
                ASSERT_TRUE(pass.ok()) << pass.status().to_string();
                for (const auto& epoch : pass->epochs)
                    EXPECT_NE(epoch.state, State::failed) << epoch.why.to_string();
            }
        if (away && !planned.empty()) ++without_a_node;
        machines_.shared->crash(random);  // what is committed is durable
        const auto after = complete();
        std::set<uint64_t> expected(before.begin(), before.end());
        expected.insert(planned.begin(), planned.end());
        if (config_.keep_shared == 1 && expected.size() == 2) expected.erase(1);
        EXPECT_THAT(after, testing::IsSupersetOf(expected))
            << "away: " << (away ? *away : -1) << testing::PrintToString(shared_names(machines_, config_));
        for (const auto epoch : after) expect_in_shared(epoch);
    }
    if (std::getenv("TAILRACE_SEED") == nullptr) {
        EXPECT_GT(without_a_node, 20);
    }
}

}  // namespace
}  // namespace tailrace::internal
