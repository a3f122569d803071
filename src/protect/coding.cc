#include "protect/coding.h"

#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/invariant.h"
#include "base/units.h"
#include "format/redundancy.h"

namespace tailrace::internal {

namespace {

constexpr size_t table_bytes = 32;    // of ISA-L, for each factor
constexpr size_t granule_bytes = 64;  // ISA-L's kernels want at least so many bytes
// A piece of the target that stays in the processor's first cache while sources are added to it.
constexpr size_t tile_bytes = 32 * KiB;
constexpr size_t xor_alignment = 32;

unsigned char* raw(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}
// ISA-L takes pointers to mutable bytes and does not change what it reads.
unsigned char* raw(const std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes));
}

bool aligned(const std::byte* bytes) {
    return reinterpret_cast<uintptr_t>(bytes) % xor_alignment == 0;
}

using Tables = std::vector<std::array<unsigned char, table_bytes>>;

Tables tables_of(std::span<const Product> products) {
    Tables tables(products.size());
    for (size_t i = 0; i < products.size(); ++i) gf_vect_mul_init(products[i].factor, tables[i].data());
    return tables;
}

void add_xor(std::span<const std::byte> source, std::byte* target) {
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= source.size(); at += sizeof(uint64_t)) {
        uint64_t a = 0, b = 0;
        std::memcpy(&a, source.data() + at, sizeof a);
        std::memcpy(&b, target + at, sizeof b);
        a ^= b;
        std::memcpy(target + at, &a, sizeof a);
    }
    for (; at < source.size(); ++at) target[at] ^= source[at];
}

void add_product(uint8_t factor, std::array<unsigned char, table_bytes>& table,
                 std::span<const std::byte> source, std::byte* target) {
    if (factor == 1) return add_xor(source, target);
    const size_t whole = source.size() / granule_bytes * granule_bytes;
    if (whole > 0) gf_vect_mad(static_cast<int>(whole), 1, 0, table.data(), raw(source.data()), raw(target));
    for (size_t at = whole; at < source.size(); ++at)
        target[at] ^= static_cast<std::byte>(gf_mul(factor, std::to_integer<unsigned char>(source[at])));
}

// The part of a source that lies in [begin, begin + bytes) of the target.
std::span<const std::byte> in_tile(const Product& product, size_t begin, size_t bytes) {
    if (product.source.size() <= begin) return {};
    return product.source.subspan(begin, std::min(bytes, product.source.size() - begin));
}

// ISA-L's own sums over many sources, where these all cover the tile. Returns whether it was one.
bool dense_sum(std::vector<unsigned char*>& sources, std::vector<unsigned char>& tables, bool all_ones,
               size_t bytes, std::byte* target) {
    if (all_ones && sources.size() == 1) {
        std::memcpy(target, sources.front(), bytes);
        return true;
    }
    if (bytes % granule_bytes != 0 || sources.size() < 2) return false;
    if (!all_ones) {
        gf_vect_dot_prod(static_cast<int>(bytes), static_cast<int>(sources.size()), tables.data(),
                         sources.data(), raw(target));
        return true;
    }
    const auto is_aligned = [](const unsigned char* at) {
        return aligned(reinterpret_cast<const std::byte*>(at));
    };
    if (!aligned(target) || !std::all_of(sources.begin(), sources.end(), is_aligned)) return false;
    std::vector<void*> vectors(sources.begin(), sources.end());
    vectors.push_back(target);
    return xor_gen(static_cast<int>(vectors.size()), static_cast<int>(bytes), vectors.data()) == 0;
}

}  // namespace

uint64_t SetCoding::piece_bytes_of(uint32_t members, uint32_t parities, uint64_t longest_bytes) {
    const uint64_t pieces = members - parities;
    return align_up(longest_bytes / pieces + (longest_bytes % pieces != 0), piece_alignment);
}

SetCoding::SetCoding(uint32_t members, uint32_t parities, uint64_t longest_bytes)
    : members_(members), parities_(parities) {
    INVARIANT(parities >= 1 && parities < members && members <= max_set_nodes);
    piece_bytes_ = piece_bytes_of(members, parities, longest_bytes);
}

