// The pure parts of the checkpointer: messages, table, ledgers, the node-local tier's and the
// recovery's decisions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/agent_messages.h"
#include "checkpoint/epoch_ledger.h"
#include "checkpoint/epoch_table.h"
#include "checkpoint/local_tier.h"
#include "checkpoint/recovery.h"
#include "checkpoint/sample_program.h"
#include "checkpoint/shared_epoch_codec.h"
#include "storage/scratch.h"

namespace tailrace {
namespace {

using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- messages --------------------------------------------------------------------------------------------

std::vector<AgentMessage> sample_messages() {
    const Status failure(Code::no_space, "full");
    NodeFlushed flushed{{12, 3}, {4, 1, {}}};
    flushed.node.statistics.leader = true;
    flushed.node.statistics.received_bytes = 77;
    flushed.node.statistics.commit_seconds = 0.5;
    flushed.node.statistics.writers = {{1, 2, 3, 4, 0.1, 0.2, 0.3, 0.4}, {}};
    return {Captured{7, {12, 3}, false, failure, {5, 100, 50, 99}, "/a b/c", 0.5, 0.25},
            NodeCaptured{4, 7, {{12, 3}, {13, 3}}, true, {}, {2, 99, 0.5, 0.75, 1.25, 0.1}},
            flushed,
            Decision{{12, 3}, false},
            GroupResult{{12, 3}, 2, failure, 1.5},
            EpochEnded{{12, 3}, EpochState::failed, failure, 0.25, true},
            EpochEnded{{12, 3}, EpochState::kept_local, {}, 0.25, true, "by a setting"},
            EpochFlushing{{12, 3}},
            BackgroundOver{failure},
            SavesOver{7}};
}

TEST(AgentMessageTest, EveryKindSurvivesARoundTrip) {
    for (const auto& message : sample_messages()) {
        const auto bytes = encode(message);
        EXPECT_TRUE(is_agent_message(bytes));
        auto decoded = decode_agent_message(bytes);
        ASSERT_TRUE(decoded.ok());
        EXPECT_EQ(decoded->index(), message.index());
        EXPECT_EQ(encode(*decoded), bytes);
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

TEST(EpochTableTest, AnEndNeverChangesAndMayComeBeforeTheCapture) {
    EpochTable table;
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
    EXPECT_EQ(table.find(3)->info.state, EpochState::captured);
    EXPECT_THAT(table.unfinished(), ElementsAre(3));
    table.fail_all(Status(Code::transport, "gone"), true);
    table.add(captured_info(4), true);
    EXPECT_EQ(table.find(3)->info.why.code(), Code::transport);
    EXPECT_EQ(table.find(4)->info.why.code(), Code::transport);
}

// ---- ledgers -------------------------------------------------------------------------------------------

Captured capture_of(uint32_t rank, uint64_t sequence, uint64_t epoch, Status status = {}) {
    Captured capture;
    capture.sequence = sequence;
    capture.key = {epoch, 1};
    capture.status = std::move(status);
    capture.stream.rank = rank;
    return capture;
}

TEST(NodeLedgerTest, AnEpochIsWholeWithItsLastRank) {
    NodeLedger ledger(2, 2);
    EXPECT_FALSE(ledger.captured(capture_of(4, 0, 10)));
    EXPECT_FALSE(ledger.captured(capture_of(4, 1, 11)));
    auto whole = ledger.captured(capture_of(5, 0, 10));
    ASSERT_TRUE(whole);
    EXPECT_TRUE(whole->news.status.ok());
    EXPECT_EQ(whole->news.node, 2);
    EXPECT_THAT(whole->news.keys, ElementsAre(EpochKey{10, 1}));
    EXPECT_THAT(whole->captures, SizeIs(2));
}

TEST(NodeLedgerTest, DifferentEpochsAndFailedCapturesAreTold) {
    NodeLedger ledger(0, 2);
    (void)ledger.captured(capture_of(0, 0, 10));
    auto mixed = ledger.captured(capture_of(1, 0, 11));
    ASSERT_TRUE(mixed);
    EXPECT_THAT(mixed->news.keys, SizeIs(2));
    EXPECT_THAT(mixed->news.status.message(), HasSubstr("10 on rank 0 and 11 on rank 1"));
    (void)ledger.captured(capture_of(0, 1, 12));
    auto failed = ledger.captured(capture_of(1, 1, 12, Status(Code::no_space, "full")));
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->news.status.code(), Code::no_space);
    EXPECT_THAT(failed->news.status.message(), HasSubstr("rank 1"));
}

TEST(NodeLedgerTest, WhatLiesBeyondTheEndFailsAlsoWhenItComesLater) {
    NodeLedger ledger(0, 2);
    (void)ledger.captured(capture_of(0, 1, 11));
    const auto ended = ledger.end_from(1, Status(Code::failed_state, "over"));
    ASSERT_THAT(ended, SizeIs(1));
    EXPECT_EQ(ended[0].news.status.code(), Code::failed_state);
    auto late = ledger.captured(capture_of(0, 2, 12));
    ASSERT_TRUE(late);
    EXPECT_EQ(late->news.status.code(), Code::failed_state);
}

struct RootDriver {
    RootLedger ledger;
    size_t nodes, parties;
    RootDriver(size_t node_count, size_t party_count, QueuePolicy policy, uint32_t queue)
        : ledger(node_count, party_count, policy, queue), nodes(node_count), parties(party_count) {}
    void captured_everywhere(uint64_t sequence, uint64_t epoch, bool for_shared = true) {
        for (size_t node = 0; node < nodes; ++node)
            ledger.captured({static_cast<int>(node), sequence, {{epoch, 1}}, for_shared, {}});
    }
    void flushed(uint64_t epoch, Status status = {}) {
        for (size_t party = 0; party < parties; ++party)
            ledger.result({{epoch, 1}, static_cast<int>(party), status, 1.0});
    }
    // "flush 3", "local 4", "committed 3", "kept 4", "failed 5", with "!" when not captured everywhere.
    std::vector<std::string> orders() {
        std::vector<std::string> words;
        for (const auto& order : ledger.take_orders()) {
            if (const auto* decision = std::get_if<Decision>(&order)) {
                words.push_back((decision->flush ? "flush " : "local ") +
                                std::to_string(decision->key.epoch));
                continue;
            }
            const auto& ended = std::get<EpochEnded>(order);
            const char* word = ended.state == EpochState::committed    ? "committed "
                               : ended.state == EpochState::kept_local ? "kept "
                                                                       : "failed ";
            words.push_back(word + std::to_string(ended.key.epoch) + (ended.captured_everywhere ? "" : "!"));
        }
        return words;
    }
};

TEST(RootLedgerTest, CommittedOnlyWhenEveryPartyHas) {
    RootDriver root(3, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));
    root.ledger.result({{1, 1}, 0, {}, 1.0});
    EXPECT_THAT(root.orders(), IsEmpty());
    root.ledger.result({{1, 1}, 1, {}, 2.0});
    EXPECT_THAT(root.orders(), ElementsAre("committed 1"));
    EXPECT_THAT(root.ledger.take_leftovers(), IsEmpty());
}

TEST(RootLedgerTest, AGroupMayBeDoneBeforeTheRootHasCaptured) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.ledger.captured({1, 0, {{1, 1}}, true, {}});
    root.ledger.result({{1, 1}, 1, {}, 1.0});
    root.ledger.captured({0, 0, {{1, 1}}, true, {}});
    root.ledger.result({{1, 1}, 0, {}, 1.0});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "committed 1"));
}

