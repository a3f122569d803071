// Memory of a region that the program moves and resizes by itself, such as a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "format/manifest.h"

namespace tailrace::internal {

struct ResizableMemory {
    // Where it lies now. A save and a restore ask once each.
    std::function<std::span<std::byte>()> find;
    // Called by a restore, before find. False: the memory could not be made so large.
    std::function<bool(uint64_t bytes)> resize;
};

// What a list consists of: items of `width` elements.
struct ListItem {
    ElementType type = ElementType::bytes;
    uint64_t width = 1;

    uint64_t bytes() const { return element_bytes(type) * width; }
    // The shape of `count` items: one dimension, or two if an item has several elements.
    std::vector<uint64_t> shape(uint64_t count) const {
        if (width == 1) return {count};
        return {count, width};
    }
};

// The rank that gets item `index` of a list of `items` when `rank_count` ranks restore it.
using ListOwner = std::function<int(uint64_t index, uint64_t items, int rank_count)>;

}  // namespace tailrace::internal
