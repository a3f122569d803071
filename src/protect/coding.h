// Coding: parity over the captured parts of a set of nodes, and what was lost back from it. Pure.
//
// A member's logical part is a run of bytes; zeros stand behind it up to the length of the set's
// longest. With N members, of which K may be lost, it is cut into N - K pieces. There are N stripes.
// A stripe has N - K data pieces and K parity pieces, each of another member, and these rotate: no
// member is special, and each stores K pieces, that is K / (N - K) of the longest part.
//
//   stripe s:   parity row r          at member (s + r) mod N,      r = 0 .. K - 1
//               data column d         of member (s + K + d) mod N,  d = 0 .. N - K - 1
//   a member's data column d is the bytes [d * piece_bytes, (d + 1) * piece_bytes) of its part
//
// Row r of a stripe is the sum over d of factor(r, d) * column d, byte by byte in GF(2^8), polynomial
// 0x11D. With K = 1 all factors are 1, and the sum is an XOR. With more, factor(r, d) is the inverse
// of (N - K + r) xor d: any N - K pieces of a stripe determine the others (a Cauchy matrix).
//
// ISA-L does the arithmetic. Thread-safe: nothing changes after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tailrace::internal {

class SetCoding {
  public:
    static constexpr uint64_t piece_alignment = 4096;

    // The length of a piece, rounded up to whole pages.
    static uint64_t piece_bytes_of(uint32_t members, uint32_t parities, uint64_t longest_bytes);

    // 1 <= parities < members, members <= max_set_nodes. `longest_bytes` is the greatest length of a
    // logical part.
    SetCoding(uint32_t members, uint32_t parities, uint64_t longest_bytes);

    uint32_t members() const { return members_; }
    uint32_t parities() const { return parities_; }
    uint32_t columns() const { return members_ - parities_; }
    uint64_t piece_bytes() const { return piece_bytes_; }

    uint32_t stripe_of_row(uint32_t member, uint32_t row) const;        // whose parity it keeps
    uint32_t stripe_of_column(uint32_t member, uint32_t column) const;  // that has this data of its
    // Which column of a member the stripe has. Empty: the member keeps parity of it.
    std::optional<uint32_t> column_of(uint32_t member, uint32_t stripe) const;
    uint32_t member_of_row(uint32_t stripe, uint32_t row) const;
    uint32_t member_of_column(uint32_t stripe, uint32_t column) const;

    uint8_t factor(uint32_t row, uint32_t column) const;

    // Position p of a stripe is data column p, and from columns() on parity row p - columns().
    struct Term {
        uint32_t position = 0;
        uint8_t factor = 0;
    };
    // How data column `lost` comes from pieces that are there: it is the sum of factor * piece over
    // the terms. `there` has a flag per position. Empty if fewer than columns() pieces are there.
    std::optional<std::vector<Term>> recover(uint32_t lost, const std::vector<bool>& there) const;

  private:
    uint32_t members_, parities_;
    uint64_t piece_bytes_;
};

struct Product {
    uint8_t factor = 1;
    std::span<const std::byte> source;  // no longer than the target; zeros stand behind it
};
// target = the sum of the products.
void set_to_sum(std::span<const Product> products, std::span<std::byte> target);
// target = target + the sum of the products.
void add_sum(std::span<const Product> products, std::span<std::byte> target);

}  // namespace tailrace::internal
