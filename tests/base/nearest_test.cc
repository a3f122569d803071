#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace tailrace::internal {
namespace {

TEST(NearestTest, DistanceCountsSingleSlips) {
    EXPECT_EQ(edit_distance("files", "files"), 0u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("abc", ""), 3u);
    EXPECT_EQ(edit_distance("file", "files"), 1u);
    EXPECT_EQ(edit_distance("fiels", "files"), 1u) << "two swapped neighbours are one slip";
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestTest, CaseAndDashesAreNoSlips) {
    EXPECT_EQ(edit_distance("Shared-Dir", "shared_dir"), 0u);
}

TEST(NearestTest, TakesTheNearestName) {
    constexpr std::array<std::string_view, 3> names = {"files", "writers", "buffers"};
    EXPECT_EQ(nearest_name("buffer", names), "buffers");
    EXPECT_EQ(nearest_name("wirters", names), "writers");
    EXPECT_EQ(nearest_name(std::string(100000, 'x'), names), "files") << "the first of equals";
}

TEST(NearestTest, OnlySlipsAreNear) {
    EXPECT_TRUE(is_near("file", "files"));
    EXPECT_TRUE(is_near("list", "ls")) << "half of the characters are wrong";
    EXPECT_FALSE(is_near("diff", "ls"));
    EXPECT_FALSE(is_near("banana", "name"));
    EXPECT_FALSE(is_near(std::string(100000, 'x'), "files"));
}

}  // namespace
}  // namespace tailrace::internal
