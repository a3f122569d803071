// Hyperslabs: boxes of row-major arrays, their intersection, and copying one into another. Pure.
//
// A box has one offset and one extent per dimension. Its elements must be countable in 64 bits, which
// check_array_piece() grants for every piece that was saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tailrace::internal {

struct Box {
    std::vector<uint64_t> offset;
    std::vector<uint64_t> shape;
    bool operator==(const Box&) const = default;
    uint64_t elements() const;
};

// Nothing when they do not overlap (a box with a zero extent overlaps nothing).
std::optional<Box> intersect(const Box& a, const Box& b);

// What is left of `from` without `taken`: disjoint boxes, at most two per dimension, cut along the slowest
// dimension first so that they stay long in memory. Empty when nothing is left.
std::vector<Box> subtract(const Box& from, const Box& taken);

// The contiguous runs of the elements of `part` (a box inside `whole`), in row-major order: start element
// within `whole`, and count. Runs are as long as they can be. This is how `part` lies in the memory or file
// of `whole`.
void for_each_run(const Box& whole, const Box& part,
                  const std::function<void(uint64_t start_element, uint64_t element_count)>& visit);

// The runs of `part` that are contiguous in `a` and in `b` alike (both contain it): where each starts in a,
// where in b, and its count, which is the same for all. Ascending in both.
void for_each_common_run(
    const Box& part, const Box& a, const Box& b,
    const std::function<void(uint64_t start_in_a, uint64_t start_in_b, uint64_t element_count)>& visit);

// The count of every such run.
uint64_t common_run_elements(const Box& part, const Box& a, const Box& b);

// Copies `part` from an array laid out as `source_box` to one laid out as `target_box`; part lies in both.
void copy_box(const Box& part, const Box& source_box, std::span<const std::byte> source,
              const Box& target_box, std::span<std::byte> target, uint64_t element_bytes);

}  // namespace tailrace::internal
