#include "base/units.h"

#include <gtest/gtest.h>

namespace tailrace::internal::test {
namespace {

TEST(UnitsTest, SizesAreReadInEveryUnit) {
    const std::pair<const char*, uint64_t> cases[] = {{"0", 0},
                                                      {"4096", 4096},
                                                      {"17B", 17},
                                                      {"64KiB", 64 * KiB},
                                                      {"64k", 64 * KiB},
                                                      {"64 KB", 64'000},
                                                      {"256MiB", 256 * MiB},
                                                      {"2GiB", 2 * GiB},
                                                      {"2gb", 2'000'000'000},
                                                      {"1TiB", GiB << 10},
                                                      {"1T", GiB << 10},
                                                      {"3TB", 3'000'000'000'000},
                                                      {"18446744073709551615", UINT64_MAX}};
    for (const auto& [text, bytes] : cases) {
        auto parsed = parse_bytes(text);
        ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.status().to_string();
        EXPECT_EQ(*parsed, bytes) << text;
    }
}

TEST(UnitsTest, WhatIsNoSizeIsRefusedAndQuoted) {
    for (const char* text : {"", " ", "MiB", "-1", "+1", "1.5GiB", "64 Mi B", "64XB", "18446744073709551616",
                             "18014398509481984K", "99999999TiB", "0x10", "1 2"}) {
        auto parsed = parse_bytes(text);
        EXPECT_EQ(parsed.status().code(), Code::invalid_argument) << text;
        EXPECT_NE(parsed.status().message().find(text), std::string::npos) << parsed.status().message();
    }
}

TEST(UnitsTest, SizesAreShownShort) {
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(17), "17 B");
    EXPECT_EQ(format_bytes(1023), "1023 B");
    EXPECT_EQ(format_bytes(64 * MiB), "64 MiB");
    EXPECT_EQ(format_bytes(3 * GiB / 2), "1.5 GiB");
    EXPECT_EQ(format_bytes(UINT64_MAX), "16 EiB");
}

TEST(UnitsTest, AlignUpIsTheNextMultiple) {
    EXPECT_EQ(align_up(0, 4096), 0u);
    EXPECT_EQ(align_up(1, 4096), 4096u);
    EXPECT_EQ(align_up(4096, 4096), 4096u);
    EXPECT_EQ(align_up(10, 7), 14u);
}

}  // namespace
}  // namespace tailrace::internal::test
