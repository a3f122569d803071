// The ledgers: who has captured what, and what follows from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/invariant.h"
#include "base/log.h"
#include "format/original_files.h"
#include "ledger/node_ledger.h"
#include "ledger/rank_epochs.h"
#include "ledger/root_ledger.h"

namespace tailrace::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

Captured capture_of(uint32_t rank, uint64_t sequence, uint64_t epoch, Status status = {}) {
    Captured capture;
    capture.sequence = sequence;
    capture.key = {epoch, 1};
    capture.status = std::move(status);
    capture.stream.rank = rank;
    return capture;
}

// What is complete with this capture.
std::optional<NodeLedger::Complete> whole_with(NodeLedger& ledger, const Captured& capture) {
    auto whole = ledger.captured(capture);
    EXPECT_TRUE(whole.ok()) << whole.status().message();
    return whole.ok() ? std::move(*whole) : std::nullopt;
}

TEST(NodeLedgerTest, AnEpochIsWholeWithItsLastRank) {
    NodeLedger ledger(2, 2);
    EXPECT_FALSE(whole_with(ledger, capture_of(4, 0, 10)));
    EXPECT_FALSE(whole_with(ledger, capture_of(4, 1, 11)));
    auto whole = whole_with(ledger, capture_of(5, 0, 10));
    ASSERT_TRUE(whole);
    EXPECT_TRUE(whole->news.status.ok());
    EXPECT_EQ(whole->news.node, 2);
    EXPECT_THAT(whole->news.keys, ElementsAre(EpochKey{10, 1}));
    EXPECT_THAT(whole->captures, SizeIs(2));
}

TEST(NodeLedgerTest, DifferentEpochsAndFailedCapturesAreTold) {
    NodeLedger ledger(0, 2);
    (void)ledger.captured(capture_of(0, 0, 10));
    auto mixed = whole_with(ledger, capture_of(1, 0, 11));
    ASSERT_TRUE(mixed);
    EXPECT_THAT(mixed->news.keys, SizeIs(2));
    EXPECT_THAT(mixed->news.status.message(), HasSubstr("10 on rank 0 and 11 on rank 1"));
    (void)ledger.captured(capture_of(0, 1, 12));
    auto failed = whole_with(ledger, capture_of(1, 1, 12, Status(Code::no_space, "full")));
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
    auto late = whole_with(ledger, capture_of(0, 2, 12));
    ASSERT_TRUE(late);
    EXPECT_EQ(late->news.status.code(), Code::failed_state);
}

TEST(NodeLedgerTest, ARankIsNotTakenForTwo) {
    NodeLedger ledger(2, 2);
    EXPECT_FALSE(whole_with(ledger, capture_of(4, 0, 10)));
    const auto again = ledger.captured(capture_of(4, 0, 10));
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.status().code(), Code::transport);
    EXPECT_EQ(again.status().message(), "rank 4 told node 2 of its save number 1 after its save number 1");
    EXPECT_FALSE(whole_with(ledger, capture_of(4, 1, 11)));
    EXPECT_TRUE(whole_with(ledger, capture_of(5, 0, 10))) << "with the right rank";
    EXPECT_FALSE(ledger.captured(capture_of(4, 0, 10)).ok()) << "of a save that was whole";
    EXPECT_TRUE(whole_with(ledger, capture_of(5, UINT64_MAX, 12)) == std::nullopt);
    EXPECT_FALSE(ledger.captured(capture_of(5, UINT64_MAX, 12)).ok());
}

