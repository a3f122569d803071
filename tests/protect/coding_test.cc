#include "protect/coding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "format/hostile.h"
#include "format/redundancy.h"

namespace tailrace::internal {
namespace {

Bytes random_bytes(Random& random, size_t count) {
    Bytes bytes(count);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

// The whole set in memory: what each member captured, and the parity that each keeps, row by row.
struct CodedSet {
    SetCoding coding;
    std::vector<Bytes> parts;
    std::vector<std::vector<Bytes>> parity;

    std::span<const std::byte> data(uint32_t member, uint32_t column) const {
        const Bytes& part = parts[member];
        const size_t begin = std::min<size_t>(part.size(), column * coding.piece_bytes());
        return std::span(part).subspan(begin, std::min<size_t>(part.size() - begin, coding.piece_bytes()));
    }
    std::span<const std::byte> piece(uint32_t stripe, uint32_t position) const {
        if (position < coding.columns()) return data(coding.member_of_column(stripe, position), position);
        const uint32_t row = position - coding.columns();
        return parity[coding.member_of_row(stripe, row)][row];
    }
};

CodedSet code(uint32_t parities, std::vector<Bytes> parts) {
    size_t longest = 0;
    for (const auto& part : parts) longest = std::max(longest, part.size());
    const auto members = static_cast<uint32_t>(parts.size());
    CodedSet set{SetCoding(members, parities, longest), std::move(parts), {}};
    set.parity.resize(members);
    for (uint32_t member = 0; member < members; ++member)
        for (uint32_t row = 0; row < parities; ++row) {
            const uint32_t stripe = set.coding.stripe_of_row(member, row);
            std::vector<Product> products;
            for (uint32_t column = 0; column < set.coding.columns(); ++column)
                products.push_back({set.coding.factor(row, column),
                                    set.data(set.coding.member_of_column(stripe, column), column)});
            Bytes sum(set.coding.piece_bytes());
            set_to_sum(products, sum);
            set.parity[member].push_back(std::move(sum));
        }
    return set;
}

// The part of `member` from what the other members still have; empty if that is not enough.
std::optional<Bytes> recovered(const CodedSet& set, uint32_t member, const std::set<uint32_t>& lost) {
    const auto& coding = set.coding;
    Bytes part(coding.columns() * coding.piece_bytes());
    for (uint32_t column = 0; column < coding.columns(); ++column) {
        const uint32_t stripe = coding.stripe_of_column(member, column);
        std::vector<bool> there;
        for (uint32_t position = 0; position < coding.members(); ++position)
            there.push_back(!lost.contains(position < coding.columns()
                                               ? coding.member_of_column(stripe, position)
                                               : coding.member_of_row(stripe, position - coding.columns())));
        const auto terms = coding.recover(column, there);
        if (!terms) return std::nullopt;
        std::vector<Product> products;
        for (const auto& term : *terms) products.push_back({term.factor, set.piece(stripe, term.position)});
        set_to_sum(products, std::span(part).subspan(column * coding.piece_bytes(), coding.piece_bytes()));
    }
    const size_t bytes = set.parts[member].size();
    EXPECT_TRUE(std::all_of(part.begin() + static_cast<ptrdiff_t>(bytes), part.end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    part.resize(bytes);
    return part;
}

TEST(CodingTest, EachStripeHasEachMemberOnceAndEachMemberEachColumnOnce) {
    for (uint32_t members = 2; members <= 12; ++members)
        for (uint32_t parities = 1; parities < members; ++parities) {
            const SetCoding coding(members, parities, 100000);
            for (uint32_t stripe = 0; stripe < members; ++stripe) {
                std::set<uint32_t> seen;
                for (uint32_t column = 0; column < coding.columns(); ++column) {
                    const uint32_t member = coding.member_of_column(stripe, column);
                    seen.insert(member);
                    ASSERT_EQ(coding.stripe_of_column(member, column), stripe);
                    ASSERT_EQ(coding.column_of(member, stripe), column);
                }
                for (uint32_t row = 0; row < parities; ++row) {
                    const uint32_t member = coding.member_of_row(stripe, row);
                    seen.insert(member);
                    ASSERT_EQ(coding.stripe_of_row(member, row), stripe);
                    ASSERT_EQ(coding.column_of(member, stripe), std::nullopt);
                }
                ASSERT_EQ(seen.size(), members);
            }
        }
}

TEST(CodingTest, PiecesCoverTheLongestPartAndAreNoLongerThanNeeded) {
    for (const uint64_t longest :
         {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{4097}, uint64_t{1} << 61}) {
        const SetCoding coding(5, 2, longest);
        EXPECT_GE(coding.piece_bytes() * 3, longest);
        EXPECT_LT(coding.piece_bytes(), longest / 3 + 1 + SetCoding::piece_alignment);
        EXPECT_EQ(coding.piece_bytes() % SetCoding::piece_alignment, 0u);
    }
}

TEST(CodingTest, EverySubsetOfLossesComesBack) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (uint32_t members : {2u, 3u, 5u, 6u})
        for (uint32_t parities = 1; parities < members; ++parities) {
            std::vector<Bytes> parts;
            // One has nothing, one has ten times as much as the others.
            for (uint32_t member = 0; member < members; ++member)
                parts.push_back(random_bytes(random, member == 0 ? 0 : (member == 1 ? 10 : 1) * 9001));
            const auto set = code(parities, parts);
            for (uint32_t subset = 0; subset < (1u << members); ++subset) {
                std::set<uint32_t> lost;
                for (uint32_t member = 0; member < members; ++member)
                    if ((subset >> member & 1) != 0) lost.insert(member);
                for (const uint32_t member : lost) {
                    const auto part = recovered(set, member, lost);
                    ASSERT_EQ(part.has_value(), lost.size() <= parities);
                    if (part) {
                        ASSERT_TRUE(*part == set.parts[member]);
                    }
                }
            }
        }
}

TEST(CodingTest, RandomLossesOfLargeSetsComeBack) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int round = 0; round < 60; ++round) {
        const auto members = static_cast<uint32_t>(2 + below(random, round == 0 ? 1 : 30));
        const auto parities = static_cast<uint32_t>(1 + below(random, std::min(members - 1, 6u)));
        std::vector<Bytes> parts;
        for (uint32_t member = 0; member < members; ++member)
            parts.push_back(random_bytes(random, below(random, 30000)));
        const auto set = code(parities, parts);
        std::set<uint32_t> lost;
        while (lost.size() < parities) lost.insert(static_cast<uint32_t>(below(random, members)));
        for (const uint32_t member : lost) {
            const auto part = recovered(set, member, lost);
            ASSERT_TRUE(part && *part == set.parts[member]) << members << " members, member " << member;
        }
    }
}

TEST(CodingTest, TheLargestSetComesBack) {
    Random random(1);
    std::vector<Bytes> parts;
    for (uint32_t member = 0; member < max_set_nodes; ++member) parts.push_back(random_bytes(random, 500));
    const auto set = code(max_set_nodes / 2, parts);
    std::set<uint32_t> lost;
    for (uint32_t member = 0; member < max_set_nodes; member += 2) lost.insert(member);
    const auto part = recovered(set, 0, lost);
    ASSERT_TRUE(part && *part == set.parts[0]);
}

// Against GF(2^8) done bit by bit.
uint8_t times(uint8_t a, uint8_t b) {
    unsigned product = 0;
    for (int bit = 0; bit < 8; ++bit)
        if ((b >> bit & 1) != 0) product ^= static_cast<unsigned>(a) << bit;
    for (int bit = 15; bit >= 8; --bit)
        if ((product >> bit & 1) != 0) product ^= 0x11Du << (bit - 8);
    return static_cast<uint8_t>(product);
}

TEST(CodingTest, FactorsAreThoseOfTheFormatPage) {
    const SetCoding coding(7, 3, 1);
    for (uint32_t row = 0; row < 3; ++row)
        for (uint32_t column = 0; column < 4; ++column)
            EXPECT_EQ(times(coding.factor(row, column), static_cast<uint8_t>((4 + row) ^ column)), 1);
}

TEST(CodingTest, SumsOfEveryLengthAndPlaceAreRight) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int round = 0; round < 80; ++round) {
        const size_t bytes = below(random, 3) == 0 ? 32768 * below(random, 3) : below(random, 70000);
        const size_t count = below(random, 6);
        const bool ones = below(random, 2) == 0;
        std::vector<Bytes> memory;
        std::vector<Product> products;
        memory.reserve(count);
        for (size_t i = 0; i < count; ++i) {
            const size_t shift = below(random, 2) * below(random, 40);
            const size_t length = below(random, 2) == 0 ? bytes : below(random, bytes + 1);
            memory.push_back(random_bytes(random, shift + length));
            products.push_back({static_cast<uint8_t>(ones ? 1 : random()),
                                std::span<const std::byte>(memory.back()).subspan(shift)});
        }
        const Bytes before = random_bytes(random, bytes);
        Bytes right(bytes);
        for (const auto& product : products)
            for (size_t i = 0; i < product.source.size(); ++i)
                right[i] ^= static_cast<std::byte>(
                    times(product.factor, std::to_integer<uint8_t>(product.source[i])));
        Bytes sum = before;
        set_to_sum(products, sum);
        ASSERT_TRUE(sum == right);
        Bytes added = before;
        add_sum(products, added);
        for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(added[i], before[i] ^ right[i]);
    }
}

}  // namespace
}  // namespace tailrace::internal
