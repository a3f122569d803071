// The pure parts of the checkpointer: messages, table, the node-local tier's and the
// recovery's decisions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "capture/local_tier.h"
#include "format/plan_record.h"
#include "ledger/agent_messages.h"
#include "ledger/rank_epochs.h"
#include "read/shared_epoch_codec.h"
#include "session/recovery.h"
#include "session/sample_program.h"
#include "storage/scratch.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- messages --------------------------------------------------------------------------------------------

std::vector<AgentMessage> sample_messages() {
    const Status failure(Code::no_space, "full");
    const ArrayPiece piece{ElementType::float32, {4, 6}, {0, 3}, {4, 3}, true, false};
    const std::vector<NamedPiece> table{{"u", &piece}};
    ArrayFacts facts;
    facts.failure = failure;
    facts.add(ArrayPoints(1), {}, 3, table);
    facts.add(ArrayPoints(1), {true, ArrayPoints(1).hash_name("u"), 0}, 3, table);
    NodeFlushed flushed{{12, 3}, {4, 1, {}}};
    flushed.node.statistics.leader = true;
    flushed.node.statistics.received_bytes = 77;
    flushed.node.statistics.commit_seconds = 0.5;
    flushed.node.statistics.writers = {{1, 2, 3, 4, 0.1, 0.2, 0.3, 0.4}, {}};
    return {
        Captured{7, {12, 3}, false, failure, {5, 100, 50, 99}, 40, "/a b/c", 0.5, 0.25, {}, {"a", "d/b"}},
        NodeCaptured{
            4, 7, {{12, 3}, {13, 3}}, true, {}, {2, 99, 0.5, 0.75, 1.25, 0.1, 0.8}, {}, {{5, {"a", "d/b"}}}},
        flushed,
        Decision{{12, 3}, false},
        GroupResult{{12, 3}, 2, failure, 1.5},
        EpochEnded{{12, 3}, EpochState::failed, failure, 0.25, true},
        EpochEnded{{12, 3}, EpochState::kept_local, {}, 0.25, true, "by a setting"},
        EpochFlushing{{12, 3}},
        BackgroundEnded{failure},
        SavesEnded{7},
        EpochEnded{{12, 3}, EpochState::failed, failure, 0.25, false, "", true},
        ArraysAsked{{12, 3}, {true, {5, 6}, 7}},
        ArraysAnswered{{12, 3}, facts},
        MayCommit{{12, 3}},
        ArraysFit{{12, 3}},
        NodePrepared{{12, 3}, 7, failure},
        Announced{{Question::save, 5, 9, true, "10 min since the last save"}},
        Announced{{Question::stop, 2, UINT64_MAX}},
        AnswersEnded{failure},
        StopAsked{"signal TERM at rank 3"},
        NodeProtected{{7, 2}, {3, false, "no space", 0.5, 100, 200}},
        EpochProtected{{7, 2}, 0.5, 1},
        PlanToKeep{{7, 2}, {{3, {{1, 5000, 4096, 9}}}, {4, {}}}}};
}

TEST(AgentMessageTest, EveryKindSurvivesARoundTrip) {
    for (const auto& message : sample_messages()) {
        const auto bytes = encode(message);
        auto decoded = decode_agent_message(bytes);
        ASSERT_TRUE(decoded.ok());
        EXPECT_EQ(decoded->index(), message.index());
        EXPECT_EQ(encode(*decoded), bytes);
        if (const auto* captured = std::get_if<NodeCaptured>(&message)) {
            EXPECT_EQ(std::get<NodeCaptured>(*decoded).capture, captured->capture);
        }
    }
}

TEST(AgentMessageTest, TruncationAndTrailingBytesAreRefused) {
    for (const auto& message : sample_messages()) {
        auto bytes = encode(message);
        for (size_t length = 0; length < bytes.size(); ++length)
            EXPECT_FALSE(decode_agent_message(std::span(bytes).first(length)).ok()) << message.index();
        bytes.push_back(std::byte{0});
        EXPECT_FALSE(decode_agent_message(bytes).ok());
    }
}