TEST(RootLedgerTest, AFailedPartyFailsTheEpochOnceAllHaveEndedAndLeavesFilesToRemove) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    root.ledger.result({{1, 1}, 0, Status(Code::io_error, "disk"), 1.0});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));
    root.ledger.result({{1, 1}, 1, {}, 1.0});
    EXPECT_THAT(root.orders(), ElementsAre("failed 1"));
    EXPECT_THAT(root.ledger.take_leftovers(), ElementsAre(EpochKey{1, 1}));
}

TEST(RootLedgerTest, WithACapturedPartLostTheEpochIsNotSaidToBeInTheNodeLocalTiers) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    root.ledger.result({{1, 1}, 0, Status(Code::io_error, "disk"), 1.0});
    root.ledger.result({{1, 1}, 1, Status(Code::corrupt, "the captured part is cut"), 1.0});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "failed 1!"));
}

TEST(RootLedgerTest, AFailedCaptureFailsAtOnceAndLateResultsAreCleanedUp) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.ledger.captured({0, 0, {{1, 1}}, true, {}});
    root.ledger.captured({1, 0, {{1, 1}}, true, Status(Code::no_space, "full")});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "failed 1!"));
    EXPECT_THAT(root.ledger.take_leftovers(), IsEmpty());
    root.ledger.result({{1, 1}, 0, {}, 1.0});
    EXPECT_THAT(root.orders(), IsEmpty());
    EXPECT_THAT(root.ledger.take_leftovers(), ElementsAre(EpochKey{1, 1}));
}

