#include "format/manifest.h"

#include "format/hostile.h"

namespace tailrace::internal {
namespace {

Region plain_region(std::string name, uint64_t bytes) {
    Region region;
    region.name = std::move(name);
    region.bytes = bytes;
    return region;
}

Region array_region(std::string name, ArrayPiece piece) {
    auto region = plain_region(std::move(name), array_bytes(piece));
    region.array = std::move(piece);
    return region;
}

PartManifest laid_out(std::vector<Region> regions) {
    PartManifest manifest;
    manifest.rank = 2;
    manifest.rank_count = 4;
    manifest.regions = std::move(regions);
    auto status = lay_out(manifest);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return manifest;
}

// Region "a" of 100 bytes at record offset 64, and array "b" behind it at 64 + 32 + 8 + 8 = 112.
PartManifest sample_manifest() {
    return laid_out(
        {plain_region("a", 100), array_region("b", {ElementType::int32, {4, 6}, {1, 2}, {3, 4}})});
}
constexpr uint64_t a_at = 64, b_at = 112;
Bytes sample() {
    return encode(sample_manifest());
}
auto decode_with(uint64_t offset, auto value) {
    return decode_manifest(with(sample(), sample().size(), offset, value));
}

TEST(ManifestTest, EveryManifestComesBack) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 300; ++i) {
        auto manifest = random_manifest(random);
        auto bytes = encode(manifest);
        ASSERT_EQ(bytes.size(), manifest.manifest_bytes);
        auto decoded = decode_manifest(bytes);
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, manifest);
    }
}

TEST(ManifestTest, LayOutAlignsRegionsBehindTheManifest) {
    auto manifest = laid_out({plain_region("small", 100), plain_region("none", 0),
                              plain_region("large", large_region_bytes), plain_region("last", 1)});
    EXPECT_EQ(manifest.manifest_bytes, stream_alignment);
    EXPECT_EQ(manifest.regions[0].stream_offset, 4096u);
    EXPECT_EQ(manifest.regions[1].stream_offset, 4096u + 128);
    EXPECT_EQ(manifest.regions[2].stream_offset, 8192u);
    EXPECT_EQ(manifest.regions[3].stream_offset, 8192u + large_region_bytes);
    EXPECT_EQ(manifest.stream_bytes, 8192u + large_region_bytes + 1);
    EXPECT_EQ(manifest.regions[0].block_crcs.size(), 1u);
    EXPECT_EQ(manifest.regions[1].block_crcs.size(), 0u);
    EXPECT_EQ(manifest.regions[2].block_crcs.size(), 4u);
}

TEST(ManifestTest, WithoutChecksumsNoneAreKept) {
    PartManifest manifest;
    manifest.has_checksums = false;
    manifest.regions = {plain_region("a", 1 << 20)};
    manifest.regions[0].block_crcs = {1, 2, 3};
    ASSERT_TRUE(lay_out(manifest).ok());
    EXPECT_TRUE(manifest.regions[0].block_crcs.empty());
    auto decoded = decode_manifest(encode(manifest));
    ASSERT_TRUE(decoded.ok());
    EXPECT_FALSE(decoded->has_checksums);
}

TEST(ManifestTest, RankWithoutRegionsHasAManifestOnly) {
    auto manifest = laid_out({});
    EXPECT_EQ(manifest.stream_bytes, manifest.manifest_bytes);
    EXPECT_TRUE(decode_manifest(encode(manifest)).ok());
}

TEST(ManifestTest, RegionsThatCannotBeAreInvalidArguments) {
    auto refused = [](std::vector<Region> regions, const std::string& why) {
        PartManifest manifest;
        manifest.regions = std::move(regions);
        auto status = lay_out(manifest);
        EXPECT_EQ(status.code(), Code::invalid_argument) << why;
        EXPECT_THAT(status.message(), testing::HasSubstr(why));
    };
    refused({plain_region("", 1)}, "has 0 bytes");
    refused({plain_region(std::string(4097, 'n'), 1)}, "has 4097 bytes");
    refused({plain_region(std::string("a\0b", 3), 1)}, "zero byte");
    refused({plain_region("a", 1), plain_region("b", 1), plain_region("a", 1)},
            "two regions are named \"a\"");
    refused({plain_region("a", UINT64_MAX)}, "more than the");
    refused({plain_region("a", max_stream_bytes), plain_region("b", 1)}, "up to region \"b\"");
    auto wrong = array_region("b", {ElementType::int32, {4}, {0}, {4}});
    wrong.bytes = 15;
    refused({wrong}, "its array piece has 16");

    PartManifest manifest;
    manifest.rank = 3;
    manifest.rank_count = 3;
    EXPECT_EQ(lay_out(manifest).code(), Code::invalid_argument);
    manifest.rank = 0;
    manifest.rank_count = 0;
    EXPECT_EQ(lay_out(manifest).code(), Code::invalid_argument);
    manifest.rank_count = (1 << 26) + 1;
    EXPECT_EQ(lay_out(manifest).code(), Code::invalid_argument);
}

