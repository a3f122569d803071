// When FTI_Snapshot takes a checkpoint.
#include "schedule.h"

#include <gtest/gtest.h>

namespace fti_on_tailrace {
namespace {

TEST(ScheduleTest, WithoutIntervalsNothingIsDue) {
    Schedule schedule({}, 1, 512);
    for (int i = 1; i < 100; ++i) {
        const auto decision = schedule.decide(3600.0 * i, 10);
        EXPECT_EQ(decision.level, 0);
        EXPECT_EQ(decision.iterations, 512);
    }
}

TEST(ScheduleTest, TheHighestLevelThatIsDueIsTaken) {
    Schedule schedule({0, 2, 3, 0, 12}, 1, 512);
    std::string taken;
    for (int minute = 0; minute <= 12; ++minute)
        taken += std::to_string(schedule.decide(minute * 60.0, 1).level);
    EXPECT_EQ(taken, "0012102012104");
}

TEST(ScheduleTest, MissedTimesAreNotMadeUp) {
    Schedule schedule({0, 1, 0, 0, 0}, 1, 512);
    EXPECT_EQ(schedule.decide(600, 1).level, 1);
    EXPECT_EQ(schedule.decide(601, 1).level, 0);
    EXPECT_EQ(schedule.decide(660, 1).level, 1);
}

TEST(ScheduleTest, FastForwardMakesMinutesShorter) {
    Schedule schedule({0, 1, 0, 0, 0}, 10, 512);
    EXPECT_EQ(schedule.decide(5.9, 1).level, 0);
    EXPECT_EQ(schedule.decide(6, 1).level, 1);
}

TEST(ScheduleTest, LooksAtTheClockHalfwayToTheNextTime) {
    Schedule schedule({0, 1, 0, 0, 0}, 1, 512);
    EXPECT_EQ(schedule.decide(0, 1).iterations, 1);
    EXPECT_EQ(schedule.decide(1, 10).iterations, 295);  // 59 s are left, at 0.1 s each
    EXPECT_EQ(schedule.decide(59, 295).iterations, 2);  // 1 s, at 0.197 s
    EXPECT_EQ(schedule.decide(59.9, 1).iterations, 1);
    EXPECT_EQ(schedule.decide(60, 100000).iterations, 512);
}

}  // namespace
}  // namespace fti_on_tailrace
