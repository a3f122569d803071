#include "format/shared_file.h"

#include <algorithm>

#include "base/crc32c.h"
#include "format/hostile.h"

namespace tailrace::internal {
namespace {

SharedHeader sample_header(uint32_t leaders = 2) {
    SharedHeader header;
    header.job = "sample";
    header.key = {12, 3};
    header.run_uid = 77;
    header.file_index = 1;
    header.file_count = 2;
    header.rank_count = 9;
    header.leader_count = leaders;
    header.block_bytes = 512;
    header.index_area_bytes = 1024;
    header.stripe_bytes = leaders == 1 ? 0 : 2048;
    return header;
}

// Slot and index of leader 1 (of 2): data starts at 512 * 3 + 1024 * 2 = 3584, its stripes at 5632, 9728, ...
struct Segment {
    SharedHeader header = sample_header();
    SegmentIndex index{{{3, 5000, 4096, 1}, {4, 4096, 4096, 2}},
                       {{3, 0, 1000, 5632}, {4, 0, 512, 6656}, {3, 1000, 2000, 9728}}};
    LeaderSlot slot{1, 0, 0, 3512, 1700000000000, 77, {12, 3}};
    uint64_t file_bytes = 12288;

    Bytes bytes() const { return encode(index); }
    // Decodes the index under a slot that fits its bytes.
    Result<SegmentIndex> decode(const Bytes& encoded) const {
        auto fitting = slot;
        fitting.index_bytes = encoded.size();
        fitting.index_crc = crc32c(encoded);
        return decode_segment_index(encoded, header, fitting, file_bytes);
    }
    Result<SegmentIndex> decode() const { return decode(bytes()); }
};

Bytes sample_slot() {
    auto slot = Segment().slot;
    slot.index_bytes = 192;
    slot.index_crc = 0x12345678;
    return encode(slot, 512);
}
Result<LeaderSlot> decode_slot(std::span<const std::byte> bytes) {
    return decode_leader_slot(bytes, sample_header(), 1);
}

// ---- header ------------------------------------------------------------------------------------------

TEST(SharedHeaderTest, EveryHeaderComesBack) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 500; ++i) {
        auto header = random_shared_header(random);
        auto bytes = encode(header);
        ASSERT_EQ(bytes.size(), header.block_bytes);
        auto decoded = decode_shared_header(std::span(bytes).first(shared_header_probe_bytes));
        ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, header);
    }
}

TEST(SharedHeaderTest, TruncatedHeaderIsCorrupt) {
    expect_truncations_corrupt(encode(sample_header()), decode_shared_header);
}

TEST(SharedHeaderTest, EveryFlippedBitIsNoticed) {
    expect_flips_corrupt(encode(sample_header()), 512, decode_shared_header);
}

TEST(SharedHeaderTest, OtherVersionsAreReadOrRefusedByTheRules) {
    expect_version_rules(encode(sample_header()), 512, decode_shared_header);
}

TEST(SharedHeaderTest, WrongFieldsAreCorrupt) {
    auto decode_with = [&](uint64_t offset, auto value, uint32_t leaders = 2) {
        return decode_shared_header(with(encode(sample_header(leaders)), 512, offset, value));
    };
    expect_code(decode_with(44, uint32_t{2}), Code::corrupt, "no file 3 of 2");
    expect_code(decode_with(56, uint32_t{0}), Code::corrupt, "no file 2 of 0");
    expect_code(decode_with(56, max_files + 1), Code::corrupt, "no file 2 of");
    expect_code(decode_with(60, uint32_t{0}), Code::corrupt, "its number of ranks is 0");
    expect_code(decode_with(60, max_ranks + 1), Code::corrupt, "ranks");
    expect_code(decode_with(64, uint32_t{0}), Code::corrupt, "its number of leaders is 0");
    expect_code(decode_with(64, max_leaders_per_file + 1), Code::corrupt, "leaders");
    expect_code(decode_with(64, uint32_t{1}), Code::corrupt, "its stripes");  // one leader with stripes
    expect_code(decode_with(88, uint64_t{0}), Code::corrupt, "its stripes");  // two without
    expect_code(decode_with(88, uint64_t{2049}), Code::corrupt, "its stripes");
    expect_code(decode_with(88, ~uint64_t{511}), Code::corrupt, "its stripes");
    for (uint64_t block : {uint64_t{0}, uint64_t{256}, uint64_t{513}, uint64_t{1536}, uint64_t{1} << 31})
        expect_code(decode_with(72, block, 1), Code::corrupt, "its blocks have");
    for (uint64_t area : {uint64_t{0}, uint64_t{1000}, uint64_t{1} << 60})
        expect_code(decode_with(80, area), Code::corrupt, "its index areas");
    expect_code(decode_with(68, uint32_t{101}), Code::corrupt, "job name");
    expect_code(decode_with(97, uint8_t{'/'}), Code::corrupt, "job name");
}

