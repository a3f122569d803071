// Every byte arrives, none beside it is touched, and the checksum is that of the bytes: at every alignment
// and size around the borders of lines and steps.
#include "memory/stream_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/crc32c.h"

namespace tailrace::internal {
namespace {

constexpr std::byte guard{0xEE};

void expect_copied(size_t bytes, size_t source_shift, size_t target_shift) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes from +" << source_shift << " to +" << target_shift);
    std::vector<std::byte> source(bytes + 128), target(bytes + 256, guard), other(bytes + 256, guard);
    std::minstd_rand random(static_cast<unsigned>(bytes * 64 + source_shift));
    for (auto& byte : source) byte = static_cast<std::byte>(random() >> 16);
    const std::span<const std::byte> from(source.data() + source_shift, bytes);

    stream_copy(from, target.data() + 64 + target_shift);
    EXPECT_EQ(stream_copy_crc32c(from, other.data() + 64 + target_shift), crc32c(from));
    std::vector<std::byte> expected(bytes + 256, guard);
    if (bytes > 0) std::memcpy(expected.data() + 64 + target_shift, from.data(), bytes);
    EXPECT_TRUE(target == expected);
    EXPECT_TRUE(other == expected);
}

TEST(StreamCopyTest, EverySizeAroundTheBordersOfLinesAndSteps) {
    for (const size_t border : {0u, 64u, 65536u, 262144u, 524288u})
        for (const size_t beside : {0u, 1u, 63u, 64u, 65u})
            for (const int sign : {-1, 1})
                if (sign > 0 || border >= beside)
                    expect_copied(sign > 0 ? border + beside : border - beside, 0, 0);
}

TEST(StreamCopyTest, EveryAlignment) {
    for (const size_t source : {0u, 1u, 8u, 15u, 33u, 63u})
        for (const size_t target : {0u, 1u, 16u, 31u, 48u, 63u}) {
            expect_copied(70'000, source, target);
            expect_copied(600'000, source, target);
        }
}

}  // namespace
}  // namespace tailrace::internal