struct RootDriver {
    RootLedger ledger;
    size_t nodes, parties;
    RootDriver(size_t node_count, size_t party_count, QueuePolicy policy, uint32_t queue,
               uint32_t redundancy_every = 0)
        : ledger(node_count, party_count, policy, queue, redundancy_every),
          nodes(node_count),
          parties(party_count) {}
    void captured(const NodeCaptured& news) { EXPECT_TRUE(ledger.captured(news).ok()); }
    void captured_everywhere(uint64_t sequence, uint64_t epoch, bool for_shared = true) {
        for (size_t node = 0; node < nodes; ++node)
            captured({static_cast<int>(node), sequence, {{epoch, 1}}, for_shared, {}});
    }
    void flushed(uint64_t epoch, Status status = {}) {
        for (size_t party = 0; party < parties; ++party)
            ledger.result({{epoch, 1}, static_cast<int>(party), status, 1.0});
    }
    // "flush 3", "local 4", "protected 4", "committed 3", "kept 4", "failed 5", with "!" when not captured
    // everywhere. What is to be judged is found to be `verdict`.
    std::vector<std::string> orders(const Status& verdict = {}) {
        std::vector<std::string> words;
        for (auto some = ledger.take_orders(); !some.empty(); some = ledger.take_orders())
            for (const auto& order : some) add_word(words, order, verdict);
        return words;
    }
    void add_word(std::vector<std::string>& words, const Order& order, const Status& verdict) {
        if (const auto* to_judge = std::get_if<JudgeArrays>(&order)) {
            EXPECT_THAT(to_judge->arrays, SizeIs(nodes));
            ledger.judged(to_judge->key, verdict);
        } else if (const auto* decision = std::get_if<Decision>(&order)) {
            words.push_back((decision->flush ? "flush " : "local ") + std::to_string(decision->key.epoch));
        } else if (const auto* safe = std::get_if<EpochProtected>(&order)) {
            words.push_back("protected " + std::to_string(safe->key.epoch));
        } else if (const auto* ended = std::get_if<EpochEnded>(&order)) {
            const char* word = ended->state == EpochState::committed    ? "committed "
                               : ended->state == EpochState::kept_local ? "kept "
                               : ended->refused                         ? "refused "
                                                                        : "failed ";
            words.push_back(word + std::to_string(ended->key.epoch) +
                            (ended->captured_everywhere ? "" : "!"));
        }
    }
};

TEST(RootLedgerTest, LeadersMayCommitWhatWasJudgedAndVerifiedAndNothingElse) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    const auto orders = root.ledger.take_orders();
    ASSERT_THAT(orders, SizeIs(2));
    ASSERT_TRUE(std::holds_alternative<JudgeArrays>(orders[1]));
    root.ledger.judged({1, 1}, {});
    root.ledger.judged({1, 1}, Status(Code::invalid_argument, "too late"));
    const auto verdict = root.ledger.take_orders();
    ASSERT_THAT(verdict, SizeIs(1));
    EXPECT_EQ(std::get<ArraysFit>(verdict[0]).key, (EpochKey{1, 1}));
    root.ledger.prepared({{1, 1}, 1, {}});
    root.ledger.prepared({{1, 1}, 1, {}});
    EXPECT_THAT(root.ledger.take_orders(), IsEmpty()) << "one of two nodes, twice";
    root.ledger.prepared({{1, 1}, 0, {}});
    const auto more = root.ledger.take_orders();
    ASSERT_THAT(more, SizeIs(1));
    EXPECT_EQ(std::get<MayCommit>(more[0]).key, (EpochKey{1, 1}));

    root.captured_everywhere(1, 2);
    (void)root.ledger.take_orders();
    root.ledger.prepared({{2, 1}, 0, {}});
    root.ledger.prepared({{2, 1}, 1, {}});
    EXPECT_THAT(root.ledger.take_orders(), IsEmpty()) << "not judged";
    root.ledger.judged({2, 1}, {});
    const auto both = root.ledger.take_orders();
    ASSERT_THAT(both, SizeIs(2));
    EXPECT_TRUE(std::holds_alternative<ArraysFit>(both[0]));
    EXPECT_TRUE(std::holds_alternative<MayCommit>(both[1]));
}

// Before its plan is written. Nodes that finish an epoch after its program cannot know it.
TEST(RootLedgerTest, FilesThatCannotLieTogetherAreFoundBeforeTheArraysAreJudged) {
    RootDriver root(2, 2, QueuePolicy::wait, 4);
    const auto save = [&](uint64_t epoch, std::vector<std::string> first, std::vector<std::string> second) {
        root.captured({0, epoch, {{epoch, 1}}, true, {}, {}, {}, {{3, std::move(first)}}});
        root.captured({1, epoch, {{epoch, 1}}, true, {}, {}, {}, {{4, std::move(second)}}});
    };
    save(1, {"a", "d/b"}, {"c"});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));
    save(2, {"a", "d/b"}, {"c", "d/b"});
    const auto orders = root.ledger.take_orders();
    ASSERT_THAT(orders, SizeIs(2)) << "the flush, and that it is refused";
    const auto& ended = std::get<EpochEnded>(orders[1]);
    EXPECT_TRUE(ended.refused);
    EXPECT_THAT(ended.why.message(), HasSubstr("rank 4 and another rank have both saved a file \"d/b\""));
    save(3, {"a"}, {"a/b"});
    EXPECT_THAT(root.orders(), ElementsAre("flush 3", "refused 3!"));
    save(4, {"a"}, {"b", std::string(file_list_name)});
    EXPECT_THAT(root.orders(), ElementsAre("flush 4", "refused 4!"));
    save(5, {"a"}, {"b"});
    EXPECT_THAT(root.orders(), ElementsAre("flush 5"));
}