// ---- where things lie --------------------------------------------------------------------------------

TEST(SharedLayoutTest, HeadIsHeaderSlotsAndIndexAreas) {
    auto header = sample_header();
    EXPECT_EQ(slot_offset(header, 0), 512u);
    EXPECT_EQ(slot_offset(header, 1), 1024u);
    EXPECT_EQ(index_offset(header, 0), 1536u);
    EXPECT_EQ(index_offset(header, 1), 2560u);
    EXPECT_EQ(data_offset(header), 3584u);
    auto one = sample_header(1);
    EXPECT_EQ(data_offset(one), 512u * 2 + 1024);
    EXPECT_EQ(place_in_stripes(one, 0, 12345).file_offset, data_offset(one) + 12345);
    EXPECT_EQ(place_in_stripes(one, 0, 12345).run_bytes, UINT64_MAX);
}

// Walking all leaders' data block by block meets every block of the file's data exactly once, and the runs
// are as long as they are said to be.
TEST(SharedLayoutTest, StripesCoverTheFileWithoutOverlap) {
    auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int i = 0; i < 100; ++i) {
        auto header = random_shared_header(random);
        if (header.leader_count == 1) continue;
        uint64_t rounds = 1 + below(random, 4);
        uint64_t block_count = rounds * header.stripe_bytes / header.block_bytes;
        std::vector<int> owner(block_count * header.leader_count, -1);
        for (uint32_t leader = 0; leader < header.leader_count; ++leader) {
            uint64_t expected_next = 0, run_left = 0;
            for (uint64_t block = 0; block < block_count; ++block) {
                auto place = place_in_stripes(header, leader, block * header.block_bytes);
                if (run_left > 0) {
                    ASSERT_EQ(place.file_offset, expected_next);
                }
                ASSERT_GE(place.run_bytes, header.block_bytes);
                auto at = (place.file_offset - data_offset(header)) / header.block_bytes;
                ASSERT_EQ((place.file_offset - data_offset(header)) % header.block_bytes, 0u);
                ASSERT_LT(at, owner.size());
                ASSERT_EQ(owner[at], -1);
                owner[at] = static_cast<int>(leader);
                run_left = place.run_bytes - header.block_bytes;
                expected_next = place.file_offset + header.block_bytes;
            }
        }
        EXPECT_EQ(std::count(owner.begin(), owner.end(), -1), 0);
    }
}

// ---- slot --------------------------------------------------------------------------------------------

TEST(LeaderSlotTest, SlotComesBackAndFillsABlock) {
    auto slot = Segment().slot;
    slot.index_bytes = 1024;
    slot.index_crc = 5;
    auto bytes = encode(slot, 4096);
    ASSERT_EQ(bytes.size(), 4096u);
    auto decoded = decode_slot(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, slot);
}

TEST(LeaderSlotTest, ZerosAreNoCommit) {
    expect_code(decode_slot(Bytes(4096)), Code::not_found, "leader 2 of 2 has not committed");
    expect_code(decode_slot(Bytes()), Code::not_found, "has not committed");
}

TEST(LeaderSlotTest, TruncatedSlotIsCorrupt) {
    // Without any byte it is a slot nobody has written.
    auto bytes = sample_slot();
    for (size_t count = 1; count < bytes.size(); ++count)
        expect_code(decode_slot(std::span(bytes).first(count)), Code::corrupt, "cut off");
}

TEST(LeaderSlotTest, EveryFlippedBitIsNoticed) {
    expect_flips_corrupt(sample_slot(), 512, decode_slot);
}

TEST(LeaderSlotTest, OtherVersionsAreReadOrRefusedByTheRules) {
    expect_version_rules(sample_slot(), 512, decode_slot);
}

