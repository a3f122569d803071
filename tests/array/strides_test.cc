// Strides against the simplest thing that can be right: element by element, with indices counted out.
#include "array/strides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <numeric>
#include <random>

#include "base/crc32c.h"

namespace tailrace::internal {
namespace {

using ::testing::HasSubstr;

using Random = std::mt19937_64;

uint64_t below(Random& random, uint64_t limit) {
    return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random);
}

uint64_t seed_of_this_run() {
    const char* given = std::getenv("TAILRACE_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::cout << "TAILRACE_SEED=" << seed << "\n";
    return seed;
}

struct Case {
    ArrayPiece piece;
    MemoryLayout layout;
    std::vector<uint64_t> stride_bytes;  // as they come out
    uint64_t memory_bytes = 0;
};

// A piece of 1 to 4 dimensions in a larger memory: row-major or with the dimensions in any order, and with
// strides that leave room between neighbours.
Case random_case(Random& random) {
    Case made;
    made.piece.type = std::vector{ElementType::int8, ElementType::int16, ElementType::float32,
                                  ElementType::float64, ElementType::complex128}[below(random, 5)];
    const uint64_t element = element_bytes(made.piece.type);
    const size_t dimensions = 1 + below(random, 4);
    const uint64_t most = dimensions == 1 ? 20000 : dimensions == 2 ? 300 : 24;
    for (size_t d = 0; d < dimensions; ++d) {
        const uint64_t count = 1 + below(random, most);
        const uint64_t before = below(random, 3), after = below(random, 3);
        made.piece.local_shape.push_back(count);
        made.piece.global_shape.push_back(count);
        made.piece.offset.push_back(0);
        made.layout.shape.push_back(before + count + after);
        made.layout.offset.push_back(before);
    }
    std::vector<size_t> order(dimensions);
    std::iota(order.begin(), order.end(), size_t{0});
    std::reverse(order.begin(), order.end());
    const bool with_strides = below(random, 2) == 0;
    if (with_strides) std::shuffle(order.begin(), order.end(), random);
    made.stride_bytes.resize(dimensions);
    uint64_t next = element + (with_strides ? below(random, 3) * element : 0);
    for (const size_t d : order) {
        made.stride_bytes[d] = next;
        next = next * made.layout.shape[d] + (with_strides ? below(random, 2) : 0);
    }
    if (with_strides) made.layout.stride_bytes = made.stride_bytes;
    made.memory_bytes = element;
    for (size_t d = 0; d < dimensions; ++d)
        made.memory_bytes += (made.layout.shape[d] - 1) * made.stride_bytes[d];
    made.layout.bytes = made.memory_bytes;
    return made;
}

// Where the piece's elements lie in memory, in row-major order.
std::vector<uint64_t> places_of(const Case& made) {
    std::vector<uint64_t> places;
    const auto& shape = made.piece.local_shape;
    const uint64_t count = array_bytes(made.piece) / element_bytes(made.piece.type);
    for (uint64_t n = 0; n < count; ++n) {
        uint64_t rest = n, at = 0;
        for (size_t d = shape.size(); d-- > 0;) {
            at += (made.layout.offset[d] + rest % shape[d]) * made.stride_bytes[d];
            rest /= shape[d];
        }
        places.push_back(at);
    }
    return places;
}

TEST(StridesTest, GatherAndScatterAreWhatElementsOneByOneGive) {
    Random random(seed_of_this_run());
    for (int round = 0; round < 400; ++round) {
        const Case made = random_case(random);
        SCOPED_TRACE("round " + std::to_string(round));
        const uint64_t element = element_bytes(made.piece.type);
        const auto places = places_of(made);
        std::vector<std::byte> memory(made.memory_bytes);
        for (auto& byte : memory) byte = static_cast<std::byte>(random());
        std::vector<std::byte> expected(array_bytes(made.piece));
        for (size_t i = 0; i < places.size(); ++i)
            std::memcpy(expected.data() + i * element, memory.data() + places[i], element);

        const auto place = place_in_memory(made.piece, made.layout);
        ASSERT_TRUE(place.ok()) << place.status().to_string();
        const std::byte* first = memory.data() + place->first_byte;
        const Strides& strides = place->strides;
        // Any stretch of the piece's bytes, also one that begins or ends within an element.
        const uint64_t from = below(random, expected.size());
        const uint64_t bytes = 1 + below(random, expected.size() - from);
        const auto wanted = std::span(expected).subspan(from, bytes);
        std::vector<std::byte> got(bytes);
        gather(first, strides, from, got);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), wanted.begin()));
        std::fill(got.begin(), got.end(), std::byte{0});
        uint32_t crc = 17;
        stream_gather(first, strides, from, got, below(random, 2) == 0 ? &crc : nullptr);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), wanted.begin()));
        ASSERT_TRUE(crc == 17 || crc == crc32c(wanted));

        // Back into other memory, of which nothing else changes.
        std::vector<std::byte> other(memory.size());
        for (auto& byte : other) byte = static_cast<std::byte>(random());
        auto naive = other;
        for (uint64_t i = from; i < from + bytes; ++i) naive[places[i / element] + i % element] = expected[i];
        std::byte* there = other.data() + place->first_byte;
        scatter(wanted, there, strides, from);
        ASSERT_EQ(other, naive);
        if (const std::byte* together = one_after_another(there, strides, from, bytes))
            ASSERT_EQ(std::memcmp(together, wanted.data(), bytes), 0);
        else
            ASSERT_FALSE(strides.one_block());
    }
}