TEST(AgentMessageTest, AHostileCountOrStateIsRefused) {
    auto bytes = encode(AgentMessage(NodeCaptured{4, 7, {{12, 3}}, true, {}}));
    std::fill(bytes.begin() + 14, bytes.begin() + 22, std::byte{0xff});  // the number of keys
    EXPECT_FALSE(decode_agent_message(bytes).ok());
    bytes = encode(AgentMessage(NodeFlushed{{12, 3}, {4, 1, {}}}));
    std::fill(bytes.end() - 8, bytes.end(), std::byte{0x7f});  // the number of writers
    EXPECT_FALSE(decode_agent_message(bytes).ok());
    bytes = encode(AgentMessage(EpochEnded{{12, 3}, EpochState::committed, {}, 0, true}));
    bytes[14] = std::byte{1};  // captured is no end
    EXPECT_FALSE(decode_agent_message(bytes).ok());
}

TEST(SharedEpochCodecTest, RoundTripAndHostileBytes) {
    SharedEpoch epoch;
    epoch.job = "job";
    epoch.key = {3, 1};
    epoch.rank_count = 2;
    epoch.paths = {"/s/a", "/s/b"};
    epoch.streams = {{{0, 8192, 4096, 1}, {{0, 4096, 0, 8192}}}, {{1, 4096, 4096, 2}, {{1, 4096, 0, 4096}}}};
    auto bytes = encode_shared_epoch(epoch);
    auto decoded = decode_shared_epoch(bytes);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(encode_shared_epoch(*decoded), bytes);
    for (size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode_shared_epoch(std::span(bytes).first(length)).ok());
    epoch.streams[0].extents[0].file = 2;  // there are two
    EXPECT_FALSE(decode_shared_epoch(encode_shared_epoch(epoch)).ok());
}

// ---- table ---------------------------------------------------------------------------------------------

EpochInfo captured_info(uint64_t epoch) {
    EpochInfo info;
    info.epoch = epoch;
    info.run = 1;
    info.state = EpochState::captured;
    return info;
}

TEST(RankEpochsTest, AnEndNeverChangesAndMayComeBeforeTheCapture) {
    RankEpochs table;
    table.add(captured_info(1), true);
    table.flushing({1, 1});
    EXPECT_EQ(table.find(1)->info.state, EpochState::flushing);
    table.ended({{1, 1}, EpochState::committed, {}, 2.0, true});
    table.ended({{1, 1}, EpochState::failed, Status(Code::aborted, "late"), 0, false});
    table.flushing({1, 1});
    EXPECT_EQ(table.find(1)->info.state, EpochState::committed);
    EXPECT_TRUE(table.first_failure().ok());
    table.ended({{2, 1}, EpochState::failed, Status(Code::aborted, "early"), 0, false});
    table.ended({{3, 9}, EpochState::committed, {}, 0, true});  // of another run
    table.add(captured_info(2), true);
    table.add(captured_info(3), true);
    EXPECT_EQ(table.find(2)->info.state, EpochState::failed);
    EXPECT_EQ(table.first_failure().message(), "epoch 2: early");
    EXPECT_EQ(table.find(3)->info.state, EpochState::captured);
    EXPECT_THAT(table.unfinished(), ElementsAre(3));
    table.fail_all(Status(Code::transport, "gone"), true);
    table.add(captured_info(4), true);
    EXPECT_EQ(table.find(3)->info.why.code(), Code::transport);
    EXPECT_EQ(table.find(4)->info.why.code(), Code::transport);
}

TEST(RankEpochsDeathTest, EpochsAscend) {
    RankEpochs table;
    table.add(captured_info(2), true);
    EXPECT_DEATH(table.add(captured_info(2), true), "does not hold");
    EXPECT_DEATH(table.add(captured_info(1), true), "does not hold");
}