TEST(NodeLedgerTest, TheNodeTellsOfItsRanksFiles) {
    NodeLedger ledger(2, 3);
    for (const uint32_t rank : {4, 5, 6}) {
        auto capture = capture_of(rank, 0, 10);
        if (rank != 5) capture.names_apart = {"f" + std::to_string(rank)};
        const auto whole = whole_with(ledger, capture);
        if (!whole) continue;
        ASSERT_THAT(whole->news.names_apart, SizeIs(2));
        EXPECT_EQ(whole->news.names_apart[1].rank, 6u);
        EXPECT_THAT(whole->news.names_apart[1].names, ElementsAre("f6"));
        return;
    }
    FAIL() << "it never was whole";
}

// Otherwise the epoch would be judged without the arrays of some node.
TEST(RootLedgerTest, ANodeIsNotTakenForTwo) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured({0, 0, {{1, 1}}, true, {}});
    const auto again = root.ledger.captured({0, 0, {{1, 1}}, true, {}});
    EXPECT_EQ(again.code(), Code::transport);
    EXPECT_EQ(again.message(), "node 0 told of its capture of save number 1 after save number 1");
    const auto elsewhere = root.ledger.captured({0, 1, {{1, 1}}, true, {}});
    EXPECT_EQ(elsewhere.code(), Code::transport);
    EXPECT_EQ(elsewhere.message(), "node 0 told of its capture of epoch 1 of run 1 in two saves");
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));
    root.captured({1, 0, {{1, 1}}, true, {}});
    root.flushed(1);
    EXPECT_THAT(root.orders(), ElementsAre("committed 1"));
    EXPECT_FALSE(root.ledger.captured({1, 0, {{9, 1}}, true, {}}).ok()) << "of a save that was whole";
}

// Its ranks make it one by one, and each hears at once that it has failed.
TEST(RootLedgerTest, ASaveThatWillNeverBeWholeMayBeToldOfTwice) {
    const Status over(Code::failed_state, "over");
    RootDriver root(2, 1, QueuePolicy::wait, 2);
    root.ledger.end_from(0, over);
    for (int rank = 0; rank < 3; ++rank) root.captured({1, 0, {{1, 1}}, true, over});
    EXPECT_THAT(root.orders(), ElementsAre("failed 1!"));
    root.captured({0, 0, {{1, 1}}, true, over});
    EXPECT_THAT(root.orders(), IsEmpty());
}

TEST(RootLedgerTest, APartThatIsNotSoundEndsTheEpochAtOnce) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));
    root.ledger.prepared({{1, 1}, 0, Status(Code::corrupt, "a flipped bit")});
    root.ledger.prepared({{1, 1}, 1, {}});
    EXPECT_THAT(root.orders(), ElementsAre("failed 1!"));
    root.flushed(1);
    EXPECT_THAT(root.orders(), IsEmpty());
    EXPECT_THAT(root.ledger.take_leftovers(), ElementsAre(EpochKey{1, 1}, EpochKey{1, 1}));
}

// It may be there again at the next look, so the next session or an agent can bring the epoch to its place.
TEST(RootLedgerTest, APartThatCouldNotBeReadKeepsTheOthers) {
    const Status why(Code::io_error, "a disk that does not answer");
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));  // and judged
    root.ledger.prepared({{1, 1}, 0, why});
    EXPECT_THAT(root.orders(), ElementsAre("failed 1"));
    root.flushed(1, Status(Code::aborted, "given up"));
    EXPECT_THAT(root.orders(), IsEmpty());

    root.captured_everywhere(1, 2);
    (void)root.ledger.take_orders();
    root.ledger.prepared({{2, 1}, 1, why});
    EXPECT_THAT(root.ledger.take_orders(), IsEmpty()) << "it is not known whether the epoch exists";
    root.ledger.judged({2, 1}, {});
    const auto orders = root.ledger.take_orders();
    ASSERT_THAT(orders, SizeIs(2));
    const auto& ended = std::get<EpochEnded>(orders[1]);
    EXPECT_TRUE(ended.parts_stay());
    EXPECT_THAT(ended.why.message(), AllOf(StartsWith("a disk that does not answer; its captured parts stay"),
                                           HasSubstr("earlier epochs are intact")));
}

