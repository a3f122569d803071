// Global arrays: that any box of any decomposition is assembled, from the check blocks it needs and no
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "array/hyperslab.h"
#include "read/epoch_reader_fixture.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;
using namespace testing_support;

// The box of a counting array: element i (row-major of the global array) is i.
Bytes counted_box(const std::vector<uint64_t>& global, const Box& box) {
    return counting_array("", global, box.offset, box.shape).data;
}

// Cuts `global` into a grid of pieces, ranks in random order.
BuiltEpoch decomposed(std::mt19937_64& random, const std::vector<uint64_t>& global) {
    BuiltEpoch epoch;
    epoch.seed = random();
    epoch.file_count = static_cast<uint32_t>(1 + random() % 3);
    epoch.leaders_per_file = static_cast<uint32_t>(1 + random() % 2);
    std::vector<Box> pieces{{std::vector<uint64_t>(global.size(), 0), global}};
    for (size_t d = 0; d < global.size(); ++d) {
        std::vector<Box> cut;
        for (const Box& piece : pieces) {
            uint64_t at = piece.offset[d];
            const uint64_t end = at + piece.shape[d];
            const uint64_t parts = 1 + random() % 3;
            for (uint64_t p = 0; p < parts; ++p) {
                Box part = piece;
                part.offset[d] = at;
                part.shape[d] = p + 1 == parts ? end - at : random() % (end - at + 1);
                at += part.shape[d];
                cut.push_back(part);
            }
        }
        pieces = std::move(cut);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const Box& piece : pieces)
        epoch.ranks.push_back({{"other", pattern(random(), random() % 5000), {}},
                               counting_array("u", global, piece.offset, piece.shape)});
    return epoch;
}

Box random_box(std::mt19937_64& random, const std::vector<uint64_t>& global) {
    Box box;
    for (uint64_t extent : global) {
        box.offset.push_back(random() % (extent + 1));
        box.shape.push_back(random() % (extent - box.offset.back() + 1));
    }
    return box;
}

TEST_F(EpochReaderTest, AnyBoxOfAnyDecompositionIsAssembled) {
    const std::vector<std::vector<uint64_t>> shapes{{50000},    {300, 500},   {20, 1, 70},    {7, 11, 13, 5},
                                                    {600, 700}, {64, 40, 60}, {3, 2, 4, 3, 5}};
    for (const auto& global : shapes) {
        for (int round = 0; round < 4; ++round) {
            MemoryStorage fresh;
            const BuiltEpoch epoch = decomposed(random_, global);
            ASSERT_TRUE(write_shared_files(fresh, "/shared", epoch).ok());
            auto loaded = load_shared_epoch(fresh, list_shared(fresh, "/shared", "")->front());
            ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
            auto reader = EpochReader::open(
                fresh, fresh, {epoch.key, static_cast<uint32_t>(epoch.ranks.size()), {}, *loaded});
            ASSERT_TRUE(reader.ok());
            auto arrays = (*reader)->arrays();
            ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
            ASSERT_EQ(arrays->size(), 1u);
            EXPECT_TRUE(arrays->front().complete);
            EXPECT_EQ(arrays->front().shape, global);
            for (int b = 0; b < 6; ++b) {
                const Box box = b == 0 ? Box{std::vector<uint64_t>(global.size(), 0), global}
                                       : random_box(random_, global);
                const Bytes expected = counted_box(global, box);
                Bytes memory(expected.size());
                const Status status = (*reader)->read_box("u", box.offset, box.shape, memory);
                ASSERT_TRUE(status.ok()) << status.to_string();
                ASSERT_EQ(memory, expected);
            }
        }
    }
}

TEST_F(EpochReaderTest, LongRowsAreReadWhereTheyBelong) {
    // Rows of 1.2 MB, one piece wider than the box: every row has check blocks inside and at its edges.
    const std::vector<uint64_t> global{6, 400000};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {4, 400000})},
                   {counting_array("u", global, {4, 0}, {2, 400000})}};
    auto reader = write_and_open(epoch);
    const Box box{{1, 50001}, {5, 300001}};
    const Bytes expected = counted_box(global, box);
    Bytes memory(expected.size());
    ASSERT_EQ(reader->read_box("u", box.offset, box.shape, memory).to_string(), "ok");
    EXPECT_EQ(memory, expected);
}

