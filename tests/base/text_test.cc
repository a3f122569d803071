#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace tailrace::internal {

TEST(TextTest, IsCutBetweenLetters) {
    const std::string text = "a\u00f6\u20ac\U0001f600z";  // of 1, 2, 3, 4 and 1 bytes
    const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t most = 0; most < std::size(ends); ++most)
        EXPECT_EQ(cut_text(text, most), text.substr(0, ends[most])) << most;
}

TEST(TextTest, WhatIsNoUtf8IsCutAnywhere) {
    const std::string bytes(10, '\x80');
    EXPECT_EQ(cut_text(bytes, 7).size(), 7u);
    EXPECT_EQ(cut_text(bytes, 20), bytes);
}

}  // namespace tailrace::internal