TEST(SaveTest, ASaveThatDidNothingLeavesItsNumberFree) {
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, {"m"});
        job.concurrent = concurrent;
        run(job, [&](Checkpointer& session) {
            State state;
            fill(state, 5, 0);
            put(session, state);
            // More than a rank can save, which nobody looks at before a save.
            std::byte any{};
            ASSERT_TRUE(session.register_region("huge", &any, UINT64_MAX / 2).ok());
            const auto refused = session.save(5);
            EXPECT_EQ(refused.code(), Code::invalid_argument);
            EXPECT_THAT(refused.message(), HasSubstr("nothing was saved"));
            EXPECT_EQ(session.state(5)->state, EpochState::unknown);
            ASSERT_TRUE(session.unregister("huge").ok());
            EXPECT_TRUE(session.save(5).ok());
            EXPECT_TRUE(session.wait(5, for_ever).ok());
            expect_restored(session, 5, 5);
            EXPECT_TRUE(session.close().ok());
        });
    }
}

// ---- the node-local tier
// -------------------------------------------------------------------------------------

TEST(LocalTierTest, JobsWithDifferentSharedDirectoriesDoNotMeet) {
    const auto one = local_tier("/l", "/shared/a", "job");
    EXPECT_EQ(one.directory(3), local_tier("/l", "/shared/./a/", "job").directory(3));
    EXPECT_NE(one.directory(3), local_tier("/l", "/shared/b", "job").directory(3));
    EXPECT_THAT(one.directory(3), ::testing::MatchesRegex("/l/job-[0-9a-f]{16}\\.node0003"));
}

TEST(LocalTierTest, APartIsOfItsSharedDirectoryOrOfVersion1_0WhichDoesNotSay) {
    const auto tier = local_tier("/l", "/shared/a", "job");
    PartHeader header;
    EXPECT_TRUE(tier.owns(header));
    header.shared_dir = "/shared/a";
    EXPECT_TRUE(tier.owns(header));
    header.shared_dir = "/shared/b";
    EXPECT_FALSE(tier.owns(header));
    const std::string longest = "/" + std::string(5000, 'x');
    EXPECT_EQ(local_tier("/l", longest, "job").shared_text, longest.substr(0, max_part_directory_bytes));
}