TEST_F(EpochReaderTest, ABoxReadsOnlyTheCheckBlocksItNeeds) {
    const std::vector<uint64_t> global{2 << 20};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0}, {1 << 20})},
                   {counting_array("u", global, {1 << 20}, {1 << 20})}};
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->arrays().ok());
    log_.clear();
    const Box box{{(1 << 20) - 50}, {100}};
    Bytes memory(400);
    ASSERT_EQ(reader->read_box("u", box.offset, box.shape, memory).to_string(), "ok");
    EXPECT_EQ(memory, counted_box(global, box));
    EXPECT_LE(log_.bytes(), 2 * check_block_bytes);
}

// As when a model's state is loaded on another number of ranks: a part of each of many arrays.
TEST_F(EpochReaderTest, BoxesOfManyArraysShareReadsAndGoForwards) {
    constexpr uint64_t ranks = 3, arrays = 60;
    BuiltEpoch epoch;
    epoch.file_count = 1;
    epoch.chunk_bytes = 64 * MiB;
    epoch.ranks.resize(ranks);
    std::vector<std::vector<uint64_t>> shapes;
    for (uint64_t a = 0; a < arrays; ++a) {
        shapes.push_back({30 + a, 100 + a});
        for (uint64_t rank = 0, row = 0; rank < ranks; ++rank) {
            const uint64_t rows = rank + 1 == ranks ? 30 + a - row : 10;
            epoch.ranks[rank].push_back(
                counting_array("u" + std::to_string(a), shapes[a], {row, 0}, {rows, 100 + a}));
            row += rows;
        }
    }
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->arrays().ok());
    log_.clear();
    std::vector<Bytes> expected, found;
    std::vector<BoxTarget> targets;
    for (uint64_t a = 0; a < arrays; ++a) {
        // Rows for some, columns for others; two boxes that meet within a check block for all.
        const Box first = a % 2 == 0 ? Box{{5, 0}, {9, 100 + a}} : Box{{0, 7}, {30 + a, 20}};
        const Box second = a % 2 == 0 ? Box{{14, 0}, {9, 100 + a}} : Box{{0, 27}, {30 + a, 1}};
        for (const Box& box : {first, second}) {
            expected.push_back(counted_box(shapes[a], box));
            found.emplace_back(expected.back().size());
            targets.push_back({"u" + std::to_string(a), box.offset, box.shape, {}});
        }
    }
    for (size_t i = 0; i < targets.size(); ++i) targets[i].memory = found[i];
    std::shuffle(targets.begin(), targets.end(), random_);
    ASSERT_EQ(reader->read_boxes(targets).to_string(), "ok");
    for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], expected[i]) << i;
    EXPECT_LE(log_.calls.size(), 2 * ranks);  // one or two for each rank's stream
    EXPECT_GE(log_.calls.size(), 1u);
}

// Into the inside of larger memory: short rows, long ones, and whole pieces; what is around stays.
TEST_F(EpochReaderTest, BoxesAndRegionsGoIntoStridedMemory) {
    const std::vector<uint64_t> global{1200, 1500};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {700, 1500})},
                   {counting_array("u", global, {700, 0}, {500, 1500})}};
    auto reader = write_and_open(epoch);
    for (const Box& box : {Box{{3, 2}, {1100, 7}}, Box{{0, 0}, {1200, 1500}}, Box{{690, 0}, {20, 1500}},
                           Box{{5, 8}, {900, 1400}}, Box{{700, 0}, {500, 1500}}}) {
        for (const uint64_t step : {1u, 3u}) {
            const uint64_t stride = (box.shape[1] * step + 5) * 4;
            const Bytes wanted = counted_box(global, box);
            const Strides strides = step == 1
                                        ? Strides{box.shape[1] * 4, {{box.shape[0], stride}}}
                                        : Strides{4, {{box.shape[0], stride}, {box.shape[1], step * 4}}};
            Bytes memory(box.shape[0] * stride, std::byte{0x5a}), expected = memory;
            scatter(wanted, expected.data() + 8, strides, 0);
            const BoxTarget target{"u", box.offset, box.shape, {memory.data() + 8, wanted.size()}, strides};
            ASSERT_EQ(reader->read_boxes({&target, 1}).to_string(), "ok");
            ASSERT_EQ(memory, expected) << box.shape[0] << " x " << box.shape[1] << ", every " << step;
            if (box.offset != std::vector<uint64_t>{700, 0}) continue;
            std::fill(memory.begin(), memory.end(), std::byte{0x5a});
            const RegionTarget region{"u", {memory.data() + 8, wanted.size()}, strides};
            ASSERT_EQ(reader->read_regions(1, {&region, 1}).to_string(), "ok");
            ASSERT_EQ(memory, expected);
        }
    }
}