TEST(RootLedgerTest, FilesThatDoNotGoTogetherAreRefused) {
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1"));
    root.ledger.prepared({{1, 1}, 0, Status(Code::invalid_argument, "two files of one name")});
    EXPECT_THAT(root.orders(), ElementsAre("refused 1!"));
}

TEST(RootLedgerTest, WhatCannotBeRestoredFailsAndLeavesFilesToRemove) {
    const Status gap(Code::invalid_argument, "a gap");
    RootDriver root(2, 2, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    EXPECT_THAT(root.orders(gap), ElementsAre("flush 1", "refused 1!"));
    root.flushed(1, Status(Code::aborted, "given up"));
    EXPECT_THAT(root.orders(), IsEmpty());
    EXPECT_THAT(root.ledger.take_leftovers(), ElementsAre(EpochKey{1, 1}, EpochKey{1, 1}));
    root.captured_everywhere(1, 2, false);
    EXPECT_THAT(root.orders(gap), ElementsAre("local 2", "refused 2!"));
    root.captured_everywhere(2, 3);
    EXPECT_THAT(root.orders(Status(Code::io_error, "a table that could not be read")),
                ElementsAre("flush 3", "failed 3!"))
        << "no part is removed";
    root.captured_everywhere(3, 4);
    root.flushed(4);
    EXPECT_THAT(root.orders(), ElementsAre("flush 4", "committed 4"));
}

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
    root.captured({1, 0, {{1, 1}}, true, {}});
    root.ledger.result({{1, 1}, 1, {}, 1.0});
    root.captured({0, 0, {{1, 1}}, true, {}});
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
    root.captured({0, 0, {{1, 1}}, true, {}});
    root.captured({1, 0, {{1, 1}}, true, Status(Code::no_space, "full")});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "failed 1!"));
    EXPECT_THAT(root.ledger.take_leftovers(), IsEmpty());
    root.ledger.result({{1, 1}, 0, {}, 1.0});
    EXPECT_THAT(root.orders(), IsEmpty());
    EXPECT_THAT(root.ledger.take_leftovers(), ElementsAre(EpochKey{1, 1}));
}

TEST(RootLedgerTest, WhatLiesBeyondTheEndFailsAlsoWhereANodeHasCapturedItWhole) {
    RootDriver root(2, 1, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1);
    root.captured({0, 1, {{2, 1}}, true, {}});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "flush 2"));
    const Status why(Code::failed_state, "over");
    root.ledger.end_from(2, why);
    EXPECT_THAT(root.orders(), IsEmpty());
    root.ledger.end_from(1, why);
    root.ledger.end_from(3, why);
    EXPECT_THAT(root.orders(), ElementsAre("failed 2!"));
    root.captured({0, 2, {{3, 1}}, true, {}});
    EXPECT_THAT(root.orders(), testing::Contains("failed 3!"));
    root.flushed(1);
    EXPECT_THAT(root.orders(), ElementsAre("committed 1"));
}

TEST(RootLedgerTest, DifferentEpochsAtOneSequenceNumberAllFail) {
    RootDriver root(3, 1, QueuePolicy::wait, 2);
    root.captured({0, 0, {{1, 1}}, true, {}});
    root.captured({1, 0, {{2, 1}}, true, {}});
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "failed 1!", "failed 2!"));
    root.captured({2, 0, {{3, 1}}, true, {}});
    EXPECT_THAT(root.orders(), ElementsAre("failed 3!"));
    root.captured_everywhere(1, 4);
    root.flushed(4);
    EXPECT_THAT(root.orders(), ElementsAre("flush 4", "committed 4"));
}

TEST(RootLedgerTest, KeptLocalOnlyWhenEveryNodeHasCaptured) {
    RootDriver root(2, 1, QueuePolicy::wait, 2);
    root.captured({0, 0, {{1, 1}}, false, {}});
    EXPECT_THAT(root.orders(), ElementsAre("local 1"));
    root.captured({1, 0, {{1, 1}}, false, {}});
    EXPECT_THAT(root.orders(), ElementsAre("kept 1"));
}

