// Strides: how the bytes of an array's piece lie in the program's memory. They may be one block, the inside
// of a larger one with ghost cells around it, every other element, or dimensions in another order.
//
// A piece goes through the files as one row-major sequence of bytes. gather() takes a stretch of that
// sequence out of memory, scatter() puts one back, and neither touches a byte that is not the piece's. Pure
// apart from the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"

namespace tailrace::internal {

// What a program says of the memory that a piece is the inside of. Each vector has one entry per dimension or
// none.
struct MemoryLayout {
    std::vector<uint64_t> shape;         // of the memory, in elements; none: of the piece
    std::vector<uint64_t> offset;        // of the piece in the memory, in elements; none: zeros
    std::vector<uint64_t> stride_bytes;  // between neighbours; none: row-major in `shape`
    uint64_t bytes = 0;                  // there are; 0: not said

    bool empty() const { return shape.empty() && offset.empty() && stride_bytes.empty() && bytes == 0; }
};

struct Strides {
    struct Dimension {
        uint64_t count = 0;
        uint64_t stride_bytes = 0;
        bool operator==(const Dimension&) const = default;
    };
    // Runs of so many bytes that lie one after another, and how they lie, the slowest dimension first.
    // Without dimensions all bytes are one block.
    uint64_t run_bytes = 0;
    std::vector<Dimension> dimensions;

    bool one_block() const { return dimensions.empty(); }
    bool operator==(const Strides&) const = default;
};

// Where a piece lies: its first byte from the start of the memory, and the others from there.
struct PlaceInMemory {
    uint64_t first_byte = 0;
    Strides strides;
};

// invalid_argument when the layout does not fit the piece, which must have passed check_array_piece: entries
// that are not one per dimension, a piece that reaches beyond the memory, more bytes than are there or than
// 64 bits address, or strides by which two elements would share memory (each stride, in the order of their
// size, has to step over all that lies within it).
Result<PlaceInMemory> place_in_memory(const ArrayPiece& piece, const MemoryLayout& layout);

// The bytes [from, from + target.size()) of the sequence, from memory whose first element is at `memory`.
void gather(const std::byte* memory, const Strides& strides, uint64_t from, std::span<std::byte> target);

// The other way.
void scatter(std::span<const std::byte> source, std::byte* memory, const Strides& strides, uint64_t from);

// As gather, past the caches (base/stream_copy.h). Unless `crc` is null it gets the CRC32C of what was
// copied: each byte comes from memory once.
void stream_gather(const std::byte* memory, const Strides& strides, uint64_t from,
                   std::span<std::byte> target, uint32_t* crc);

// Where `bytes` from `from` on lie in memory one after another; null when they do not.
std::byte* one_after_another(std::byte* memory, const Strides& strides, uint64_t from, uint64_t bytes);

}  // namespace tailrace::internal