TEST(ManifestTest, ArrayPiecesThatCannotBeAreInvalidArguments) {
    auto check = [](ArrayPiece piece) { return check_array_piece(piece).code(); };
    EXPECT_EQ(check({ElementType::int8, {5}, {2}, {3}}), Code::ok);
    EXPECT_EQ(check({ElementType::int8, {0, 5}, {0, 5}, {0, 0}}), Code::ok);
    uint64_t large = uint64_t{1} << 40;
    EXPECT_EQ(check({ElementType::int8, {large, large, 0}, {0, 0, 0}, {large, large, 0}}), Code::ok);
    EXPECT_EQ(array_bytes({ElementType::int8, {large, large, 0}, {0, 0, 0}, {large, large, 0}}), 0u);
    EXPECT_EQ(check({ElementType::int8, {}, {}, {}}), Code::invalid_argument);
    std::vector<uint64_t> many(17, 1), none(17, 0);
    EXPECT_EQ(check({ElementType::int8, many, none, many}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5, 5}, {0}, {5, 5}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5, 5}, {0, 0}, {5}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {3}, {3}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {6}, {0}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {UINT64_MAX}, {5}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {4}, {UINT64_MAX}}), Code::invalid_argument);
    EXPECT_EQ(check({static_cast<ElementType>(16), {5}, {0}, {5}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int64, {uint64_t{1} << 61}, {0}, {1}}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {uint64_t{1} << 32, uint64_t{1} << 32}, {0, 0}, {1, 1}}),
              Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {0}, {5}, false, false, true}), Code::ok);
    EXPECT_EQ(check({ElementType::int8, {5}, {0}, {4}, false, false, true}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {5}, {0}, false, false, true}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {0}, {5}, true, false, true}), Code::invalid_argument);
    EXPECT_EQ(check({ElementType::int8, {5}, {0}, {5}, false, true, true}), Code::invalid_argument);
}

TEST(ManifestTest, ElementTypesHaveTheirSizesAndNames) {
    EXPECT_EQ(element_bytes(ElementType::bytes), 1u);
    EXPECT_EQ(element_bytes(ElementType::bfloat16), 2u);
    EXPECT_EQ(element_bytes(ElementType::complex128), 16u);
    EXPECT_EQ(element_type_name(ElementType::float32), "float32");
    for (uint8_t type = 0; type < element_type_count; ++type)
        EXPECT_GT(element_bytes(static_cast<ElementType>(type)), 0u);
}

TEST(ManifestTest, FindRegionFindsByName) {
    auto manifest = sample_manifest();
    ASSERT_NE(find_region(manifest, "b"), nullptr);
    EXPECT_EQ(find_region(manifest, "b")->bytes, 48u);
    EXPECT_EQ(find_region(manifest, "c"), nullptr);
}

TEST(ManifestTest, TruncatedManifestIsCorrupt) {
    expect_truncations_corrupt(sample(), decode_manifest);
}

TEST(ManifestTest, EveryFlippedBitIsNoticed) {
    expect_flips_corrupt(sample(), sample().size(), decode_manifest);
}

TEST(ManifestTest, OtherVersionsAreReadOrRefusedByTheRules) {
    expect_version_rules(sample(), sample().size(), decode_manifest);
}

TEST(ManifestTest, HostileHeadsAreCorrupt) {
    ASSERT_TRUE(decode_with(32, uint32_t{2}).ok());
    expect_code(decode_with(32, uint32_t{4}), Code::corrupt, "rank 4 of 4");
    expect_code(decode_with(36, uint32_t{0}), Code::corrupt, "does not exist");
    expect_code(decode_with(36, UINT32_MAX), Code::corrupt, "does not exist");
    expect_code(decode_with(40, uint64_t{4095}), Code::corrupt, "in a stream of 4095");
    expect_code(decode_with(40, UINT64_MAX), Code::corrupt, "in a stream of");
    expect_code(decode_with(48, uint32_t{0}), Code::corrupt, "checksums, but needs 0");
    expect_code(decode_with(52, uint32_t{0}), Code::corrupt, "a checksum every 0 bytes");
    // Region 1's name takes the room that region 2's record needs.
    auto long_name = sample();
    store(long_name, a_at, uint32_t{3984});
    expect_code(decode_manifest(with(long_name, long_name.size(), 56, uint64_t{2})), Code::corrupt,
                "ends inside region 2 of 2");
    for (uint64_t count : {uint64_t{3}, uint64_t{120}, uint64_t{127}, uint64_t{1} << 40, UINT64_MAX})
        expect_code(decode_with(56, count), Code::corrupt, "");
}