// Nodes can then finish it without the program.
TEST(RootLedgerTest, NodesHearOfAnEpochThatIsKeptThatItsArraysFit) {
    RootDriver root(2, 1, QueuePolicy::wait, 2);
    root.captured_everywhere(0, 1, false);
    (void)root.ledger.take_orders();
    root.ledger.judged({1, 1}, {});
    const auto verdict = root.ledger.take_orders();
    ASSERT_THAT(verdict, SizeIs(2));
    EXPECT_EQ(std::get<ArraysFit>(verdict[0]).key, (EpochKey{1, 1}));
    EXPECT_EQ(std::get<EpochEnded>(verdict[1]).state, EpochState::kept_local);
}

NodeProtected protected_on(int node, uint64_t epoch, bool done, double seconds = 1) {
    return {{epoch, 1}, {node, done, done ? "" : "no space", seconds, 0, 0}};
}

TEST(RootLedgerTest, AnEpochIsProtectedWhenEveryNodeSaysSoAndKeptOnlyWhenThatIsKnown) {
    RootDriver root(2, 1, QueuePolicy::wait, 2, 2);
    root.captured_everywhere(0, 1, false);
    EXPECT_THAT(root.orders(), ElementsAre("local 1"));
    root.ledger.node_protected(protected_on(1, 1, true, 3));
    root.ledger.node_protected(protected_on(1, 1, true));
    EXPECT_THAT(root.orders(), IsEmpty()) << "one node, twice";
    root.ledger.node_protected(protected_on(0, 1, true));
    const auto orders = root.ledger.take_orders();
    ASSERT_THAT(orders, SizeIs(2));
    EXPECT_EQ(std::get<EpochProtected>(orders[0]).seconds, 3) << "the slowest";
    EXPECT_EQ(std::get<EpochEnded>(orders[1]).state, EpochState::kept_local);
    root.ledger.node_protected(protected_on(0, 1, true));
    EXPECT_THAT(root.orders(), IsEmpty());

    root.captured_everywhere(1, 2, false);
    EXPECT_THAT(root.orders(), ElementsAre("local 2", "kept 2")) << "redundancy_every leaves it out";
    root.captured_everywhere(2, 3, false);
    root.ledger.node_protected(protected_on(0, 3, true));
    root.ledger.node_protected(protected_on(1, 3, false));
    EXPECT_THAT(root.orders(), ElementsAre("local 3", "kept 3")) << "one set could not";
}

TEST(RootLedgerTest, AFlushWaitsForNoOtherNodesProtection) {
    RootDriver root(2, 1, QueuePolicy::wait, 2, 1);
    root.captured_everywhere(0, 1);
    root.flushed(1);
    EXPECT_THAT(root.orders(), ElementsAre("flush 1", "committed 1"));
    for (const int node : {0, 1}) root.ledger.node_protected(protected_on(node, 1, true));
    EXPECT_THAT(root.orders(), ElementsAre("protected 1"));
}

// Epochs 1 to 4 of run 1.
void add_four_captured(RankEpochs& epochs) {
    for (uint64_t epoch = 1; epoch <= 4; ++epoch) {
        EpochInfo info;
        info.epoch = epoch;
        info.run = 1;
        info.state = EpochState::captured;
        epochs.add(info, true);
    }
}

TEST(RankEpochsTest, AnEpochWhoseAgentsAreGoneIsAsSafeAsBefore) {
    RankEpochs epochs;
    add_four_captured(epochs);
    epochs.protected_from({1, 1}, 1);
    epochs.protected_from({2, 1}, 1);
    epochs.flushing({2, 1});
    epochs.flushing({3, 1});
    epochs.ended({{4, 1}, EpochState::committed, {}, 0, true});
    const auto before = epochs.changes();
    epochs.uncarried();
    EXPECT_GT(epochs.changes(), before);
    const auto state_of = [&](uint64_t epoch) { return epochs.find(epoch)->info.state; };
    EXPECT_EQ(state_of(1), EpochState::protected_);
    EXPECT_EQ(state_of(2), EpochState::protected_) << "its flush is over";
    EXPECT_EQ(state_of(3), EpochState::captured);
    EXPECT_EQ(state_of(4), EpochState::committed);
}

