// Strides: how the bytes of an array's piece lie in the program's memory. The piece may be one
// block, the inside of a larger block with ghost cells around it, every other element, or have its
// dimensions in another order.
//
// In the files a piece is one row-major sequence of bytes. gather() takes a stretch of that
// sequence out of memory, and scatter() puts one back. Neither touches a byte that does not belong
// to the piece. Pure apart from the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"

namespace tailrace::internal {

// How a program describes the memory around a piece. Each vector is empty or has one entry per
// dimension.
struct MemoryLayout {
    std::vector<uint64_t> shape;         // the memory's, in elements; empty: the piece's
    std::vector<uint64_t> offset;        // the piece's in the memory, in elements; empty: zeros
    std::vector<uint64_t> stride_bytes;  // between neighbours; empty: row-major in `shape`
    uint64_t bytes = 0;                  // the memory's size; 0: unknown

    bool empty() const { return shape.empty() && offset.empty() && stride_bytes.empty() && bytes == 0; }
};

struct Strides {
    struct Dimension {
        uint64_t count = 0;
        uint64_t stride_bytes = 0;
        bool operator==(const Dimension&) const = default;
    };
    // The bytes lie in runs of run_bytes. `dimensions` says where the runs lie, the slowest
    // dimension first. Without dimensions all bytes are one block.
    uint64_t run_bytes = 0;
    std::vector<Dimension> dimensions;

    bool one_block() const { return dimensions.empty(); }
    bool operator==(const Strides&) const = default;
};

// Where a piece lies: where its first byte is, from the start of the memory, and how the others lie
// from there.
struct PlaceInMemory {
    uint64_t first_byte = 0;
    Strides strides;
};

// Finds where a piece, which must have passed check_array_piece, lies in memory with this layout.
// invalid_argument if the two do not fit:
//   - a vector has entries, but not one per dimension;
//   - the piece reaches beyond the memory's shape, or the shape beyond its bytes or 64 bits;
//   - two elements would share memory. (Each stride, in ascending order, has to step over all that
//     lies within it.)
Result<PlaceInMemory> place_in_memory(const ArrayPiece& piece, const MemoryLayout& layout);

// Copies the bytes [from, from + target.size()) of the sequence to `target`. The piece's first
// element lies at `memory`.
void gather(const std::byte* memory, const Strides& strides, uint64_t from, std::span<std::byte> target);

// Copies in the other direction.
void scatter(std::span<const std::byte> source, std::byte* memory, const Strides& strides, uint64_t from);

// As gather, but copies past the caches (memory/stream_copy.h). Unless `crc` is null, it gets the
// CRC32C of the copied bytes, so that each byte comes from memory once.
void stream_gather(const std::byte* memory, const Strides& strides, uint64_t from,
                   std::span<std::byte> target, uint32_t* crc);

// Where the `bytes` from `from` on lie in memory, if they lie one after another; otherwise null.
std::byte* one_after_another(std::byte* memory, const Strides& strides, uint64_t from, uint64_t bytes);

}  // namespace tailrace::internal