TEST(LeaderSlotTest, SlotOfAnotherEpochRunOrLeaderIsCorrupt) {
    auto decode_with = [&](uint64_t offset, auto value) {
        return decode_slot(with(sample_slot(), 512, offset, value));
    };
    expect_code(decode_with(32, uint64_t{11}), Code::corrupt, "belongs to epoch 11 of run 3");
    expect_code(decode_with(40, uint32_t{2}), Code::corrupt, "belongs to epoch 12 of run 2");
    expect_code(decode_with(48, uint64_t{78}), Code::corrupt, "run 000000000000004e");
    expect_code(decode_with(44, uint32_t{0}), Code::corrupt, "is that of leader 1");
}

TEST(LeaderSlotTest, WrongSizesAreCorrupt) {
    auto decode_with = [&](uint64_t offset, auto value) {
        return decode_slot(with(sample_slot(), 512, offset, value));
    };
    for (uint64_t bytes : {uint64_t{0}, uint64_t{47}, uint64_t{1025}, UINT64_MAX})
        expect_code(decode_with(56, bytes), Code::corrupt, "an index of");
    expect_code(decode_with(64, UINT64_MAX), Code::corrupt, "bytes of data");
}

// ---- index -------------------------------------------------------------------------------------------

TEST(SegmentIndexTest, IndexComesBack) {
    Segment segment;
    auto decoded = segment.decode();
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, segment.index);
    EXPECT_EQ(segment.bytes().size(), index_bytes_bound(2, 3));
}

TEST(SegmentIndexTest, IndexWithoutExtentsComesBack) {
    Segment segment;
    segment.index.extents.clear();
    segment.slot.data_bytes = 0;
    EXPECT_TRUE(segment.decode().ok());
}

TEST(SegmentIndexTest, TruncatedIndexIsCorrupt) {
    Segment segment;
    auto bytes = segment.bytes();
    segment.slot.index_bytes = bytes.size();
    segment.slot.index_crc = crc32c(bytes);
    auto decode = [&](std::span<const std::byte> part) {
        return decode_segment_index(part, segment.header, segment.slot, segment.file_bytes);
    };
    expect_truncations_corrupt(bytes, decode);
    expect_code(decode(std::span(bytes).first(10)), Code::corrupt, "cut off: it has 10 bytes");
    // And under a slot that goes along with the cut.
    expect_truncations_corrupt(bytes, [&](std::span<const std::byte> part) {
        return segment.decode(Bytes(part.begin(), part.end()));
    });
}

TEST(SegmentIndexTest, EveryFlippedBitIsNoticed) {
    Segment segment;
    auto bytes = segment.bytes();
    segment.slot.index_bytes = bytes.size();
    segment.slot.index_crc = crc32c(bytes);
    expect_flips_corrupt(bytes, bytes.size(), [&](std::span<const std::byte> flipped) {
        return decode_segment_index(flipped, segment.header, segment.slot, segment.file_bytes);
    });
    // And under a slot whose checksum goes along with it.
    expect_flips_corrupt(bytes, bytes.size(), [&](std::span<const std::byte> flipped) {
        return segment.decode(Bytes(flipped.begin(), flipped.end()));
    });
}

TEST(SegmentIndexTest, OtherVersionsAreReadOrRefusedByTheRules) {
    Segment segment;
    auto bytes = segment.bytes();
    expect_version_rules(bytes, bytes.size(), [&](std::span<const std::byte> changed) {
        return segment.decode(Bytes(changed.begin(), changed.end()));
    });
}

TEST(SegmentIndexTest, CountsBeyondTheBytesAreCorrupt) {
    Segment segment;
    auto bytes = segment.bytes();
    for (uint64_t offset : {32, 40})
        for (uint64_t count : {uint64_t{4}, uint64_t{1} << 59, uint64_t{1} << 61, UINT64_MAX}) {
            SCOPED_TRACE(count);
            expect_code(segment.decode(with(bytes, bytes.size(), offset, count)), Code::corrupt,
                        "counts more");
        }
}

