// The agreement of when/schedule.h without threads or messages: rank 0 and others take steps in any order.
#include "when/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <random>

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using Clock = SteadyClock::time_point;

Clock at(SteadyClock::duration time) {
    return Clock(time + 1000s);
}

constexpr auto nothing = std::nullopt;

TEST(AnnouncerTest, SlowCallsAreDecidedOneAhead) {
    Announcer announcer(Question::save);
    for (uint64_t call = 1; call <= 20; ++call) {
        const auto announced = announcer.call(at(call * 1s), nothing);
        ASSERT_TRUE(announced) << call;
        EXPECT_EQ(announced->first, call + 1);
        EXPECT_EQ(announced->last, call + 1);
        EXPECT_FALSE(announced->yes);
    }
}

TEST(AnnouncerTest, QuickCallsAreDecidedFarAheadAndRarelyTalkedAbout) {
    Announcer announcer(Question::save);
    uint64_t messages = 0, decided = calls_decided_from_the_start;
    for (uint64_t call = 1; call <= 10'000; ++call) {
        const auto announced = announcer.call(at(call * 1ms), nothing);
        if (!announced) continue;
        ++messages;
        EXPECT_EQ(announced->first, decided + 1);
        decided = announced->last;
        EXPECT_LE(decided, call + 64);
    }
    EXPECT_LT(messages, 10'000 / 30u);
}

TEST(AnnouncerTest, ASlowCallAmongQuickOnesMakesItCareful) {
    Announcer announcer(Question::save);
    auto time = at(0s);
    for (int call = 0; call < 1000; ++call) (void)announcer.call(time += 1ms, nothing);
    for (int call = 0; call < 64; ++call) (void)announcer.call(time += 10s, nothing);
    const uint64_t before = announcer.calls();
    (void)announcer.call(time += 1ms, nothing);
    const auto announced = announcer.call(time += 1ms, "now");
    ASSERT_TRUE(announced && announced->yes);
    EXPECT_LE(announced->last, before + 3);
}

TEST(AnnouncerTest, AWishIsGrantedAtTheFirstCallThatIsOpen) {
    Announcer announcer(Question::save);
    (void)announcer.call(at(1s), nothing);
    const auto announced = announcer.call(at(2s), "it is time");
    ASSERT_TRUE(announced);
    EXPECT_TRUE(announced->yes);
    EXPECT_EQ(announced->why, "it is time");
    EXPECT_EQ(announced->last, 3u);
    EXPECT_FALSE(announcer.wishes_count()) << "rank 0 has not come to call 3";
    const auto next = announcer.call(at(3s), "it is time");
    ASSERT_TRUE(next);
    EXPECT_FALSE(next->yes);
    EXPECT_TRUE(announcer.wishes_count());
}

TEST(AnnouncerTest, AloneItDecidesTheCallItself) {
    Announcer announcer(Question::save, true);
    Answers answers(Question::save, true);
    for (uint64_t call = 1; call <= 10; ++call) {
        const bool wish = call % 3 == 0;
        const auto announced =
            announcer.call(at(call * 1ms), wish ? std::optional<std::string>("x") : nothing);
        ASSERT_TRUE(announced);
        ASSERT_TRUE(answers.hear(*announced).ok());
        EXPECT_EQ(answers.at(call)->yes, wish) << call;
    }
}

TEST(AnnouncerTest, NeverIsSaidOnce) {
    Announcer announcer(Question::save);
    Answers answers(Question::save);
    const auto announced = announcer.call(at(1s), nothing, true);
    ASSERT_TRUE(announced);
    ASSERT_TRUE(answers.hear(*announced).ok());
    for (uint64_t call = 2; call < 100; ++call) EXPECT_FALSE(announcer.call(at(call * 1s), "x"));
    EXPECT_FALSE(answers.at(uint64_t{1} << 60)->yes);
}

TEST(AnswersTest, StopStaysYes) {
    Answers answers(Question::stop);
    ASSERT_TRUE(answers.hear({Question::stop, 2, 5, true, "SIGTERM"}).ok());
    for (uint64_t call = 1; call < 5; ++call) EXPECT_FALSE(answers.at(call)->yes);
    for (uint64_t call = 5; call < 100; ++call) {
        EXPECT_TRUE(answers.at(call)->yes);
        EXPECT_EQ(answers.at(call)->why, "SIGTERM");
    }
}

TEST(AnswersTest, WhatDoesNotFollowIsRefused) {
    for (const Announcement& bad : {Announcement{Question::save, 3, 5}, Announcement{Question::save, 1, 5},
                                    Announcement{Question::save, 2, 1}, Announcement{Question::stop, 2, 5}}) {
        Answers answers(Question::save);
        EXPECT_EQ(answers.hear(bad).code(), Code::transport);
        EXPECT_FALSE(answers.at(2)) << "nothing is decided by it";
    }
    Answers over(Question::stop);
    ASSERT_TRUE(over.hear({Question::stop, 2, 2, true, "x"}).ok());
    EXPECT_FALSE(over.hear({Question::stop, 3, 4}).ok()) << "nothing comes after a stop";
}

// Ranks, messages that take any time (but keep their order to one rank), calls at any time, wishes at any
// time. Rank 0 waits for nobody, and another rank waits only while rank 0 has not made the call before.
void play(uint64_t seed, Question question) {
    SCOPED_TRACE(testing::Message() << "TAILRACE_SEED=" << seed);
    std::mt19937_64 random(seed);
    const size_t ranks = 1 + random() % 6;
    const bool alone = ranks == 1;
    const auto most_gap = std::chrono::microseconds(1 + random() % (uint64_t{1} << (random() % 22)));
    const uint64_t rounds = 200 + random() % 800, one_in = 1 + random() % 50;
    Announcer announcer(question, alone);
    std::vector<Answers> answers(ranks, Answers(question, alone));
    std::vector<std::deque<Announcement>> mail(ranks);
    std::vector<uint64_t> calls(ranks, 0);
    std::vector<std::map<uint64_t, bool>> heard(ranks);
    auto time = at(0s);
    uint64_t wishes = 0, granted = 0;
    for (uint64_t step = 0; step < rounds * ranks; ++step) {
        const size_t rank = random() % ranks;
        // A message may come now or later.
        while (!mail[rank].empty() && random() % 2 == 0) {
            ASSERT_TRUE(answers[rank].hear(mail[rank].front()).ok());
            mail[rank].pop_front();
        }
        if (rank == 0) {
            time += std::chrono::microseconds(random() % static_cast<uint64_t>(most_gap.count()));
            std::optional<std::string> why;
            if (random() % one_in == 0 && announcer.wishes_count()) why = "wish " + std::to_string(++wishes);
            const auto announced = announcer.call(time, why);
            if (why) {
                ASSERT_TRUE(announced && announced->yes && announced->why == *why);
                ++granted;
            }
            if (announced) {
                ASSERT_TRUE(answers[0].hear(*announced).ok());
                for (size_t other = 1; other < ranks; ++other) mail[other].push_back(*announced);
            }
            const auto answer = answers[0].at(announcer.calls());
            ASSERT_TRUE(answer) << "rank 0 has to wait";
            heard[0][announcer.calls()] = answer->yes;
            calls[0] = announcer.calls();
            continue;
        }
        auto answer = answers[rank].at(calls[rank] + 1);
        while (!answer && !mail[rank].empty()) {  // it waits for what is on its way
            ASSERT_TRUE(answers[rank].hear(mail[rank].front()).ok());
            mail[rank].pop_front();
            answer = answers[rank].at(calls[rank] + 1);
        }
        if (answer) {
            heard[rank][++calls[rank]] = answer->yes;
        } else {
            EXPECT_GT(calls[rank] + 1, calls[0] + 1) << "waits though rank 0 has made the call before";
        }
    }
    std::map<uint64_t, bool> all;
    for (size_t rank = 0; rank < ranks; ++rank)
        for (const auto& [call, yes] : heard[rank]) {
            const auto [known, is_new] = all.emplace(call, yes);
            EXPECT_EQ(known->second, yes) << "rank " << rank << " at call " << call;
        }
    if (question == Question::save) {
        uint64_t yes = 0;
        for (const auto& [call, is_yes] : heard[0]) yes += is_yes;
        EXPECT_GE(yes + 1, granted)
            << "each wish that counts is granted once; rank 0 may not have come to it";
        EXPECT_LE(yes, granted);
    }
}

TEST(ScheduleTest, AllRanksGetTheSameAnswerAtTheSameCall) {
    if (const char* replay = std::getenv("TAILRACE_SEED")) {
        for (const auto question : {Question::save, Question::stop})
            play(std::strtoull(replay, nullptr, 10), question);
        return;
    }
    const uint64_t first = std::random_device{}();
    std::cout << "seeds " << first << " to " << first + 1999 << " (TAILRACE_SEED=n replays one)\n";
    for (uint64_t seed = first; seed < first + 2000 && !HasFailure(); ++seed)
        for (const auto question : {Question::save, Question::stop}) play(seed, question);
}

}  // namespace
}  // namespace tailrace::internal
