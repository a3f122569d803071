#include "agent_process/agent_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const AgentBook::Time start{};

TEST(AgentBookTest, ThereIsAPassAtOnceAndThenNowAndThen) {
    AgentBook book(start, std::nullopt);
    ASSERT_TRUE(book.pass_is_due(start));
    book.pass_begun();
    EXPECT_FALSE(book.pass_is_due(start + 1h)) << "one at a time";
    book.pass_ended({}, start);
    EXPECT_FALSE(book.pass_is_due(start + 4s));
    EXPECT_TRUE(book.pass_is_due(start + 5s));
    EXPECT_FALSE(book.must_end(start + 1000h));
}

TEST(AgentBookTest, WhereNodesWaitForEachOtherThereIsOneEverySecond) {
    AgentBook book(start, std::nullopt);
    book.pass_begun();
    PassSummary waiting;
    waiting.waiting = 1;
    book.pass_ended(waiting, start);
    EXPECT_TRUE(book.pass_is_due(start + 1s));
    EXPECT_LE(book.next_look(start), start + 1s);
}

TEST(AgentBookTest, ASessionThatOpensEndsThePassAndIsLetInWhenItIsOver) {
    AgentBook book(start, std::nullopt);
    book.pass_begun();
    book.session_opens(7, start);
    EXPECT_TRUE(book.pass_must_stop(start));
    EXPECT_THAT(book.take_to_let_in(), IsEmpty());
    PassSummary stopped;
    stopped.stopped = 1;
    book.pass_ended(stopped, start);
    EXPECT_THAT(book.take_to_let_in(), ElementsAre(7));
    EXPECT_THAT(book.take_to_let_in(), IsEmpty()) << "once";
    EXPECT_FALSE(book.pass_is_due(start + 30s));
    book.session_opened(7);
    EXPECT_TRUE(book.pass_is_due(start + 30s));
    EXPECT_FALSE(book.pass_must_stop(start + 30s));
}

TEST(AgentBookTest, ASessionThatNeverOpensIsNotWaitedForForEver) {
    AgentBook book(start, std::nullopt);
    book.session_opens(7, start);
    EXPECT_FALSE(book.pass_is_due(start + 59s));
    EXPECT_TRUE(book.pass_is_due(start + 60s));
}

// Otherwise the agent would look again and again for as long as the program starts.
TEST(AgentBookTest, AnAgentSleepsWhileASessionOpens) {
    AgentBook book(start, std::nullopt);
    book.session_opens(7, start);
    EXPECT_THAT(book.take_to_let_in(), ElementsAre(7));
    for (const auto later : {0s, 1s, 59s}) EXPECT_GT(book.next_look(start + later), start + later);
    book.session_opened(7);
    EXPECT_EQ(book.next_look(start + 59s), start + 59s) << "a pass is due";
}

TEST(AgentBookTest, TheEndOfASessionLeadsToAPassAtOnce) {
    AgentBook book(start, std::nullopt);
    book.session_opens(7, start);
    book.session_opened(7);
    book.pass_begun();
    book.pass_ended({}, start);
    EXPECT_FALSE(book.pass_is_due(start + 1s));
    book.client_gone(7, start + 1s);
    EXPECT_TRUE(book.pass_is_due(start + 1s));
    EXPECT_EQ(book.session_count(), 0u);
}

TEST(AgentBookTest, AnAgentThatIsToEndFirstDoesWhatItCan) {
    AgentBook book(start, std::nullopt);
    book.stop_asked(start, 30s);
    EXPECT_FALSE(book.must_end(start));
    ASSERT_TRUE(book.pass_is_due(start));
    book.pass_begun();
    PassSummary busy;
    busy.busy = 1;
    book.pass_ended(busy, start + 1s);
    EXPECT_FALSE(book.must_end(start + 1s)) << "a session may die within the time";
    EXPECT_TRUE(book.must_end(start + 30s));
    book.pass_begun();
    EXPECT_TRUE(book.pass_must_stop(start + 30s));
    EXPECT_FALSE(book.must_end(start + 30s)) << "while a pass is under way";
    PassSummary done;
    done.waiting = 2;
    done.failed = 1;
    book.pass_ended(done, start + 2s);
    EXPECT_TRUE(book.must_end(start + 2s)) << "nothing is left that it could do by itself";
}