TEST(SegmentIndexTest, WrongStreamsAreCorrupt) {
    auto refused = [](auto change, const std::string& why) {
        Segment segment;
        change(segment.index.streams);
        expect_code(segment.decode(), Code::corrupt, why);
    };
    using Streams = std::vector<StreamInfo>;
    refused([](Streams& streams) { std::swap(streams[0], streams[1]); }, "comes after");
    refused([](Streams& streams) { streams[1].rank = 3; }, "comes after");
    refused([](Streams& streams) { streams[1].rank = 9; }, "rank 9 of 9");
    refused([](Streams& streams) { streams[1].manifest_bytes = 8192; }, "a manifest of 8192 bytes");
    refused([](Streams& streams) { streams[1].manifest_bytes = 100; }, "a manifest of 100 bytes");
    refused([](Streams& streams) { streams[1].stream_bytes = UINT64_MAX; }, "in a stream of");
    refused([](Streams& streams) { streams[1].rank = 5; }, "rank 4, which is not in the index");
    refused([](Streams& streams) { streams.pop_back(); }, "rank 4, which is not in the index");
}

TEST(SegmentIndexTest, WrongExtentsAreCorrupt) {
    auto refused = [](auto change, const std::string& why) {
        Segment segment;
        change(segment.index.extents);
        segment.slot.data_bytes = 0;
        for (const auto& extent : segment.index.extents) segment.slot.data_bytes += extent.bytes;
        segment.slot.data_bytes &= (uint64_t{1} << 62) - 1;
        expect_code(segment.decode(), Code::corrupt, why);
    };
    using Extents = std::vector<Extent>;
    refused([](Extents& extents) { std::swap(extents[0], extents[1]); }, "the one before ends at");
    refused([](Extents& extents) { extents[0].bytes = 1025; }, "the one before ends at");
    refused([](Extents& extents) { extents[0].bytes = 0; }, "has 0 bytes");
    refused([](Extents& extents) { extents[0].file_offset = 0; }, "data goes from 3584");
    refused([](Extents& extents) { extents[0].file_offset = 3072; }, "data goes from 3584");
    refused([](Extents& extents) { extents[2].file_offset = 12288; }, "to 12288");
    refused([](Extents& extents) { extents[2].bytes = UINT64_MAX; }, "to 12288");
    refused([](Extents& extents) { extents[2].file_offset = ~uint64_t{511}; }, "to 12288");
    refused([](Extents& extents) { extents[2].file_offset += 256; }, "not a multiple of the block");
    refused([](Extents& extents) { extents[0].file_offset = 3584; }, "not within a stripe of leader 2");
    refused([](Extents& extents) { extents[2].bytes = 2049; }, "not within a stripe of leader 2");
    refused([](Extents& extents) { extents[2].stream_offset = 3001; },
            "stream of rank 3, which has only 5000");
    refused([](Extents& extents) { extents[2].stream_offset = UINT64_MAX; }, "stream of rank 3");
    refused([](Extents& extents) { extents[1].rank = 7; }, "rank 7, which is not in the index");
}

TEST(SegmentIndexTest, ExtentBeyondTheEndOfTheFileIsCorrupt) {
    Segment segment;
    segment.file_bytes = 9728 + 1999;
    expect_code(segment.decode(), Code::corrupt, "to 11727");
}

TEST(SegmentIndexTest, SumOfExtentsMustBeTheSlots) {
    Segment segment;
    segment.slot.data_bytes = 3511;
    expect_code(segment.decode(), Code::corrupt, "have 3512 bytes, but the slot says 3511");
}

TEST(SegmentIndexTest, NormalizeSortsAndJoinsWhatIsAdjacentInStreamAndFile) {
    std::vector<Extent> extents = {
        {1, 2048, 100, 12288},                       // goes on from the next one in both
        {1, 1024, 1024, 11264}, {1, 0, 1024, 8192},  // adjacent in the stream, not in the file
        {2, 512, 1024, 9216},                        // adjacent in the file to the one before, another rank
        {2, 4096, 1024, 10240},                      // adjacent in the file, not in the stream
    };
    normalize(extents);
    EXPECT_EQ(extents,
              (std::vector<Extent>{
                  {1, 0, 1024, 8192}, {2, 512, 1024, 9216}, {2, 4096, 1024, 10240}, {1, 1024, 1124, 11264}}));
    std::vector<Extent> none;
    normalize(none);
    EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace tailrace::internal