// Moves the captured parts of one machine to another directory, and changes their headers.
void move_parts(Storage& local, const std::string& from, const std::string& to,
                const std::function<void(PartHeader&)>& change) {
    ASSERT_TRUE(local.make_directories(to).ok());
    const auto listing = list_local(local, from, "job");
    ASSERT_TRUE(listing.ok());
    ASSERT_THAT(listing->parts, ::testing::Not(IsEmpty()));
    for (const auto& part : listing->parts) {
        auto header = part.header;
        change(header);
        auto file = local.open(part.path, {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        ASSERT_TRUE((*file)->write_at(encode(header), 0).ok());
        ASSERT_TRUE(local.rename(part.path, join_path(to, part.path.substr(part.path.rfind('/') + 1))).ok());
    }
}

Job job_of_local_epochs(Machines& machines) {
    auto job = job_on(machines, {"m"});
    job.config.keep_local = 4;
    job.config.shared_every = 100;
    return job;
}

TEST(LocalTierTest, PartsOfAnotherSharedDirectoryAreNotTakenWhateverTheNameOfTheirDirectory) {
    Machines machines;
    auto one = job_of_local_epochs(machines);
    run(one, [](Checkpointer& session) {
        State state;
        for (const uint64_t epoch : {1, 2}) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    auto other = one;
    other.config.shared_dir = "/shared/other";
    // As if the paths of both had the same hash.
    const auto directory = [](const Job& job) {
        return local_tier(job.config.local_dir, job.config.shared_dir, job.config.name).directory(0);
    };
    move_parts(*machines.local_of("m"), directory(one), directory(other), [](PartHeader&) {});
    run(other, [](Checkpointer& session) {
        EXPECT_EQ(session.restore(std::nullopt, {}).status().code(), Code::not_found);
        EXPECT_THAT(*session.list(), IsEmpty());
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(session.wait(1, for_ever).ok());
    });
    EXPECT_THAT(shared_names(machines, other.config), SizeIs(other.config.files));
}

TEST(LocalTierTest, WhatVersion1_0CapturedIsFoundUnderItsName) {
    Machines machines;
    auto job = job_of_local_epochs(machines);
    run(job, [](Checkpointer& session) {
        State state;
        for (const uint64_t epoch : {1, 2}) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    const auto tier = local_tier(job.config.local_dir, job.config.shared_dir, job.config.name);
    EXPECT_THAT(tier.old_prefix, ::testing::MatchesRegex("job-[0-9a-f]{8}\\.node"));
    move_parts(*machines.local_of("m"), tier.directory(0),
               join_path(job.config.local_dir, tier.old_prefix + "0000"),
               [](PartHeader& header) { header.shared_dir.clear(); });
    run(job, [](Checkpointer& session) { expect_restored(session, std::nullopt, 2); });
}

TEST(LocalTierTest, AllPathsToOneSharedDirectoryHaveOneTier) {
    const test::ScratchDirectory scratch;
    std::filesystem::create_directory(scratch / "real");
    std::filesystem::create_directory_symlink("real", scratch / "link");
    const auto real = local_tier("/l", scratch / "real/runs", "job");
    EXPECT_EQ(real.prefix, local_tier("/l", scratch / "link/runs", "job").prefix);
    std::filesystem::create_directory(scratch / "real/runs");
    EXPECT_EQ(real.prefix, local_tier("/l", scratch / "link/runs/", "job").prefix);
    EXPECT_NE(real.prefix, local_tier("/l", scratch / "link", "job").prefix);
}

TEST(LocalTierTest, EveryDirectoryOfAMachineHasExactlyOneNodeThatLooksAfterIt) {
    MemoryStorage storage;
    const auto tier = local_tier("/l", "/shared", "job");
    for (const int node : {0, 1, 2, 5, 17}) ASSERT_TRUE(storage.make_directories(tier.directory(node)).ok());
    ASSERT_TRUE(storage.make_directories("/l/job-00000000.node0001").ok());
    const std::vector<std::string> hosts{"a", "a", "b", "b"};  // nodes 0, 1 on a, 2, 3 on b
    const auto topology = make_topology(hosts, 1);
    auto of = [&](int node) { return directories_of_node(storage, tier, node, topology, hosts).value(); };
    EXPECT_THAT(of(0),
                ElementsAre(tier.directory(0), tier.directory(2), tier.directory(5), tier.directory(17)));
    EXPECT_THAT(of(1), ElementsAre(tier.directory(1)));
    EXPECT_THAT(of(3), IsEmpty());
    EXPECT_TRUE(directories_of_node(storage, local_tier("/none", "/s", "job"), 0, topology, hosts)->empty());
}

KnownPart known_part(int node, EpochKey key, uint32_t rank, uint32_t rank_count, uint64_t uid = 1) {
    KnownPart part;
    part.node = node;
    part.path = "/l/" + std::to_string(rank);
    part.header.job = "job";
    part.header.key = key;
    part.header.rank_count = rank_count;
    part.header.run_uid = uid;
    part.header.stream.rank = rank;
    return part;
}

TEST(LocalTierTest, APartThatTwoNodesSeeCountsOnceAndNamesakesDoNotMix) {
    const auto epochs = gather_local_epochs({known_part(1, {5, 1}, 0, 2), known_part(0, {5, 1}, 0, 2),
                                             known_part(0, {5, 1}, 1, 2, 77), known_part(1, {6, 1}, 1, 2),
                                             known_part(0, {6, 1}, 0, 2)});
    ASSERT_THAT(epochs, SizeIs(2));
    EXPECT_FALSE(epochs[0].complete());
    ASSERT_THAT(epochs[0].parts, SizeIs(1));
    EXPECT_TRUE(epochs[1].complete());
    std::vector<CapturedPart> parts{{"/x y", known_part(0, {5, 1}, 3, 4).header}};
    auto decoded = decode_parts(encode_parts({parts, "cut"}), 7);
    ASSERT_TRUE(decoded.ok());
    ASSERT_THAT(decoded->parts, SizeIs(1));
    EXPECT_EQ(decoded->parts[0].node, 7);
    EXPECT_EQ(decoded->parts[0].path, "/x y");
    EXPECT_EQ(decoded->parts[0].header.stream, parts[0].header.stream);
    EXPECT_EQ(decoded->damaged, "cut");
    auto bytes = encode_parts({parts, "cut"});
    bytes.pop_back();
    EXPECT_FALSE(decode_parts(bytes, 7).ok());
}

TEST(LocalTierTest, RemovalKeepsTheNewestSafeEpochsAndWhatIsInUse) {
    const EpochKey e1{1, 1}, e2{2, 1}, e3{3, 1}, e4{4, 1}, e5{5, 1};
    auto choose = [](std::vector<LocalAge> ages, uint32_t keep) {
        return choose_local_removals(std::move(ages), keep);
    };
    EXPECT_THAT(choose({{e1, true}, {e2, true}, {e3, true}}, 2), ElementsAre(e1));
    EXPECT_THAT(choose({{e1, true, true}, {e2, true}, {e3, true}}, 1), ElementsAre(e2));
    // Nothing newer than the newest safe one goes; what never becomes whole does.
    EXPECT_THAT(choose({{e1, true}, {e2, false}, {e3, false, true}, {e4, false, false, true}}, 1),
                ElementsAre(e4));
    EXPECT_THAT(choose({{e1, false}, {e2, true}, {e5, false}}, 3), ElementsAre(e1));
    // Of those nothing more is heard of, `keep` and one more stay; a safe one does in any case.
    const auto unheard = [](EpochKey key) { return LocalAge{key, false, false, false, true}; };
    EXPECT_THAT(choose({{e1, true}, unheard(e2), unheard(e3), unheard(e4), unheard(e5)}, 2), ElementsAre(e2));
    EXPECT_THAT(choose({{e1, true}, unheard(e4), unheard(e5)}, 1), IsEmpty());
    EXPECT_THAT(choose({{{9, 1}, true}, unheard(EpochKey{5, 2}), unheard(EpochKey{6, 2})}, 1), IsEmpty());
    // What lies in the shared tier only takes no place here, but shows that older pieces are of no use.
    const auto only_shared = [](EpochKey key) { return LocalAge{key, true, false, false, false, true}; };
    EXPECT_THAT(choose({{e1, true}, {e2, true}, only_shared(e3)}, 1), ElementsAre(e1));
    EXPECT_THAT(choose({{e1, false}, only_shared(e2), {e3, false}}, 1), ElementsAre(e1));
    // The newest that comes back after the loss of a node stays, until a newer one does.
    const auto age = [](EpochKey key, LocalAge::AfterLoss after_loss, bool in_use = false) {
        return LocalAge{key, !in_use, in_use, false, false, false, after_loss};
    };
    using enum LocalAge::AfterLoss;
    EXPECT_THAT(choose({age(e1, rebuilt), age(e2, rebuilt), age(e3, gone), age(e4, gone)}, 1),
                ElementsAre(e1, e3));
    EXPECT_THAT(choose({age(e1, rebuilt), age(e2, gone), age(e3, rebuilt, true), age(e4, gone)}, 1),
                ElementsAre(e1, e2));
    EXPECT_THAT(choose({age(e1, rebuilt), age(e2, gone), age(e3, shared), age(e4, gone)}, 1),
                ElementsAre(e1, e2, e3));
    EXPECT_THAT(choose({age(e1, rebuilt), age(e2, gone), only_shared(e3), age(e4, gone)}, 1),
                ElementsAre(e1, e2, e3));
    // What run 2 has left behind goes before its own, however far run 1 had come.
    EXPECT_THAT(choose({{e3, true}, {e5, true}, {{2, 2}, true}, {{3, 2}, false, true}}, 1),
                ElementsAre(e3, e5));
}

// ---- recovery ------------------------------------------------------------------------------------------

LocalEpoch local_epoch(EpochKey key, bool complete, bool for_shared) {
    LocalEpoch epoch;
    epoch.key = key;
    epoch.rank_count = 2;
    epoch.for_shared = for_shared;
    for (uint32_t rank = 0; rank < (complete ? 2u : 1u); ++rank)
        epoch.parts.push_back(known_part(0, key, rank, 2));
    return epoch;
}

TEST(LocalTierTest, ThePlanRecordOfAFailedEpochGoesWithItsParts) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.config.keep_local = 1;
    job.config.redundancy = "partner";
    job.config.files = 2;  // so each node also keeps the other's record
    auto faulty = std::make_shared<FaultyStorage>(machines.shared, 1);
    job.shared = faulty;
    std::atomic<int> arrived{0};
    const auto meet = [&](int round, const std::function<void()>& then) {
        if (++arrived == 2 * round) then();
        while (arrived < 2 * round) std::this_thread::yield();
    };
    const auto plans = [&](const std::string& host) {
        std::vector<uint64_t> epochs;
        for (const auto& node : *machines.local_of(host)->list(job.config.local_dir))
            for (const auto& file :
                 *machines.local_of(host)->list(join_path(job.config.local_dir, node.name)))
                if (const auto name = parse_plan_file_name(file.name))
                    epochs.push_back(name->key.epoch);
                else if (const auto kept = parse_kept_plan_file_name(file.name))
                    epochs.push_back(kept->key.epoch);
        return epochs;
    };
    // A thread of the node writes and removes them, perhaps after a wait for the epoch has returned.
    const auto expect_soon = [&](const std::string& host,
                                 const testing::Matcher<std::vector<uint64_t>>& wanted) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!testing::Value(plans(host), wanted) && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_THAT(plans(host), wanted);
    };
    FaultPlan fails;
    fails.sync_error = 1;
    faulty->set_plan(fails);
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        EXPECT_FALSE(session.wait(1, for_ever).ok());
        meet(1, [&] { faulty->set_plan({}); });
        const auto& host = job.hosts[static_cast<size_t>(session.rank())];
        expect_soon(host, ElementsAre(1, 1));
        for (uint64_t epoch = 2; epoch <= 4; ++epoch) {
            ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait(epoch, for_ever).ok());
        }
        expect_soon(host, testing::Not(testing::Contains(1)));
        EXPECT_FALSE(session.close().ok());
    });
}

TEST(RecoveryTest, CompleteEpochsNewerThanTheNewestCommittedAreChosenOldestFirst) {
    const std::vector<LocalEpoch> captured{local_epoch({1, 1}, true, true),  local_epoch({2, 1}, true, false),
                                           local_epoch({3, 1}, true, true),  local_epoch({4, 1}, true, false),
                                           local_epoch({5, 1}, false, true), local_epoch({6, 1}, true, true)};
    auto keys = [&](std::vector<EpochKey> committed, std::vector<EpochKey> unclean) {
        std::vector<uint64_t> epochs;
        for (const auto& epoch : choose_recoveries(captured, committed, unclean))
            epochs.push_back(epoch.key.epoch);
        return epochs;
    };
    EXPECT_THAT(keys({{1, 1}}, {}), ElementsAre(3, 6));
    EXPECT_THAT(keys({}, {}), ElementsAre(1, 3, 6));
    EXPECT_THAT(keys({{3, 1}, {6, 1}}, {}), IsEmpty());
    EXPECT_THAT(keys({{3, 1}}, {{6, 1}}), ElementsAre(4));  // kept local, but the newest there is
    // Run 2 went back to epoch 1: what lies beyond is left behind, whether captured or committed.
    EXPECT_THAT(keys({{2, 2}}, {}), IsEmpty());
    EXPECT_THAT(keys({{8, 0}, {9, 0}}, {}), ElementsAre(1, 3, 6));
}

TEST(RecoveryDeathTest, NoEpochIsFlushedTwice) {
    const auto once = local_epoch({1, 1}, true, true);
    EXPECT_DEATH((void)choose_recoveries({once, once}, {}, {}), "does not hold");
}

}  // namespace
}  // namespace tailrace::internal
