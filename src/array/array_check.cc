#include "array/array_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

namespace tailrace::internal {

namespace {

bool is_empty(const Box& box) {
    return std::find(box.shape.begin(), box.shape.end(), 0) != box.shape.end();
}

std::string type_and_shape(const ArrayPiece& piece) {
    if (piece.is_list)
        return fmt::format("a list of {} [{}]", element_type_name(piece.type),
                           fmt::join(std::span(piece.global_shape).subspan(1), ", "));
    return fmt::format("{} [{}]", element_type_name(piece.type), fmt::join(piece.global_shape, ", "));
}

std::optional<ArrayFault> first_difference(std::string_view name, std::span<const RankPiece> pieces) {
    const RankPiece& first = pieces.front();
    for (const RankPiece& other : pieces)
        if (other.piece->type != first.piece->type || other.piece->is_list != first.piece->is_list ||
            common_shape(*other.piece) != common_shape(*first.piece))
            return ArrayFault{
                ArrayFault::Kind::differing,
                fmt::format("array '{}' cannot be put together: rank {} saves {} of {}, and rank "
                            "{} saves {} of {}",
                            name, first.rank, box_text(box_of(*first.piece)), type_and_shape(*first.piece),
                            other.rank, box_text(box_of(*other.piece)), type_and_shape(*other.piece))};
    return std::nullopt;
}

std::optional<ArrayFault> first_declared_otherwise(std::string_view name, std::span<const RankPiece> pieces) {
    const RankPiece* first = &pieces.front();
    for (const RankPiece& one : pieces) {
        const RankPiece* with = &one;
        const RankPiece* without = first;
        const bool gaps = one.piece->may_have_gaps != first->piece->may_have_gaps;
        if (!gaps && one.piece->may_overlap == first->piece->may_overlap) continue;
        if (gaps ? first->piece->may_have_gaps : first->piece->may_overlap) std::swap(with, without);
        return ArrayFault{
            ArrayFault::Kind::declared,
            fmt::format(
                "array '{}': rank {}, with {}, declares that it may {}, and rank {}, with {}, does not. "
                "All ranks must declare the same",
                name, with->rank, box_text(box_of(*with->piece)), gaps ? "have gaps" : "overlap",
                without->rank, box_text(box_of(*without->piece)))};
    }
    return std::nullopt;
}

// The items of all ranks are counted, and addressed, in 64 bits.
std::optional<ArrayFault> list_too_long(std::string_view name, std::span<const RankPiece> pieces) {
    uint64_t items = 0, bytes = 0;
    for (const RankPiece& one : pieces)
        if (__builtin_add_overflow(items, one.piece->local_shape.front(), &items) ||
            __builtin_add_overflow(bytes, array_bytes(*one.piece), &bytes))
            return ArrayFault{ArrayFault::Kind::differing,
                              fmt::format("list '{}' has more items or bytes than 64 bits can count", name)};
    return std::nullopt;
}

// How many elements lie between the boxes, summed over dimensions.
uint64_t distance(const Box& a, const Box& b) {
    uint64_t sum = 0;
    for (size_t d = 0; d < a.shape.size(); ++d) {
        const uint64_t end_a = a.offset[d] + a.shape[d], end_b = b.offset[d] + b.shape[d];
        if (end_a < b.offset[d])
            sum += b.offset[d] - end_a;
        else if (end_b < a.offset[d])
            sum += a.offset[d] - end_b;
    }
    return sum;
}

std::string gap_sentence(std::string_view name, std::span<const RankPiece> pieces, uint32_t rank_count,
                         const Box& gap) {
    const RankPiece* nearest = nullptr;
    for (const RankPiece& one : pieces) {
        if (is_empty(box_of(*one.piece))) continue;
        if (nearest == nullptr || distance(box_of(*one.piece), gap) < distance(box_of(*nearest->piece), gap))
            nearest = &one;
    }
    const std::string near =
        nearest == nullptr
            ? fmt::format("the pieces of rank {} and of all others are empty", pieces.front().rank)
            : fmt::format("the nearest is {} of rank {}", box_text(box_of(*nearest->piece)), nearest->rank);
    std::string without;
    for (uint32_t rank = 0; rank < rank_count && without.empty(); ++rank)
        if (rank >= pieces.size() || pieces[rank].rank != rank)
            without = fmt::format(", and rank {} has no piece", rank);
    return fmt::format(
        "elements {} of array '{}' ({}) are in no rank's piece: {}{}. If that is meant, declare on every "
        "rank that the array may have gaps (TAILRACE_ARRAY_GAPS; in Python gaps=True)",
        box_text(gap), name, type_and_shape(*pieces.front().piece), near, without);
}

}  // namespace

std::vector<uint64_t> common_shape(const ArrayPiece& piece) {
    auto shape = piece.global_shape;
    if (piece.is_list) shape.front() = 0;
    return shape;
}

std::string box_text(const Box& box) {
    std::vector<std::string> ranges;
    for (size_t d = 0; d < box.shape.size(); ++d)
        ranges.push_back(fmt::format("{}:{}", box.offset[d], box.offset[d] + box.shape[d]));
    return fmt::format("[{}]", fmt::join(ranges, ", "));
}

Status ArrayFault::refusal() const {
    return Status(Code::invalid_argument, sentence + ". So the epoch was refused before it was committed");
}

std::optional<ArrayFault> check_array(std::string_view name, std::span<const RankPiece> pieces,
                                      uint32_t rank_count) {
    if (pieces.empty()) return std::nullopt;
    if (auto difference = first_difference(name, pieces)) return difference;
    const ArrayPiece& first = *pieces.front().piece;
    if (first.is_list) return list_too_long(name, pieces);
    const auto all_declare = [&](bool ArrayPiece::*declaration) {
        return std::all_of(pieces.begin(), pieces.end(),
                           [&](const RankPiece& one) { return one.piece->*declaration; });
    };
    std::vector<Box> boxes;
    for (const RankPiece& one : pieces) boxes.push_back(box_of(*one.piece));
    if (!all_declare(&ArrayPiece::may_have_gaps))
        if (const auto gap = first_gap(first.global_shape, boxes))
            return ArrayFault{ArrayFault::Kind::gap, gap_sentence(name, pieces, rank_count, *gap)};
    const auto overlap = all_declare(&ArrayPiece::may_overlap) ? std::nullopt : first_overlap(boxes);
    if (!overlap) return first_declared_otherwise(name, pieces);
    const auto [a, b] = *overlap;
    return ArrayFault{
        ArrayFault::Kind::overlap,
        fmt::format(
            "elements {} of array '{}' ({}) are in two pieces: {} of rank {} and {} of rank {}. If that "
            "is meant, declare on every rank that pieces may overlap (TAILRACE_ARRAY_OVERLAP; in Python "
            "overlap=True)",
            box_text(*intersect(boxes[a], boxes[b])), name, type_and_shape(first), box_text(boxes[a]),
            pieces[a].rank, box_text(boxes[b]), pieces[b].rank)};
}

std::optional<ArrayFault> check_arrays(std::span<const PartManifest* const> manifests) {
    // The arrays, in order of their first appearance.
    std::vector<std::pair<std::string_view, std::vector<RankPiece>>> arrays;
    std::unordered_map<std::string_view, size_t> by_name;
    for (uint32_t rank = 0; rank < manifests.size(); ++rank)
        for (const Region& region : manifests[rank]->regions) {
            if (!region.array) continue;
            const auto [found, is_new] = by_name.try_emplace(region.name, arrays.size());
            if (is_new) arrays.push_back({region.name, {}});
            arrays[found->second].second.push_back({rank, &*region.array});
        }
    for (const auto& [name, pieces] : arrays)
        if (auto fault = check_array(name, pieces, static_cast<uint32_t>(manifests.size()))) return fault;
    return std::nullopt;
}

// Takes pieces off in row-major order of their first elements. If they are a decomposition, what is
// still open is then a front of few boxes.
std::optional<Box> first_gap(const std::vector<uint64_t>& shape, std::vector<Box> boxes) {
    const Box whole{std::vector<uint64_t>(shape.size(), 0), shape};
    if (is_empty(whole)) return std::nullopt;
    std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.offset < b.offset; });
    std::vector<Box> open{whole};
    for (const Box& box : boxes) {
        if (open.empty()) return std::nullopt;
        if (is_empty(box)) continue;
        std::vector<Box> still_open;
        for (Box& hole : open) {
            if (!intersect(hole, box)) {
                still_open.push_back(std::move(hole));
                continue;
            }
            for (Box& rest : subtract(hole, box)) still_open.push_back(std::move(rest));
        }
        open = std::move(still_open);
    }
    if (open.empty()) return std::nullopt;
    return *std::min_element(open.begin(), open.end(),
                             [](const Box& a, const Box& b) { return a.offset < b.offset; });
}

// Sweeps along the first dimension. Only boxes that are open there at the same time can overlap.
std::optional<std::pair<size_t, size_t>> first_overlap(const std::vector<Box>& boxes) {
    std::vector<size_t> order;
    for (size_t i = 0; i < boxes.size(); ++i)
        if (!is_empty(boxes[i])) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return boxes[a].offset[0] < boxes[b].offset[0]; });
    std::vector<size_t> open;
    for (const size_t next : order) {
        std::erase_if(open, [&](size_t before) {
            return boxes[before].offset[0] + boxes[before].shape[0] <= boxes[next].offset[0];
        });
        for (const size_t before : open)
            if (intersect(boxes[before], boxes[next])) return std::minmax(before, next);
        open.push_back(next);
    }
    return std::nullopt;
}

}  // namespace tailrace::internal