TEST(AgentBookTest, APassThatKnewNothingOfTheEndYieldsToOneThatGoesNewestFirst) {
    AgentBook book(start, std::nullopt);
    book.pass_begun();
    EXPECT_FALSE(book.pass_must_yield());
    book.stop_asked(start, 30s);
    EXPECT_TRUE(book.pass_must_yield());
    EXPECT_FALSE(book.pass_must_stop(start)) << "the epoch under way is finished";
    book.pass_ended({}, start + 1s);
    EXPECT_FALSE(book.must_end(start + 1s)) << "shares that had failed rested in that pass";
    ASSERT_TRUE(book.pass_is_due(start + 1s));
    book.pass_begun();
    EXPECT_FALSE(book.pass_must_yield());
    book.pass_ended({}, start + 2s);
    EXPECT_TRUE(book.must_end(start + 2s));
}

TEST(AgentBookTest, AnAgentThatIsToEndDoesNotWaitForAnotherJobForLong) {
    AgentBook book(start, std::nullopt);
    book.stop_asked(start, 1h);
    book.pass_begun();
    PassSummary busy;
    busy.busy = 1;
    book.pass_ended(busy, start + 1s);
    EXPECT_FALSE(book.must_end(start + 59s));
    EXPECT_TRUE(book.must_end(start + 60s));
}

// `tailrace agent stop` and the end of a job must not wait for a program that goes on.
TEST(AgentBookTest, AnAgentThatIsToEndWaitsAMinuteForProgramsThatLiveAndLongerForWhatTheDeadHaveLeft) {
    AgentBook book(start, std::nullopt);
    book.set_carried({.living = 1, .ending = 1}, start);
    book.stop_asked(start, 1h);
    book.pass_begun();
    PassSummary busy;
    busy.busy = 1;
    book.pass_ended(busy, start + 59s);
    EXPECT_FALSE(book.must_end(start + 59s)) << "the program may be dying";
    EXPECT_FALSE(book.must_end(start + 30min)) << "it finishes for a program that has died";
    book.set_carried({.living = 1, .ending = 0}, start + 30min);
    EXPECT_TRUE(book.must_end(start + 30min));
}

TEST(AgentBookTest, AnAgentThatCarriesIsNotIdle) {
    AgentBook book(start, 10min);
    book.set_carried({.living = 1, .ending = 0}, start);
    EXPECT_FALSE(book.must_end(start + 1h));
    book.set_carried({.living = 0, .ending = 1}, start + 1h);
    EXPECT_FALSE(book.must_end(start + 2h));
    book.set_carried({.living = 0, .ending = 0}, start + 2h);
    EXPECT_FALSE(book.must_end(start + 2h + 9min));
    EXPECT_TRUE(book.must_end(start + 2h + 10min));
}

TEST(AgentBookTest, AnAgentThatIsToEndWaitsForANodeWhoseShareItWouldWrite) {
    AgentBook book(start, std::nullopt);
    book.stop_asked(start, 30s);
    book.pass_begun();
    PassSummary lost;
    lost.waiting = lost.lost = 1;
    book.pass_ended(lost, start);
    EXPECT_FALSE(book.must_end(start + 29s));
    EXPECT_TRUE(book.pass_is_due(start + 1s));
    EXPECT_TRUE(book.must_end(start + 30s));
}

TEST(AgentBookTest, AnIdleAgentEndsOnlyWithoutSessionsAndWork) {
    AgentBook book(start, 10min);
    EXPECT_FALSE(book.must_end(start + 9min));
    EXPECT_TRUE(book.must_end(start + 10min));
    book.session_opens(7, start + 9min);
    book.session_opened(7);
    EXPECT_FALSE(book.must_end(start + 100h));
    book.client_gone(7, start + 100h);
    EXPECT_FALSE(book.must_end(start + 100h + 9min));
    book.pass_begun();
    PassSummary written;
    written.waiting = written.written = 1;
    book.pass_ended(written, start + 100h + 9min);
    EXPECT_FALSE(book.must_end(start + 100h + 18min));
    EXPECT_TRUE(book.must_end(start + 100h + 19min));
}

TEST(AgentBookTest, AShareThatTheAgentWillWriteForALostNodeIsWork) {
    AgentBook book(start, 30s);
    book.pass_begun();
    PassSummary lost;
    lost.waiting = lost.lost = 1;
    book.pass_ended(lost, start + 29s);
    EXPECT_FALSE(book.must_end(start + 30s));
    EXPECT_TRUE(book.must_end(start + 59s));
}

TEST(AgentBookTest, WhatCannotBeFinishedIsNoWork) {
    AgentBook book(start, 10min);
    book.pass_begun();
    PassSummary stuck;
    stuck.waiting = 1;
    stuck.failed = 1;
    book.pass_ended(stuck, start + 9min);
    EXPECT_TRUE(book.must_end(start + 10min));
}

}  // namespace
}  // namespace tailrace::internal
