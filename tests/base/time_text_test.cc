#include "base/time_text.h"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace tailrace::internal {
namespace {

TEST(TimeTextTest, LengthsOfTimeHaveUnits) {
    EXPECT_EQ(parse_duration_ms("0").value(), 0u);
    EXPECT_EQ(parse_duration_ms("500ms").value(), 500u);
    EXPECT_EQ(parse_duration_ms("90s").value(), 90'000u);
    EXPECT_EQ(parse_duration_ms("10min").value(), 600'000u);
    EXPECT_EQ(parse_duration_ms("10m").value(), 600'000u);
    EXPECT_EQ(parse_duration_ms("2h").value(), 7'200'000u);
    EXPECT_EQ(parse_duration_ms("1d").value(), 86'400'000u);
    for (const char* bad : {"", "10", "min", "-1s", "1.5h", "10 min", "10minutes", "99999999999999999999s",
                            "9999999999999999h"})
        EXPECT_EQ(parse_duration_ms(bad).status().code(), Code::invalid_argument) << bad;
}

TEST(TimeTextTest, LengthsComeBackInTheirLargestUnit) {
    for (const char* text : {"0", "1ms", "1500ms", "90s", "10min", "36h", "2d"})
        EXPECT_EQ(duration_text(parse_duration_ms(text).value()), text);
    EXPECT_EQ(duration_text(60 * 60'000), "1h");
}

TEST(TimeTextTest, MomentsAreUnixSecondsDatesOrTimes) {
    ::setenv("TZ", "UTC-1", 1);  // an hour east of Greenwich
    ::tzset();
    const int64_t now = parse_moment("2026-11-24T17:30:00Z", 0).value();
    EXPECT_EQ(moment_text(now), "2026-11-24T17:30:00Z");
    EXPECT_EQ(parse_moment(std::to_string(now), 0).value(), now);
    EXPECT_EQ(parse_moment("2026-11-24T18:30", 0).value(), now);
    EXPECT_EQ(parse_moment("2026-11-24 18:30:00", 0).value(), now);
    EXPECT_EQ(parse_moment("18:31", now).value(), now + 60);
    EXPECT_EQ(parse_moment("18:30", now).value(), now + 86400) << "the next one";
    EXPECT_EQ(parse_moment("00:30:05", now).value(), now + 6 * 3600 + 5);
    for (const char* bad : {"", "soon", "24:00", "18:60", "2026-02-30T10:00", "2026-13-01T10:00",
                            "2026-11-24", "2026-11-24T18:30X", "18", "1234", "-5000000000", "18:30 "})
        EXPECT_EQ(parse_moment(bad, now).status().code(), Code::invalid_argument) << bad;
}

}  // namespace
}  // namespace tailrace::internal
