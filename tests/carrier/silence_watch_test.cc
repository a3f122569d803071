#include "background/silence_watch.h"

#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using Turn = SilenceWatch::Turn;

class SilenceWatchTest : public testing::Test {
  protected:
    // Looks every tenth of a second for that long, and says when it was which turn.
    std::vector<std::pair<std::chrono::milliseconds, Turn>> wait(std::chrono::milliseconds longest) {
        std::vector<std::pair<std::chrono::milliseconds, Turn>> turns;
        for (auto waited = 0ms; waited < longest; waited += 100ms, now_ += 100ms)
            if (const auto turn = watch_.look(now_); turn != Turn::nothing) turns.emplace_back(waited, turn);
        return turns;
    }
    SilenceWatch::Time now_ = SilenceWatch::Time() + 24h;
    SilenceWatch watch_{{10s, 60s}};
};

TEST_F(SilenceWatchTest, AnAgentThatOwesASignOfLifeIsSaidAndThenGivenUp) {
    const auto turns = wait(100s);
    ASSERT_EQ(turns.size(), 3u);
    EXPECT_EQ(turns[0].second, Turn::ask);
    EXPECT_EQ(turns[1].second, Turn::say);
    EXPECT_EQ(turns[1].first - turns[0].first, 10s);
    EXPECT_EQ(turns[2].second, Turn::give_up);
    EXPECT_EQ(turns[2].first - turns[0].first, 60s);
    EXPECT_TRUE(watch_.silent());
    watch_.heard();
    EXPECT_FALSE(watch_.silent()) << "it has gone on";
}

TEST_F(SilenceWatchTest, AnAgentThatAnswersIsAskedAgain) {
    int asked = 0;
    for (int i = 0; i < 100; ++i) {
        for (const auto& [when, turn] : wait(5s)) {
            EXPECT_EQ(turn, Turn::ask);
            ++asked;
        }
        watch_.heard();
    }
    EXPECT_EQ(asked, 100);
}

// A batch system may stop the program and its agents for hours.
TEST_F(SilenceWatchTest, TimeInWhichNobodyLooksDoesNotCount) {
    EXPECT_EQ(wait(5s).size(), 1u);
    now_ += 10h;
    EXPECT_TRUE(wait(2s).empty());
    EXPECT_FALSE(watch_.silent());
}

}  // namespace
}  // namespace tailrace::internal
