// The rule for arrays, exact and by fingerprints, against counting every element.
#include "array/array_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <iostream>

#include "array/array_summary.h"
#include "array/random_arrays.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;
using testing_support::random_array;
using testing_support::RandomArray;

uint64_t seed_of_this_run() {
    const char* given = std::getenv("TAILRACE_SEED");
    const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::cout << "TAILRACE_SEED=" << seed << "\n";
    return seed;
}

std::vector<RankPiece> rank_pieces(const RandomArray& array) {
    std::vector<RankPiece> pieces;
    for (uint32_t rank = 0; rank < array.pieces.size(); ++rank)
        if (array.pieces[rank]) pieces.push_back({rank, &*array.pieces[rank]});
    return pieces;
}

ArrayPiece piece_of(std::vector<uint64_t> shape, std::vector<uint64_t> offset, std::vector<uint64_t> local) {
    return {ElementType::uint32, std::move(shape), std::move(offset), std::move(local)};
}

std::string fault_of(const std::vector<ArrayPiece>& pieces, uint32_t rank_count = 0) {
    std::vector<RankPiece> by_rank;
    for (uint32_t rank = 0; rank < pieces.size(); ++rank) by_rank.push_back({rank, &pieces[rank]});
    const auto fault = check_array("u", by_rank, std::max(rank_count, static_cast<uint32_t>(pieces.size())));
    return fault ? fault->sentence : "";
}

TEST(ArrayCheckTest, SentencesNameArrayRankAndBox) {
    EXPECT_EQ(fault_of({piece_of({4, 6}, {0, 0}, {4, 3}), piece_of({4, 6}, {0, 3}, {4, 3})}), "");
    EXPECT_EQ(
        fault_of({piece_of({8}, {0}, {4}), piece_of({8}, {4}, {2})}, 3),
        "elements [6:8] of array 'u' (uint32 [8]) are in no rank's piece: the nearest is [4:6] of rank 1, "
        "and rank 2 has no piece. If that is meant, declare on every rank that the array may have "
        "gaps (TAILRACE_ARRAY_GAPS; in Python gaps=True)");
    EXPECT_THAT(fault_of({piece_of({8}, {0}, {0}), piece_of({8}, {3}, {0})}),
                HasSubstr("the pieces of rank 0 and of all others are empty"));
    EXPECT_EQ(
        fault_of({piece_of({8}, {0}, {5}), piece_of({8}, {3}, {5})}),
        "elements [3:5] of array 'u' (uint32 [8]) are in two pieces: [0:5] of rank 0 and [3:8] of rank 1. "
        "If that is meant, declare on every rank that pieces may overlap (TAILRACE_ARRAY_OVERLAP; in "
        "Python overlap=True)");
    EXPECT_EQ(fault_of({piece_of({8}, {0}, {8}), piece_of({9}, {0}, {9})}),
              "array 'u' cannot be put together: rank 0 saves [0:8] of uint32 [8], and rank 1 saves [0:9] of "
              "uint32 [9]");
    auto declared = piece_of({8}, {4}, {4});
    declared.may_overlap = true;
    EXPECT_EQ(
        fault_of({piece_of({8}, {0}, {4}), declared}),
        "array 'u': rank 1, with [4:8], declares that it may overlap, and rank 0, with [0:4], does not. All "
        "ranks must declare the same");
    EXPECT_EQ(fault_of({piece_of({0, 3}, {0, 0}, {0, 3}), piece_of({0, 3}, {0, 0}, {0, 3})}), "");
}

ArrayPiece list_of(uint64_t items, ElementType type = ElementType::uint32, uint64_t width = 3) {
    ArrayPiece piece{type, {items, width}, {0, 0}, {items, width}};
    piece.is_list = true;
    return piece;
}