TEST_F(EpochReaderTest, DamageUnderABoxIsFoundAndBesideItIsNot) {
    const std::vector<uint64_t> global{1000, 1000};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {1000, 1000})}};
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "u") + 3 * MiB);
    const std::vector<uint64_t> at{0, 10}, below{700, 10}, shape{300, 20};
    Bytes memory(300 * 20 * 4);
    EXPECT_EQ(reader->read_box("u", at, shape, memory).to_string(), "ok");
    EXPECT_EQ(reader->read_box("u", below, shape, memory).code(), Code::corrupt);
}

TEST_F(EpochReaderTest, WherePiecesOverlapTheLowestRankCounts) {
    const std::vector<uint64_t> global{40, 60};
    BuiltEpoch epoch;
    std::vector<uint32_t> owner(40 * 60, UINT32_MAX);
    const std::vector<Box> pieces{
        {{5, 5}, {10, 30}}, {{0, 0}, {20, 60}}, {{8, 20}, {32, 40}}, {{0, 0}, {40, 60}}};
    for (uint32_t rank = 0; rank < pieces.size(); ++rank) {
        auto built = counting_array("u", global, pieces[rank].offset, pieces[rank].shape);
        for (size_t i = 0; i < built.data.size(); i += 4) {
            uint32_t element = 0;
            std::memcpy(&element, built.data.data() + i, 4);
            if (owner[element] == UINT32_MAX) owner[element] = rank;
            std::memcpy(built.data.data() + i, &rank, 4);
        }
        epoch.ranks.push_back({built});
    }
    auto reader = write_and_open(epoch);
    Bytes memory(owner.size() * 4);
    const std::vector<uint64_t> zero{0, 0};
    ASSERT_EQ(reader->read_box("u", zero, global, memory).to_string(), "ok");
    EXPECT_EQ(std::memcmp(memory.data(), owner.data(), memory.size()), 0);
}

TEST_F(EpochReaderTest, ElementsNobodySavedAreCorruptAndNamed) {
    const std::vector<uint64_t> global{10, 10};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {10, 4})},
                   {counting_array("u", global, {0, 6}, {10, 4})}};
    auto reader = write_and_open(epoch);
    EXPECT_FALSE(reader->arrays()->front().complete);
    const std::vector<uint64_t> zero{0, 0}, covered{10, 4};
    Bytes memory(400), part(160);
    const Status status = reader->read_box("u", zero, global, memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("[0:10, 4:6]"));
    EXPECT_EQ(reader->read_box("u", zero, covered, part).to_string(), "ok");
}

TEST_F(EpochReaderTest, RanksThatDisagreeAboutAnArrayAreNamed) {
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", {10}, {0}, {5})}, {counting_array("u", {12}, {5}, {7})}};
    auto reader = write_and_open(epoch);
    EXPECT_FALSE(reader->arrays()->front().complete);
    const std::vector<uint64_t> zero{0}, five{5};
    Bytes memory(20);
    const Status status = reader->read_box("u", zero, five, memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST_F(EpochReaderTest, BoxesThatMakeNoSenseAreRefused) {
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("density", {10, 10}, {0, 0}, {10, 10}), {"plain", pattern(1, 5), {}}}};
    auto reader = write_and_open(epoch);
    Bytes memory(400);
    const std::vector<uint64_t> one{0}, zero{0, 0}, whole{10, 10}, beyond{5, 5}, huge{UINT64_MAX, 2},
        none{0, 10};
    EXPECT_EQ(reader->read_box("density", one, one, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", beyond, whole, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", zero, huge, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", huge, whole, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", zero, whole, std::span(memory).first(399)).code(),
              Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", zero, none, {}).to_string(), "ok");
    const Status missing = reader->read_box("densty", zero, whole, memory);
    EXPECT_EQ(missing.code(), Code::not_found);
    EXPECT_THAT(missing.message(), HasSubstr("; its only array is 'density'"));
    EXPECT_EQ(reader->read_box("plain", zero, whole, memory).code(), Code::not_found);
}

}  // namespace
}  // namespace tailrace::internal