TEST(RootLedgerTest, WhatLiesBeyondTheEndFailsAlsoWhereANodeHasCapturedItWhole) {
    RootDriver root(2, 1, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    root.ledger.captured({0, 1, {{2, 1}}, true, {}});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "flush 2"));
    const Status why(Code::failed_state, "over");
    root.ledger.end_from(2, why);
    EXPECT_THAT(root.orders(), IsEmpty());
    root.ledger.end_from(1, why);
    root.ledger.end_from(3, why);
    EXPECT_THAT(root.orders(), ElementsAre("failed 2!"));
    root.ledger.captured({0, 2, {{3, 1}}, true, {}});
    EXPECT_THAT(root.orders(), testing::Contains("failed 3!"));
    root.flushed(1);
    EXPECT_THAT(root.orders(), ElementsAre("committed 1"));
}

TEST(RootLedgerTest, DifferentEpochsAtOneSequenceNumberAllFail) {
    RootDriver root(3, 1, QueuePolicy::wait, 2);
    root.ledger.captured({0, 0, {{1, 1}}, true, {}});
    root.ledger.captured({1, 0, {{2, 1}}, true, {}});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "failed 1!", "failed 2!"));
    root.ledger.captured({2, 0, {{3, 1}}, true, {}});
    EXPECT_THAT(root.orders(), ElementsAre("failed 3!"));
    root.captured_everywhere(1, 4);
    root.flushed(4);
    EXPECT_THAT(root.orders(), ElementsAre("flush 4", "committed 4"));
}

TEST(RootLedgerTest, KeptLocalOnlyWhenEveryNodeHasCaptured) {
    RootDriver root(2, 1, QueuePolicy::wait, 2);
    root.ledger.captured({0, 0, {{1, 1}}, false, {}});
    EXPECT_THAT(root.orders(), ElementsAre("local 1"));
    root.ledger.captured({1, 0, {{1, 1}}, false, {}});
    EXPECT_THAT(root.orders(), ElementsAre("kept 1"));
}

TEST(RootLedgerTest, SkipKeepsEpochsLocalWhileTheQueueIsFull) {
    RootDriver root(2, 1, QueuePolicy::skip, 1);
    root.captured_everywhere(0, 1);
    root.captured_everywhere(1, 2);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "local 2", "kept 2"));
    root.flushed(1);
    root.captured_everywhere(2, 3);
    EXPECT_THAT(root.orders(), ElementsAre("committed 1", "flush 3"));
}

TEST(RootLedgerTest, DropOldestStartsTheNewestWhenAFlushEnds) {
    RootDriver root(2, 1, QueuePolicy::drop_oldest, 3);
    for (uint64_t epoch = 1; epoch <= 4; ++epoch) root.captured_everywhere(epoch - 1, epoch);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "local 2", "kept 2"));  // two may wait
    root.flushed(1);
    EXPECT_THAT(root.orders(), ElementsAre("committed 1", "local 3", "kept 3", "flush 4"));
    root.flushed(4, Status(Code::io_error, "disk"));
    EXPECT_THAT(root.orders(), ElementsAre("failed 4"));
}