// The exact rule and the summaries say the same.
TEST(ArrayCheckTest, PiecesOfAListFitIfTheirItemsAreAlike) {
    const ArrayPoints points(seed_of_this_run());
    auto array = list_of(4);
    array.is_list = false;
    const auto check = [&](const std::vector<ArrayPiece>& pieces) {
        ArraySummary summary;
        for (const auto& piece : pieces) {
            const NamedPiece named{"u", &piece};
            summary.add(points, {&named, 1});
        }
        const auto fault = fault_of(pieces);
        EXPECT_EQ(summary.faulty().empty(), fault.empty()) << fault;
        return fault;
    };
    EXPECT_EQ(check({list_of(4), list_of(0), list_of(9)}), "");
    EXPECT_EQ(check({list_of(0)}), "");
    EXPECT_EQ(check({list_of(4), list_of(5, ElementType::float32)}),
              "array 'u' cannot be put together: rank 0 saves [0:4, 0:3] of a list of uint32 [3], and rank 1 "
              "saves [0:5, 0:3] of a list of float32 [3]");
    EXPECT_THAT(check({list_of(4), list_of(4, ElementType::uint32, 2)}), HasSubstr("a list of uint32 [2]"));
    EXPECT_THAT(check({list_of(4), array}), HasSubstr("rank 1 saves [0:4, 0:3] of uint32 [4, 3]"));
    const uint64_t many = uint64_t{1} << 60;
    EXPECT_EQ(fault_of({list_of(many), list_of(many)}),
              "list 'u' has more items or bytes than 64 bits can count");
    const uint64_t half = uint64_t{1} << 63;
    EXPECT_THAT(fault_of({list_of(half, ElementType::uint32, 0), list_of(half, ElementType::uint32, 0)}),
                HasSubstr("more items"));
}

// A summary of the nodes that `ranks` are dealt to, merged in any order, over the wire.
ArraySummary summary_of(std::mt19937_64& random, const ArrayPoints& points,
                        const std::vector<RandomArray>& arrays, size_t ranks) {
    std::vector<ArraySummary> nodes(1 + random() % ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
        std::vector<NamedPiece> pieces;
        for (const auto& array : arrays)
            if (array.pieces[rank]) pieces.push_back({array.name, &*array.pieces[rank]});
        nodes[random() % nodes.size()].add(points, pieces);
    }
    ArraySummary whole;
    for (const auto& node : nodes) {
        auto decoded = decode_array_summary(encode(node));
        EXPECT_TRUE(decoded.ok()) << decoded.status().to_string();
        EXPECT_EQ(*decoded, node);
        whole.merge(std::move(*decoded));
    }
    return whole;
}

TEST(ArrayCheckTest, GeometryAndFingerprintsAgreeWithCounting) {
    std::mt19937_64 random(seed_of_this_run());
    size_t good = 0, bad = 0;
    for (int round = 0; round < 3000; ++round) {
        const size_t ranks = 1 + random() % 8;
        std::vector<RandomArray> arrays;
        for (size_t a = 1 + random() % 3; a > 0; --a)
            arrays.push_back(random_array(random, "a" + std::to_string(a), ranks));
        const ArrayPoints points(random());
        std::vector<Residues> expected;
        for (const auto& array : arrays) {
            const bool fits = may_be_committed(array);
            (fits ? good : bad)++;
            const auto fault = check_array(array.name, rank_pieces(array), static_cast<uint32_t>(ranks));
            ASSERT_EQ(!fault, fits) << (fault ? fault->sentence : "no fault was found");
            if (!fits) expected.push_back(points.hash_name(array.name));
        }
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(summary_of(random, points, arrays, ranks).faulty(), expected);
    }
    EXPECT_GT(good, 1000u);
    EXPECT_GT(bad, 500u);
}

TEST(ArrayCheckTest, AFingerprintIsTheSumOfItsElements) {
    std::mt19937_64 random(seed_of_this_run());
    constexpr uint64_t prime = (uint64_t{1} << 61) - 1;
    for (int round = 0; round < 50; ++round) {
        const ArrayPoints points(random());
        Box box;
        for (size_t d = 1 + random() % 4; d > 0; --d) {
            box.offset.push_back(random() % (round % 2 == 0 ? 10 : uint64_t{1} << 50));
            box.shape.push_back(random() % 6);
        }
        Residues sum = {};
        std::vector<uint64_t> index(box.shape.size(), 0);
        for (uint64_t n = 0; n < box.elements(); ++n) {
            Box element{box.offset, std::vector<uint64_t>(box.shape.size(), 1)};
            uint64_t rest = n;
            for (size_t d = 0; d < box.shape.size(); ++d, rest /= box.shape[d - 1])
                element.offset[d] += rest % box.shape[d];
            const Residues value = points.fingerprint(element);
            for (size_t i = 0; i < 2; ++i) sum[i] = (sum[i] + value[i]) % prime;
        }
        EXPECT_EQ(points.fingerprint(box), sum) << box_text(box);
    }
}