TEST(ManifestTest, SizeThatIsNotAlignedIsCorrupt) {
    auto manifest = laid_out({});
    manifest.manifest_bytes += 8;
    manifest.stream_bytes += 8;
    expect_code(decode_manifest(encode(manifest)), Code::corrupt, "it has 4104 bytes");
}

TEST(ManifestTest, HostileRegionsAreCorrupt) {
    expect_code(decode_with(a_at, uint32_t{0}), Code::corrupt, "a region's name has 0 bytes");
    expect_code(decode_with(a_at, uint32_t{4097}), Code::corrupt, "name has 4097 bytes");
    expect_code(decode_with(a_at, UINT32_MAX), Code::corrupt, "name has 4294967295 bytes");
    expect_code(decode_with(a_at, uint32_t{4090}), Code::corrupt, "ends inside region 1 of 2");
    expect_code(decode_with(a_at + 4, uint8_t{2}), Code::corrupt, "of kind 2");
    expect_code(decode_with(a_at + 5, uint8_t{2}), Code::corrupt, "type 2");
    expect_code(decode_with(a_at + 6, uint8_t{1}), Code::corrupt, "with 1 dimensions");
    expect_code(decode_with(a_at + 8, uint64_t{4032}), Code::corrupt, "ends at 4096");
    expect_code(decode_with(a_at + 8, uint64_t{4096 + 32}), Code::corrupt, "not a multiple of 64");
    expect_code(decode_with(a_at + 8, uint64_t{4096 + 64}), Code::corrupt, "\"b\" starts at byte");
    expect_code(decode_with(a_at + 8, ~uint64_t{63}), Code::corrupt, "but the stream has");
    expect_code(decode_with(a_at + 16, uint64_t{129}), Code::corrupt, "\"b\" starts at byte");
    expect_code(decode_with(a_at + 16, UINT64_MAX), Code::corrupt, "checksums, but needs");
    expect_code(decode_with(a_at + 24, uint64_t{0}), Code::corrupt, "0 checksums, but needs 1");
    expect_code(decode_with(a_at + 24, UINT64_MAX), Code::corrupt, "checksums, but needs 1");
    expect_code(decode_with(a_at + 32, uint8_t{0}), Code::corrupt, "zero byte");
    expect_code(decode_with(a_at + 32, uint8_t{'b'}), Code::corrupt, "two regions are named");
    expect_code(decode_with(b_at + 5, uint8_t{16}), Code::corrupt, "no element type 16");
    expect_code(decode_with(b_at + 5, uint8_t{1}), Code::corrupt, "its array piece has 12");
    expect_code(decode_with(b_at + 6, uint8_t{0}), Code::corrupt, "0 dimensions");
    expect_code(decode_with(b_at + 6, uint8_t{17}), Code::corrupt, "17 dimensions");
    expect_code(decode_with(b_at + 16, uint64_t{49}), Code::corrupt, "has 49 bytes");
    expect_code(decode_with(b_at + 40, UINT64_MAX), Code::corrupt, "does not fit 64 bits");  // global shape
    expect_code(decode_with(b_at + 56, uint64_t{2}), Code::corrupt, "dimension 0");          // offset
}

// Checksums that the bytes cannot hold are refused before memory is taken for them.
TEST(ManifestTest, CountOfChecksumsBeyondTheManifestIsCorrupt) {
    auto bytes = sample();
    store(bytes, 40, uint64_t{1} << 61);         // the stream
    store(bytes, a_at + 16, uint64_t{1} << 60);  // the region
    store(bytes, a_at + 24, uint64_t{1} << 42);  // its checksums, as many as belong
    reseal(bytes, 0, bytes.size());
    expect_code(decode_manifest(bytes), Code::corrupt, "ends inside region 1 of 2");
}

TEST(ManifestTest, RegionLeavingTheStreamIsCorrupt) {
    auto manifest = sample_manifest();
    expect_code(decode_with(40, manifest.stream_bytes - 1), Code::corrupt, "but the stream has");
}

TEST(ManifestTest, LargeRegionsNeedThePageAlignment) {
    auto manifest = laid_out({plain_region("large", large_region_bytes)});
    manifest.regions[0].stream_offset += 64;
    manifest.stream_bytes += 64;
    expect_code(decode_manifest(encode(manifest)), Code::corrupt, "not a multiple of 4096");
}

}  // namespace
}  // namespace tailrace::internal
