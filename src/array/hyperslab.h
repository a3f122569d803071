// Hyperslabs: boxes of row-major arrays, their intersection, and copies between them. Pure.
//
// A box has one offset and one extent per dimension. The number of its elements must fit in 64
// bits; check_array_piece() makes sure of that for every saved piece.
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

// Empty when they do not overlap. A box with a zero extent overlaps nothing.
std::optional<Box> intersect(const Box& a, const Box& b);

// What is left of `from` without `taken`: disjoint boxes, at most two per dimension. Cuts along the
// slowest dimension come first, so that the boxes stay long in memory. Empty when nothing is left.
std::vector<Box> subtract(const Box& from, const Box& taken);

// Visits the contiguous runs of `part`, a box inside `whole`, in row-major order, with each run's
// start within `whole` and its count. Runs are as long as they can be. This is how `part` lies in
// the memory or file of `whole`.
void for_each_run(const Box& whole, const Box& part,
                  const std::function<void(uint64_t start_element, uint64_t element_count)>& visit);

// Visits the runs of `part` that are contiguous in `a` and in `b` alike, which both contain it,
// with each run's start in a, its start in b, and its count. The count is the same for all runs.
// Starts ascend in both.
void for_each_common_run(
    const Box& part, const Box& a, const Box& b,
    const std::function<void(uint64_t start_in_a, uint64_t start_in_b, uint64_t element_count)>& visit);

// The count of every such run.
uint64_t common_run_elements(const Box& part, const Box& a, const Box& b);

// Copies `part` from an array laid out as `source_box` to one laid out as `target_box`. Both
// contain `part`.
void copy_box(const Box& part, const Box& source_box, std::span<const std::byte> source,
              const Box& target_box, std::span<std::byte> target, uint64_t element_bytes);

}  // namespace tailrace::internal
