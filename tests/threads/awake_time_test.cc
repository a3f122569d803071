#include "threads/awake_time.h"

#include <gtest/gtest.h>

namespace tailrace::internal::test {
namespace {

using namespace std::chrono_literals;

TEST(AwakeTimeTest, TimeBetweenLooksAddsUp) {
    auto now = AwakeTime::Time() + 24h;
    AwakeTime time(now);
    for (int i = 0; i < 100; ++i) (void)time.look(now += 100ms);
    EXPECT_EQ(time.look(now), 10s);
    time.restart();
    EXPECT_EQ(time.look(now += 100ms), 100ms);
}

TEST(AwakeTimeTest, ALongTimeWithoutALookCountsAsOneStep) {
    auto now = AwakeTime::Time() + 24h;
    AwakeTime time(now, 500ms);
    EXPECT_EQ(time.look(now += 10h), 500ms);
    EXPECT_EQ(time.look(now += 200ms), 700ms);
}

}  // namespace
}  // namespace tailrace::internal::test