TEST(RankEpochsTest, WhatAnEpochSurvivesIsSaidInEveryState) {
    RankEpochs epochs;
    add_four_captured(epochs);
    const auto state_of = [&](uint64_t epoch) { return epochs.find(epoch)->info.state; };
    const auto losses_of = [&](uint64_t epoch) { return epochs.find(epoch)->info.losses_survived; };
    epochs.protected_from({1, 2}, 1);
    EXPECT_EQ(losses_of(1), 0u) << "of another run";
    epochs.protected_from({1, 1}, 2);
    EXPECT_EQ(state_of(1), EpochState::protected_);
    epochs.flushing({1, 1});
    EXPECT_EQ(state_of(1), EpochState::flushing);
    EXPECT_EQ(losses_of(1), 2u);

    epochs.flushing({2, 1});
    epochs.protected_from({2, 1}, 1);
    EXPECT_EQ(state_of(2), EpochState::flushing) << "a state never moves backwards";
    EXPECT_EQ(losses_of(2), 1u);
    const Status full(Code::no_space, "full");
    epochs.ended({{2, 1}, EpochState::failed, full, 0, true});
    EXPECT_EQ(losses_of(2), 1u) << "its captured parts stay";

    epochs.ended({{3, 1}, EpochState::kept_local, {}, 0, true});
    epochs.protected_from({3, 1}, 1);
    EXPECT_EQ(state_of(3), EpochState::kept_local);
    EXPECT_EQ(losses_of(3), 1u);

    epochs.protected_from({4, 1}, 1);
    epochs.ended({{4, 1}, EpochState::failed, full, 0, false});
    epochs.protected_from({4, 1}, 1);
    EXPECT_EQ(losses_of(4), 0u) << "it is not whole";
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

TEST(RootLedgerTest, WhereTheDirectoryIsGoneNothingIsSaidToBeIntact) {
    const auto why_of = [](const Status& why) {
        RootDriver root(1, 1, QueuePolicy::wait, 2);
        root.captured_everywhere(0, 1);
        (void)root.orders();
        root.flushed(1, why);
        for (const auto& order : root.ledger.take_orders())
            if (const auto* ended = std::get_if<EpochEnded>(&order)) return ended->why.message();
        return std::string();
    };
    EXPECT_THAT(why_of(Status(Code::io_error, "disk")), HasSubstr("earlier epochs are intact"));
    EXPECT_THAT(why_of(Status(Code::io_error, "the file \"intact\" cannot be written")),
                testing::EndsWith("; earlier epochs are intact"))
        << "whatever the reason says";
    const auto gone = why_of(Status(Code::not_found, "the directory '/s' does not exist"));
    EXPECT_THAT(gone, HasSubstr("its captured parts stay in the node-local tiers"));
    EXPECT_THAT(gone, HasSubstr("earlier epochs may be gone"));
    EXPECT_THAT(gone, ::testing::Not(HasSubstr("intact")));
}

// What the drivers of the ledgers never do. Each would otherwise end an epoch wrongly, or write beyond the
// books.
TEST(LedgerInvariantsTest, ADriverThatMixesUpItsOrdersIsStopped) {
    set_log_level(LogLevel::off);
    NodeLedger without_ranks(0, 0);
    EXPECT_THROW((void)without_ranks.captured(capture_of(0, 0, 1)), BrokenInvariant);
    {
        RootDriver driver(2, 1, QueuePolicy::wait, 2);
        EXPECT_THROW((void)driver.ledger.captured({2, 0, {{1, 1}}, true, {}}), BrokenInvariant)
            << "of two nodes";
        EXPECT_THROW((void)driver.ledger.captured({-1, 0, {{1, 1}}, true, {}}), BrokenInvariant);
    }
    {
        RootDriver driver(2, 1, QueuePolicy::wait, 2);
        driver.captured({0, 0, {{1, 1}}, true, {}});
        EXPECT_THROW(driver.ledger.judged({1, 1}, Status()), BrokenInvariant)
            << "node 1 has captured nothing";
    }
    {
        RootDriver driver(2, 1, QueuePolicy::wait, 2);
        driver.ledger.recovered({1, 1});
        EXPECT_THROW(driver.ledger.recovered({1, 1}), BrokenInvariant);
    }
    set_log_level(LogLevel::warning);
}

}  // namespace
}  // namespace tailrace::internal
