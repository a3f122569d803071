// Hyperslabs: boxes of row-major arrays, their intersection, and copying one into another. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tailrace {

struct Box {
    std::vector<uint64_t> offset;
    std::vector<uint64_t> shape;
    bool operator==(const Box&) const = default;
    uint64_t elements() const;
};

// Nothing when they do not overlap (a box with a zero extent overlaps nothing).
std::optional<Box> intersect(const Box& a, const Box& b);

// The contiguous runs of the elements of `part` (a box inside `whole`), in row-major order: start element
// within `whole`, and count. Runs are as long as they can be. This is how `part` lies in the memory or file
// of `whole`.
void for_each_run(const Box& whole, const Box& part,
                  const std::function<void(uint64_t start_element, uint64_t element_count)>& visit);

// Copies `part` from an array laid out as `source_box` to one laid out as `target_box`; part lies in both.
void copy_box(const Box& part, const Box& source_box, std::span<const std::byte> source,
              const Box& target_box, std::span<std::byte> target, uint64_t element_bytes);

}  // namespace tailrace