TEST(RootLedgerTest, RecoveredEpochsCountAsRunning) {
    RootDriver root(2, 2, QueuePolicy::skip, 1);
    root.ledger.recovered({9, 1});
    EXPECT_THAT(root.orders(), ElementsAre("flush 9"));
    root.captured_everywhere(0, 1);
    EXPECT_THAT(root.orders(), ElementsAre("local 1", "kept 1"));
    root.flushed(9);
    EXPECT_THAT(root.orders(), ElementsAre("committed 9"));
}

// ---- the node-local tier
// -------------------------------------------------------------------------------------

TEST(LocalTierTest, JobsWithDifferentSharedDirectoriesDoNotMeet) {
    const auto one = local_tier("/l", "/shared/a", "job");
    EXPECT_EQ(one.directory(3), local_tier("/l", "/shared/./a/", "job").directory(3));
    EXPECT_NE(one.directory(3), local_tier("/l", "/shared/b", "job").directory(3));
    EXPECT_THAT(one.directory(3), ::testing::MatchesRegex("/l/job-[0-9a-f]+\\.node0003"));
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
    std::vector<LocalPart> parts{{"/x y", known_part(0, {5, 1}, 3, 4).header}};
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
    const auto shared = [](EpochKey key) { return LocalAge{key, true, false, false, false, true}; };
    EXPECT_THAT(choose({{e1, true}, {e2, true}, shared(e3)}, 1), ElementsAre(e1));
    EXPECT_THAT(choose({{e1, false}, shared(e2), {e3, false}}, 1), ElementsAre(e1));
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

TEST(RecoveryTest, ARemovalThatIsCutShortLeavesSomethingMarkedUnfinished) {
    // At every operation the storage dies; whatever is left must be recognised by the next session.
    for (uint64_t die_at = 1; die_at < 12; ++die_at) {
        auto memory = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(memory->make_directories("/s").ok());
        for (uint32_t k = 0; k < 3; ++k)
            ASSERT_TRUE(memory
                            ->open("/s/" + to_string(SharedFileName{"job", {1, 1}, k, 3, false}),
                                   {Access::write, DirectIo::off})
                            .ok());
        ASSERT_TRUE(memory->sync_directory("/s").ok());
        FaultPlan plan;
        plan.die_at_operation = die_at;
        FaultyStorage faulty(memory, die_at, plan);
        const auto removed = remove_shared_epoch(faulty, "/s", "job", {1, 1});
        auto left = list_shared(*memory, "/s", "job");
        ASSERT_TRUE(left.ok());
        if (removed.ok()) {
            EXPECT_THAT(*left, IsEmpty());
            continue;
        }
        if (left->empty()) continue;
        bool unfinished = false;
        for (const auto& file : (*left)[0].files) unfinished |= file.name.unfinished;
        EXPECT_TRUE(unfinished || (*left)[0].files.size() == 3) << "died at operation " << die_at;
        ASSERT_TRUE(clean_shared(*memory, "/s", "job").ok());
        // As long as nothing was removed, it could be a damaged epoch that was just getting its names.
        const bool removing = unfinished && (*left)[0].files.size() < 3;
        EXPECT_THAT(*list_shared(*memory, "/s", "job"), SizeIs(removing ? 0 : 1));
    }
}

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
    put(path(2, 0, true, 3));
    expect_nothing_removed();
    const auto inventory = clean_shared(*machines_.shared, job_.config.shared_dir, "job");
    ASSERT_TRUE(inventory.ok());
    EXPECT_EQ(inventory->newest_committed, (EpochKey{2, 1}));
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
    for (int i = 0; i < 8; ++i) {
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

TEST_F(ChangedByHandTest, AnAttemptIsReplacedOnlyByOneThatIsSound) {
    // A later run saved epoch 1 again; then its files were damaged. Newer epochs are complete.
    for (uint32_t k = 0; k < 2; ++k) {
        const SharedFileName later{"job", {1, 2}, k, 2, false};
        put(join_path(job_.config.shared_dir, to_string(later)));
    }
    expect_nothing_removed();
    std::vector<EpochKey> known;
    ASSERT_TRUE(apply_shared_retention(*machines_.shared, job_.config.shared_dir, "job", 0, known).ok());
    EXPECT_THAT(shared_names(machines_, job_.config), SizeIs(6));
}

}  // namespace
}  // namespace tailrace
