#include "array/random_arrays.h"

#include <algorithm>

#include "array/hyperslab.h"

namespace tailrace::internal::testing_support {

namespace {

Box whole_of(const std::vector<uint64_t>& shape) {
    return Box{std::vector<uint64_t>(shape.size(), 0), shape};
}
Box box_of_piece(const ArrayPiece& piece) {
    return Box{piece.offset, piece.local_shape};
}

// Disjoint boxes that cover `whole`, some of them empty.
std::vector<Box> decomposition(std::mt19937_64& random, const Box& whole, size_t count) {
    std::vector<Box> boxes{whole};
    while (boxes.size() < count) {
        Box& cut = boxes[random() % boxes.size()];
        const size_t d = random() % cut.shape.size();
        Box rest = cut;
        const uint64_t at = random() % (cut.shape[d] + 1);
        cut.shape[d] = at;
        rest.offset[d] += at;
        rest.shape[d] -= at;
        boxes.push_back(rest);
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    return boxes;
}

Box random_box_in(std::mt19937_64& random, const std::vector<uint64_t>& shape) {
    Box box;
    for (const uint64_t extent : shape) {
        box.offset.push_back(random() % (extent + 1));
        box.shape.push_back(random() % (extent - box.offset.back() + 1));
    }
    return box;
}

}  // namespace

RandomArray random_array(std::mt19937_64& random, const std::string& name, size_t ranks,
                         bool may_be_declared) {
    std::vector<uint64_t> shape;
    for (size_t d = 1 + random() % 3; d > 0; --d) shape.push_back(random() % 12 == 0 ? 0 : 1 + random() % 6);
    RandomArray array{name, {}};
    for (const Box& box : decomposition(random, whole_of(shape), ranks)) {
        const bool none = box.elements() == 0 && random() % 2 == 0;
        ArrayPiece piece{ElementType::uint32, shape, box.offset, box.shape};
        array.pieces.push_back(none ? std::nullopt : std::optional(piece));
    }
    const bool gaps = may_be_declared && random() % 6 == 0, overlap = may_be_declared && random() % 6 == 0;
    for (auto& piece : array.pieces)
        if (piece) {
            piece->may_have_gaps = gaps;
            piece->may_overlap = overlap;
        }
    if (random() % 5 < 2) return array;
    auto& one = array.pieces[random() % ranks];
    if (!one) return array;
    const Box box = random_box_in(random, shape);
    switch (random() % 7) {
        case 0:
            one.reset();
            break;
        case 1:
            one->may_have_gaps = may_be_declared && !one->may_have_gaps;
            break;
        case 2:
            one->type = ElementType::float32;
            break;
        case 3:
            one->global_shape[random() % shape.size()] += 1 + random() % 3;
            break;
        default:
            one->offset = box.offset;
            one->local_shape = box.shape;
            break;
    }
    return array;
}

std::vector<std::optional<uint32_t>> expected_whole(const RandomArray& array) {
    std::vector<std::optional<uint32_t>> whole;
    for (uint32_t rank = 0; rank < array.pieces.size(); ++rank) {
        const auto& piece = array.pieces[rank];
        if (!piece) continue;
        whole.resize(whole_of(piece->global_shape).elements());
        for_each_run(whole_of(piece->global_shape), box_of_piece(*piece),
                     [&](uint64_t start, uint64_t count) {
                         for (uint64_t at = start; at < start + count; ++at)
                             if (!whole[at]) whole[at] = element_value(at, rank);
                     });
    }
    return whole;
}

std::vector<uint32_t> memory_of(const ArrayPiece& piece, uint32_t rank) {
    std::vector<uint32_t> memory;
    for_each_run(whole_of(piece.global_shape), box_of_piece(piece), [&](uint64_t start, uint64_t count) {
        for (uint64_t at = start; at < start + count; ++at) memory.push_back(element_value(at, rank));
    });
    return memory;
}

bool may_be_committed(const RandomArray& array) {
    const ArrayPiece* first = nullptr;
    std::vector<size_t> counts;
    for (const auto& piece : array.pieces) {
        if (!piece) continue;
        if (first == nullptr) first = &*piece;
        if (piece->type != first->type || piece->global_shape != first->global_shape ||
            piece->may_have_gaps != first->may_have_gaps || piece->may_overlap != first->may_overlap)
            return false;
        counts.resize(whole_of(piece->global_shape).elements());
        for_each_run(whole_of(piece->global_shape), box_of_piece(*piece),
                     [&](uint64_t start, uint64_t count) {
                         for (uint64_t at = start; at < start + count; ++at) ++counts[at];
                     });
    }
    return first == nullptr || std::all_of(counts.begin(), counts.end(), [&](size_t count) {
               return (count > 0 || first->may_have_gaps) && (count < 2 || first->may_overlap);
           });
}

}  // namespace tailrace::internal::testing_support
