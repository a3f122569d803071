#include "when/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tailrace::internal {
namespace {

using ::testing::HasSubstr;

TEST(RulesTest, TheBestIntervalLosesLeast) {
    // What a run loses per second of work, by Daly's model: saves, and work and time lost to failures.
    const auto lost = [](double interval, double blocked, double mtbf) {
        return mtbf * (std::exp((interval + blocked) / mtbf) - 1) / interval;
    };
    for (const double blocked : {0.01, 0.5, 5.0, 60.0})
        for (const double mtbf : {600.0, 3600.0, 86400.0}) {
            const double best = best_interval_seconds(blocked, mtbf), least = lost(best, blocked, mtbf);
            for (const double other : {0.7, 0.9, 1.1, 1.4})
                EXPECT_GT(lost(best * other, blocked, mtbf), least) << blocked << " " << mtbf << " " << other;
        }
    EXPECT_DOUBLE_EQ(best_interval_seconds(300, 100), 100) << "saves that cost more than is lost";
    EXPECT_EQ(best_interval_seconds(0, 100), 0);
}

TEST(RulesTest, SavesComeWhenTheIntervalHasPassed) {
    const WhenRules rules{.save_interval_seconds = 600};
    EXPECT_FALSE(why_save(rules, {.since_save_seconds = 599}, true));
    EXPECT_THAT(why_save(rules, {.since_save_seconds = 601}, true).value(), HasSubstr("save_interval"));
}

TEST(RulesTest, SavesComeAsTheirCostSays) {
    const WhenRules rules{.mtbf_seconds = 86400};
    Situation now{.costs = {.saves = 3, .blocked_seconds = 0.5}};
    const double best = best_interval_seconds(0.5, 86400);
    now.since_save_seconds = best * 0.99;
    EXPECT_FALSE(why_save(rules, now, true));
    now.since_save_seconds = best * 1.01;
    EXPECT_THAT(why_save(rules, now, true).value(), HasSubstr("mtbf"));
    now.costs.most_flush_seconds = best * 2;
    EXPECT_FALSE(why_save(rules, now, true)) << "the last one is hardly flushed";
}

TEST(RulesTest, TheFirstSaveComesSoonBecauseItsCostIsNotKnown) {
    const WhenRules rules{.mtbf_seconds = 86400};
    EXPECT_FALSE(why_save(rules, {.since_save_seconds = 59}, true));
    EXPECT_TRUE(why_save(rules, {.since_save_seconds = 61}, true));
    EXPECT_TRUE(why_save({.mtbf_seconds = 100}, {.since_save_seconds = 11}, true));
}

TEST(RulesTest, TheLastSaveComesOnceBeforeTheEnd) {
    Situation now{.since_save_seconds = 1000, .left_seconds = 70};
    EXPECT_FALSE(why_save({}, now, false));
    now.left_seconds = 59;
    EXPECT_TRUE(why_save({}, now, false));
    EXPECT_FALSE(why_save({}, now, true)) << "should_stop says it";
    now.left_seconds = 50;
    now.since_save_seconds = 5;
    EXPECT_FALSE(why_save({}, now, false)) << "it has been made";
    EXPECT_TRUE(may_wish_to_save({}, true, false));
    EXPECT_FALSE(may_wish_to_save({}, true, true));
    EXPECT_FALSE(may_wish_to_save({}, false, false));
}

TEST(RulesTest, TheEndLeavesTimeForALastSaveAndItsFlush) {
    EXPECT_EQ(seconds_for_last_save({}, {}), 60);
    EXPECT_EQ(seconds_for_last_save({}, {.costs = {.most_blocked_seconds = 10, .most_flush_seconds = 100},
                                         .between_calls_seconds = 20}),
              280);
    EXPECT_EQ(seconds_for_last_save({.stop_before_seconds = 5}, {.between_calls_seconds = 20}), 5);
    EXPECT_FALSE(why_stop({}, {.left_seconds = 61}, {}, {}, 0, 0));
    EXPECT_THAT(why_stop({}, {.left_seconds = 59}, {}, {}, 0, 0).value(), HasSubstr("ends in 59 s"));
    EXPECT_THAT(why_stop({}, {.left_seconds = -5}, {}, {}, 0, 0).value(), HasSubstr("over"));
}

TEST(RulesTest, AHaltOrderSaysWhenAndByWhom) {
    const auto why = [](const Halt& halt, uint64_t saves, int64_t now) {
        return why_stop({}, {}, {}, halt, saves, now).value_or("");
    };
    EXPECT_EQ(why({.now = true, .by = "anna@login"}, 0, 0), "halted by anna@login");
    const Halt at{.at_unix = 1000};
    EXPECT_EQ(why(at, 0, 999), "");
    EXPECT_EQ(why(at, 0, 1000), "halted at 1970-01-01T00:16:40Z");
    const Halt after{.after_saves = 2};
    EXPECT_EQ(why(after, 1, 0), "");
    EXPECT_EQ(why(after, 2, 0), "halted after 2 saves");
    const Halt before{.before_unix = 1000};
    EXPECT_EQ(why(before, 0, 939), "");
    EXPECT_EQ(why(before, 0, 940), "halted before 1970-01-01T00:16:40Z");
    const Halt several{.after_saves = 2, .before_unix = 1000, .stop_before_seconds = 5};
    EXPECT_EQ(why(several, 0, 994), "");
    EXPECT_EQ(why(several, 0, 995), "halted before 1970-01-01T00:16:40Z");
    EXPECT_EQ(why(several, 2, 0), "halted after 2 saves");
    EXPECT_EQ(why_stop({}, {}, "signal TERM at rank 3", at, 0, 0).value(), "signal TERM at rank 3");
    EXPECT_FALSE(why_stop({}, {}, {}, {}, 0, 0));
}

TEST(RulesTest, AHaltOrderSaysHowLongBeforeTheEndToStop) {
    const Halt early{.stop_before_seconds = 600};
    const WhenRules rules{.stop_before_seconds = 5};
    EXPECT_FALSE(why_stop(rules, {.left_seconds = 500}, {}, {}, 0, 0));
    EXPECT_THAT(why_stop(rules, {.left_seconds = 500}, {}, early, 0, 0).value(),
                HasSubstr("the job ends in"));
    EXPECT_FALSE(due_condition(rules, {.left_seconds = 500}, early, 0, 0)) << "it stays for the next run";
}

TEST(RulesTest, AnOrderThatIsAddedToCountsItsSavesOn) {
    const Halt order{.after_saves = 2, .id = 7};
    Halt more = order;
    more.before_unix = 1000;
    EXPECT_TRUE(counts_anew({}, order));
    EXPECT_FALSE(counts_anew(order, more));
    EXPECT_TRUE(counts_anew(order, Halt{.after_saves = 3, .id = 7}));
    EXPECT_TRUE(counts_anew(order, Halt{.after_saves = 2, .id = 8}));
}

}  // namespace
}  // namespace tailrace::internal