ArrayPiece piece_of(std::vector<uint64_t> shape) {
    return {ElementType::float64, shape, std::vector<uint64_t>(shape.size(), 0), shape};
}

TEST(StridesTest, WhatLiesTogetherIsOneRun) {
    EXPECT_EQ(place_in_memory(piece_of({4, 5, 6}), {})->strides, (Strides{960, {}}));
    EXPECT_EQ(place_in_memory(piece_of({4, 5, 6}), {{4, 5, 6}, {}, {}, 0})->strides, (Strides{960, {}}));
    // Ghost cells around the slowest dimension alone.
    const auto planes = place_in_memory(piece_of({4, 5, 6}), {{6, 5, 6}, {1, 0, 0}, {}, 0});
    EXPECT_EQ(planes->first_byte, 240u);
    EXPECT_EQ(planes->strides, (Strides{960, {}}));
    // Around the fastest one alone: rows of all planes follow at one stride.
    EXPECT_EQ(place_in_memory(piece_of({4, 5, 6}), {{4, 5, 8}, {0, 0, 1}, {}, 0})->strides,
              (Strides{48, {{20, 64}}}));
    EXPECT_EQ(place_in_memory(piece_of({4, 5, 6}), {{6, 7, 8}, {1, 1, 1}, {}, 0})->strides,
              (Strides{48, {{4, 448}, {5, 64}}}));
    // As Fortran has it, and every third element.
    EXPECT_EQ(place_in_memory(piece_of({4, 5}), {{}, {}, {8, 32}, 0})->strides,
              (Strides{8, {{4, 8}, {5, 32}}}));
    EXPECT_EQ(place_in_memory(piece_of({4}), {{}, {}, {24}, 0})->strides, (Strides{8, {{4, 24}}}));
    // A stride that is never taken means nothing.
    EXPECT_EQ(place_in_memory(piece_of({1, 5}), {{}, {}, {0, 8}, 40})->strides, (Strides{40, {}}));
}

TEST(StridesTest, LayoutsThatDoNotFitAreRefusedWithTheReason) {
    const auto refusal = [](const ArrayPiece& piece, const MemoryLayout& layout) {
        const auto place = place_in_memory(piece, layout);
        EXPECT_EQ(place.status().code(), Code::invalid_argument);
        return place.status().message();
    };
    const auto piece = piece_of({4, 5});
    EXPECT_THAT(refusal(piece, {{4}, {}, {}, 0}), HasSubstr("1 dimensions, but the array has 2"));
    EXPECT_THAT(refusal(piece, {{4, 5}, {0, 0, 0}, {}, 0}), HasSubstr("3 dimensions"));
    EXPECT_THAT(refusal(piece, {{}, {1, 1}, {}, 0}), HasSubstr("needs the memory's shape"));
    EXPECT_THAT(refusal(piece, {{6, 6}, {1, 2}, {}, 0}), HasSubstr("dimension 1"));
    EXPECT_THAT(refusal(piece, {{6, 4}, {1, 0}, {}, 0}), HasSubstr("dimension 1"));
    EXPECT_THAT(refusal(piece, {{6, 7}, {UINT64_MAX, 0}, {}, 0}), HasSubstr("dimension 0"));
    EXPECT_THAT(refusal(piece, {{6, 7}, {1, 1}, {}, 335}), HasSubstr("has 335 bytes"));
    EXPECT_TRUE(place_in_memory(piece, {{6, 7}, {1, 1}, {}, 336}).ok());
    EXPECT_THAT(refusal(piece, {{}, {}, {32, 8}, 0}), HasSubstr("share memory"));
    EXPECT_THAT(refusal(piece, {{}, {}, {40, 0}, 0}), HasSubstr("share memory"));
    EXPECT_THAT(refusal(piece, {{}, {}, {40, 7}, 0}), HasSubstr("share memory"));
    EXPECT_THAT(refusal(piece, {{UINT64_MAX, 5}, {}, {}, 0}), HasSubstr("exceeds the address space"));
    EXPECT_THAT(refusal(piece, {{4, UINT64_MAX}, {}, {}, 0}), HasSubstr("exceeds the address space"));
    EXPECT_THAT(refusal(piece, {{}, {}, {uint64_t{1} << 62, 8}, 0}), HasSubstr("exceeds the address space"));
    EXPECT_THAT(refusal(piece, {{}, {UINT64_MAX, 0}, {40, 8}, 0}), HasSubstr("exceeds the address space"));
    // A piece of nothing lies anywhere.
    EXPECT_TRUE(place_in_memory(piece_of({0, 5}), {{2, 7}, {1, 1}, {}, 0}).ok());
    EXPECT_TRUE(place_in_memory(piece_of({0, 5}), {{0, 7}, {0, 1}, {}, 0}).ok());
}

}  // namespace
}  // namespace tailrace::internal
