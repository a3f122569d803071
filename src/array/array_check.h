// Whether an array can be restored from the pieces that ranks save of it: exact geometry, and the
// sentence that says what is wrong. All code that accepts or refuses an epoch by its arrays asks
// here. Pure.
//
// The rule: all ranks give an array the same type, global shape and declarations, and the pieces
// cover each element exactly once. There are two exceptions. `may_have_gaps` declares that some
// elements are in no piece. `may_overlap` declares that some are in several pieces; the lowest
// rank's then counts.
//
// A list has another rule, because its pieces are put one after another: all ranks declare a list,
// with the same type and the same extents of all dimensions but the first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array/hyperslab.h"
#include "base/status.h"
#include "format/manifest.h"

namespace tailrace::internal {

inline Box box_of(const ArrayPiece& piece) {
    return Box{piece.offset, piece.local_shape};
}
std::string box_text(const Box& box);  // "[0:4, 2:3]"

// One rank's piece, which must have passed check_array_piece.
struct RankPiece {
    uint32_t rank = 0;
    const ArrayPiece* piece = nullptr;
};

struct ArrayFault {
    enum class Kind { differing, gap, overlap, declared } kind = Kind::differing;
    std::string sentence;  // names the array, ranks and boxes
    // Faults of the other kinds are refused when they are saved, but can be restored: the lowest
    // rank's elements count.
    bool unrestorable() const { return kind == Kind::differing || kind == Kind::gap; }
    // The failure of an epoch that is refused for this fault.
    Status refusal() const;
};

// What all ranks' pieces have in common: the global shape. Of a list it has 0 as its first extent,
// because the ranks' counts of items differ.
std::vector<uint64_t> common_shape(const ArrayPiece& piece);

// The first fault of an array. `pieces` are all pieces of it that `rank_count` ranks have,
// ascending by rank.
std::optional<ArrayFault> check_array(std::string_view name, std::span<const RankPiece> pieces,
                                      uint32_t rank_count);

// Checks all arrays of an epoch, whose manifests are given by rank. Returns the first fault that
// keeps it from being committed.
std::optional<ArrayFault> check_arrays(std::span<const PartManifest* const> manifests);

// Finds the first element (row-major) of an array of this shape that none of the boxes has. Returns
// it with what is missing around it. The boxes lie in the array.
std::optional<Box> first_gap(const std::vector<uint64_t>& shape, std::vector<Box> boxes);

// Two boxes with a common element, as ascending indices into `boxes`.
std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<Box>& boxes);

}  // namespace tailrace::internal