uint8_t SetCoding::factor(uint32_t row, uint32_t column) const {
    return parities_ == 1 ? 1 : gf_inv(static_cast<uint8_t>((columns() + row) ^ column));
}

std::optional<uint32_t> SetCoding::column_of(uint32_t member, uint32_t stripe) const {
    const uint32_t column = (member + 2 * members_ - parities_ - stripe) % members_;
    return column < columns() ? std::optional(column) : std::nullopt;
}

uint32_t SetCoding::stripe_of_row(uint32_t member, uint32_t row) const {
    return (member + members_ - row) % members_;
}
uint32_t SetCoding::stripe_of_column(uint32_t member, uint32_t column) const {
    return (member + 2 * members_ - parities_ - column) % members_;
}
uint32_t SetCoding::member_of_row(uint32_t stripe, uint32_t row) const {
    return (stripe + row) % members_;
}
uint32_t SetCoding::member_of_column(uint32_t stripe, uint32_t column) const {
    return (stripe + parities_ + column) % members_;
}

// The first columns() pieces that are there are rows of the generator (identity above the factors)
// times the data. The row `lost` of that square's inverse gives the terms.
std::optional<std::vector<SetCoding::Term>> SetCoding::recover(uint32_t lost,
                                                               const std::vector<bool>& there) const {
    const uint32_t size = columns();
    std::vector<uint32_t> used;
    for (uint32_t position = 0; position < members_ && used.size() < size; ++position)
        if (there[position]) used.push_back(position);
    if (used.size() < size) return std::nullopt;
    std::vector<unsigned char> square(size_t{size} * size), inverse(square.size());
    for (uint32_t i = 0; i < size; ++i)
        for (uint32_t column = 0; column < size; ++column)
            square[i * size + column] = used[i] >= size     ? factor(used[i] - size, column)
                                        : used[i] == column ? 1
                                                            : 0;
    const bool singular = gf_invert_matrix(square.data(), inverse.data(), static_cast<int>(size)) != 0;
    INVARIANT(!singular);
    std::vector<Term> terms;
    for (uint32_t i = 0; i < size; ++i)
        if (const uint8_t factor = inverse[lost * size + i]; factor != 0) terms.push_back({used[i], factor});
    return terms;
}

void add_sum(std::span<const Product> products, std::span<std::byte> target) {
    auto tables = tables_of(products);
    for (size_t begin = 0; begin < target.size(); begin += tile_bytes) {
        const size_t bytes = std::min(tile_bytes, target.size() - begin);
        for (size_t i = 0; i < products.size(); ++i)
            if (const auto source = in_tile(products[i], begin, bytes); !source.empty())
                add_product(products[i].factor, tables[i], source, target.data() + begin);
    }
}

void set_to_sum(std::span<const Product> products, std::span<std::byte> target) {
    auto tables = tables_of(products);
    const bool all_ones =
        std::all_of(products.begin(), products.end(), [](const Product& p) { return p.factor == 1; });
    std::vector<unsigned char*> dense;
    std::vector<unsigned char> dense_tables;
    for (size_t begin = 0; begin < target.size(); begin += tile_bytes) {
        const size_t bytes = std::min(tile_bytes, target.size() - begin);
        dense.clear();
        dense_tables.clear();
        for (size_t i = 0; i < products.size(); ++i) {
            if (products[i].source.size() < begin + bytes) continue;
            dense.push_back(raw(products[i].source.data() + begin));
            dense_tables.insert(dense_tables.end(), tables[i].begin(), tables[i].end());
        }
        const bool summed = dense_sum(dense, dense_tables, all_ones, bytes, target.data() + begin);
        if (!summed) std::memset(target.data() + begin, 0, bytes);
        for (size_t i = 0; i < products.size(); ++i) {
            const auto source = in_tile(products[i], begin, bytes);
            if (source.empty() || (summed && source.size() == bytes)) continue;
            add_product(products[i].factor, tables[i], source, target.data() + begin);
        }
    }
}

}  // namespace tailrace::internal