TEST(ArrayCheckTest, DigestsTellTablesApart) {
    const ArrayPoints points(7);
    const auto a = piece_of({8}, {0}, {4}), b = piece_of({8}, {4}, {4});
    const std::vector<NamedPiece> both{{"u", &a}, {"v", &b}}, other{{"u", &b}, {"v", &a}};
    EXPECT_EQ(points.digest(both), points.digest(both));
    EXPECT_NE(points.digest(both), points.digest(other));
    EXPECT_NE(points.digest(both), ArrayPoints(8).digest(both));
    EXPECT_EQ(points.digest({}), Residues{});
    const std::vector<Residues> none{{}, {}}, some{{}, points.digest(both)}, swapped{points.digest(both), {}};
    EXPECT_EQ(points.combine(none), Residues{});
    EXPECT_NE(points.combine(some), points.combine(swapped));
}

TEST(ArrayCheckTest, HostileSummariesAreRefused) {
    std::mt19937_64 random(seed_of_this_run());
    const ArrayPoints points(random());
    std::vector<RandomArray> arrays;
    for (int a = 0; a < 6; ++a) arrays.push_back(random_array(random, "a" + std::to_string(a), 4));
    const auto bytes = encode(summary_of(random, points, arrays, 4));
    for (size_t length = 0; length < bytes.size(); ++length)
        EXPECT_FALSE(decode_array_summary(std::span(bytes).first(length)).ok());
    for (int round = 0; round < 2000; ++round) {
        auto spoiled = bytes;
        spoiled[random() % spoiled.size()] ^= static_cast<std::byte>(1u << (random() % 8));
        if (auto decoded = decode_array_summary(spoiled); decoded.ok()) (void)decoded->faulty();
    }
}

// What the first save of many arrays on 512 nodes costs, and one with nothing changed, printed;
// TAILRACE_ARRAYS=10000 gives the figures of docs/performance.md. The root hears two answers of the size of
// one table, whatever the number of nodes.
TEST(ArrayCheckTest, CostOfManyArraysOnManyNodes) {
    const char* given_arrays = std::getenv("TAILRACE_ARRAYS");
    const size_t arrays = given_arrays != nullptr ? std::strtoull(given_arrays, nullptr, 10) : 200;
    constexpr size_t nodes = 512;
    const ArrayPoints points(1);
    std::vector<std::string> names;
    for (size_t a = 0; a < arrays; ++a)
        names.push_back("model.layers." + std::to_string(a) + ".self_attn.q_proj.weight");
    const auto seconds_since = [](std::clock_t start) {  // of the processor
        return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    };
    double digest_seconds = 0, table_seconds = 0, merge_seconds = 0, judge_seconds = 0;
    std::vector<Residues> digests(nodes);
    std::vector<std::vector<std::byte>> answers(nodes);
    size_t root_bytes = 0, root_messages = 0;
    for (size_t node = nodes; node-- > 0;) {
        std::vector<ArrayPiece> pieces(arrays, piece_of({nodes * 8, 4096}, {node * 8, 0}, {8, 4096}));
        std::vector<NamedPiece> table;
        for (size_t a = 0; a < arrays; ++a) table.push_back({names[a], &pieces[a]});
        auto start = std::clock();
        digests[node] = points.digest(table);
        digest_seconds += seconds_since(start);
        start = std::clock();
        ArraySummary summary;
        summary.add(points, table);
        table_seconds += seconds_since(start);
        start = std::clock();
        for (const size_t below : {2 * node + 1, 2 * node + 2}) {
            if (below >= nodes) continue;
            if (node == 0) {
                root_bytes += answers[below].size();
                ++root_messages;
            }
            auto decoded = decode_array_summary(std::exchange(answers[below], {}));
            ASSERT_TRUE(decoded.ok());
            summary.merge(std::move(*decoded));
        }
        if (node > 0) {
            answers[node] = encode(summary);
            continue;
        }
        merge_seconds = seconds_since(start);
        start = std::clock();
        EXPECT_TRUE(summary.faulty().empty());
        judge_seconds = seconds_since(start);
    }
    const auto start = std::clock();
    const Residues combined = points.combine(digests);
    EXPECT_NE(combined, Residues{});
    const double combine_seconds = seconds_since(start);
    EXPECT_EQ(root_messages, 2u);
    EXPECT_LT(root_bytes, 2 * arrays * 70);
    std::cout << "first save: digest " << digest_seconds / nodes * 1e3 << " ms a rank; a node's table "
              << table_seconds / nodes * 1e3 << " ms; root: " << root_messages << " answers, " << root_bytes
              << " bytes, merged in " << merge_seconds * 1e3 << " ms, judged in " << judge_seconds * 1e3
              << " ms\nunchanged: " << nodes * sizeof(Residues) << " bytes in the " << nodes
              << " messages of captures, compared in " << combine_seconds * 1e6 << " us\n";
}

}  // namespace
}  // namespace tailrace::internal
