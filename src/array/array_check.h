// Whether an array can be restored from the pieces that ranks save of it: exact geometry, and the sentence
// that says what is wrong. Whoever accepts or refuses an epoch by its arrays asks here. Pure.
//
// The rule. All ranks give an array the same type, global shape and declarations; and the pieces cover each
// element exactly once, but for what is declared: `may_have_gaps` allows elements in no piece, `may_overlap`
// elements in several (that of the lowest rank counts).
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

// One rank's piece; the piece must have passed check_array_piece.
struct RankPiece {
    uint32_t rank = 0;
    const ArrayPiece* piece = nullptr;
};

struct ArrayFault {
    enum class Kind { differing, gap, overlap, declared } kind = Kind::differing;
    std::string sentence;  // names the array, ranks and boxes
    // The others are refused when they are saved, and can be restored: by the rule for overlaps.
    bool unrestorable() const { return kind == Kind::differing || kind == Kind::gap; }
    // Of an epoch that is refused for it.
    Status refusal() const;
};

// The first fault of an array of which `pieces`, ascending by rank, are all there are of `rank_count` ranks.
std::optional<ArrayFault> check_array(std::string_view name, std::span<const RankPiece> pieces,
                                      uint32_t rank_count);

// All arrays of an epoch, whose manifests are given by rank: the first fault that keeps it from being
// committed.
std::optional<ArrayFault> check_arrays(std::span<const PartManifest* const> manifests);

// The first element (row-major) of an array of this shape that none of the boxes has, with what is missing
// around it. The boxes lie in the array.
std::optional<Box> first_gap(const std::vector<uint64_t>& shape, std::vector<Box> boxes);

// Two boxes with a common element, by their places in `boxes`, ascending.
std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<Box>& boxes);

}  // namespace tailrace::internal
