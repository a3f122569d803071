#include "format/part_file.h"

#include "format/hostile.h"

namespace tailrace::internal {
namespace {

Bytes sample() {
    Random random(1);
    auto header = random_part_header(random);
    header.shared_dir = "/scratch";
    return encode(header);
}

TEST(PartHeaderTest, EveryHeaderComesBack) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 500; ++i) {
        auto header = random_part_header(random);
        auto bytes = encode(header);
        ASSERT_EQ(bytes.size(), part_header_bytes);
        auto decoded = decode_part_header(bytes);
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, header);
    }
}

TEST(PartHeaderTest, TruncatedHeaderIsCorrupt) {
    expect_truncations_corrupt(sample(), decode_part_header);
}

TEST(PartHeaderTest, EveryFlippedBitIsNoticed) {
    expect_flips_corrupt(sample(), part_header_bytes, decode_part_header);
}

TEST(PartHeaderTest, OtherVersionsAreReadOrRefusedByTheRules) {
    expect_version_rules(sample(), part_header_bytes, decode_part_header);
}

// Version 1.1 allowed paths behind which the number of bytes that lie apart has no room.
TEST(PartHeaderTest, AHeaderWithALongerPathOfAnEarlierVersionIsRead) {
    auto header = sample();
    const uint32_t longest = 3888;
    std::fill(header.begin() + 208, header.end(), std::byte{'/'});
    const auto decoded = decode_part_header(with(header, part_header_bytes, 200, longest));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(decoded->shared_dir, std::string(longest, '/'));
    EXPECT_EQ(decoded->apart_bytes, 0u);
}

TEST(PartHeaderTest, WrongFieldsAreCorrupt) {
    auto decode_with = [&](uint64_t offset, auto value) {
        return decode_part_header(with(sample(), part_header_bytes, offset, value));
    };
    expect_code(decode_with(44, uint32_t{0}), Code::corrupt, "its number of ranks is 0");
    expect_code(decode_with(44, max_ranks + 1), Code::corrupt, "ranks");
    expect_code(decode_with(64, max_ranks), Code::corrupt, "does not exist");
    expect_code(decode_with(72, uint64_t{100}), Code::corrupt, "manifest");  // shorter than manifest
    expect_code(decode_with(72, UINT64_MAX), Code::corrupt, "manifest");     // beyond every sum
    expect_code(decode_with(80, UINT64_MAX & ~uint64_t{4095}), Code::corrupt, "manifest");
    expect_code(decode_with(80, uint64_t{4095}), Code::corrupt, "manifest");  // not aligned
    expect_code(decode_with(92, uint32_t{0}), Code::corrupt, "job name");
    expect_code(decode_with(92, UINT32_MAX), Code::corrupt, "job name");
    expect_code(decode_with(200, uint32_t{3889}), Code::corrupt, "shared directory");
    expect_code(decode_with(208 + std::string_view("/scratch").size(), UINT64_MAX), Code::corrupt, "apart");
    expect_code(decode_with(208, uint8_t{0}), Code::corrupt, "absolute path");
    expect_code(decode_with(208, uint8_t{'d'}), Code::corrupt, "absolute path");
    expect_code(decode_with(96, uint8_t{'.'}), Code::corrupt, "job name");
}

}  // namespace
}  // namespace tailrace::internal
