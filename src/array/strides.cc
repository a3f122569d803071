#include "array/strides.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "base/invariant.h"
#include "base/units.h"
#include "memory/stream_copy.h"

namespace tailrace::internal {

namespace {

// Runs of at least this length are worth a streaming copy of their own. Shorter ones are first put
// together in the cache.
constexpr uint64_t long_run_bytes = 64 * KiB;
constexpr uint64_t together_bytes = 64 * KiB;  // a buffer of each thread that gathers

constexpr uint64_t max_bytes = uint64_t{INT64_MAX};  // the largest distance between two addresses

// Adds count * step to `sum`. Returns false if the result is beyond max_bytes.
bool add_product(uint64_t& sum, uint64_t count, uint64_t step) {
    uint64_t product = 0;
    return !__builtin_mul_overflow(count, step, &product) && !__builtin_add_overflow(sum, product, &sum) &&
           sum <= max_bytes;
}

Status too_large() {
    return Status(Code::invalid_argument,
                  "the memory of an array's piece exceeds the address space; nothing was done");
}

// Visits the runs of [from, from + bytes): visit(where in memory, bytes of each run, how many,
// stride). Whole runs along the innermost dimension come together, and cut ones alone.
template <class Visit>
void walk(const Strides& strides, uint64_t from, uint64_t bytes, const Visit& visit) {
    const auto& dimensions = strides.dimensions;
    if (bytes == 0) return;
    if (dimensions.empty()) {
        visit(from, bytes, uint64_t{1}, uint64_t{0});
        return;
    }
    std::array<uint64_t, max_dimensions> index{};
    const size_t inner = dimensions.size() - 1;
    uint64_t at = 0;
    uint64_t run = from / strides.run_bytes;
    for (size_t d = dimensions.size(); d-- > 0;) {
        index[d] = run % dimensions[d].count;
        run /= dimensions[d].count;
        at += index[d] * dimensions[d].stride_bytes;
    }
    INVARIANT(run == 0);
    uint64_t into = from % strides.run_bytes;
    while (bytes > 0) {
        uint64_t runs = 1;
        uint64_t length = std::min(bytes, strides.run_bytes - into);
        if (length == strides.run_bytes)
            runs = std::min(bytes / length, dimensions[inner].count - index[inner]);
        visit(at + into, length, runs, dimensions[inner].stride_bytes);
        bytes -= runs * length;
        into = 0;
        index[inner] += runs;
        at += runs * dimensions[inner].stride_bytes;
        for (size_t d = inner; d > 0 && index[d] == dimensions[d].count; --d) {
            at -= dimensions[d].count * dimensions[d].stride_bytes;
            index[d] = 0;
            ++index[d - 1];
            at += dimensions[d - 1].stride_bytes;
        }
    }
}

// Copies `count` runs of `bytes` each. For runs as short as an element, the compiler knows the
// size.
template <uint64_t bytes>
void copy_elements(const std::byte* source, uint64_t source_stride, std::byte* target, uint64_t target_stride,
                   uint64_t count) {
    for (uint64_t i = 0; i < count; ++i)
        std::memcpy(target + i * target_stride, source + i * source_stride, bytes);
}

void copy_runs(const std::byte* source, uint64_t source_stride, std::byte* target, uint64_t target_stride,
               uint64_t bytes, uint64_t count) {
    switch (bytes) {
        case 1:
            return copy_elements<1>(source, source_stride, target, target_stride, count);
        case 2:
            return copy_elements<2>(source, source_stride, target, target_stride, count);
        case 4:
            return copy_elements<4>(source, source_stride, target, target_stride, count);
        case 8:
            return copy_elements<8>(source, source_stride, target, target_stride, count);
        case 16:
            return copy_elements<16>(source, source_stride, target, target_stride, count);
        default:
            for (uint64_t i = 0; i < count; ++i)
                std::memcpy(target + i * target_stride, source + i * source_stride, bytes);
    }
}

// Whether no two elements of the piece share memory. If they did, a restore would overwrite one by
// the other.
bool elements_are_apart(const ArrayPiece& piece, const std::vector<uint64_t>& stride_bytes) {
    std::vector<size_t> order;
    for (size_t d = 0; d < stride_bytes.size(); ++d)
        if (piece.local_shape[d] > 1) order.push_back(d);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return stride_bytes[a] < stride_bytes[b]; });
    uint64_t within = element_bytes(piece.type);
    for (const size_t d : order) {
        if (stride_bytes[d] < within) return false;
        within += (piece.local_shape[d] - 1) * stride_bytes[d];  // fits, as the caller has checked
    }
    return true;
}

// Makes runs as long, and dimensions as few, as possible.
Strides merge(const ArrayPiece& piece, const std::vector<uint64_t>& stride_bytes) {
    Strides strides;
    strides.run_bytes = element_bytes(piece.type);
    std::vector<Strides::Dimension> fastest_first;
    for (size_t d = stride_bytes.size(); d-- > 0;) {
        const Strides::Dimension one{piece.local_shape[d], stride_bytes[d]};
        if (one.count == 1) continue;
        if (fastest_first.empty() && one.stride_bytes == strides.run_bytes)
            strides.run_bytes *= one.count;
        else if (!fastest_first.empty() &&
                 one.stride_bytes == fastest_first.back().count * fastest_first.back().stride_bytes)
            fastest_first.back().count *= one.count;
        else
            fastest_first.push_back(one);
    }
    strides.dimensions.assign(fastest_first.rbegin(), fastest_first.rend());
    return strides;
}

}  // namespace

Result<PlaceInMemory> place_in_memory(const ArrayPiece& piece, const MemoryLayout& layout) {
    const size_t dimensions = piece.local_shape.size();
    for (const auto* values : {&layout.shape, &layout.offset, &layout.stride_bytes})
        if (!values->empty() && values->size() != dimensions)
            return Status(Code::invalid_argument,
                          fmt::format("the memory of an array's piece is described in {} dimensions, but the "
                                      "array has {}; nothing was done",
                                      values->size(), dimensions));
    const std::vector<uint64_t> offset =
        layout.offset.empty() ? std::vector<uint64_t>(dimensions, 0) : layout.offset;
    std::vector<uint64_t> shape = layout.shape;
    if (shape.empty()) {
        if (!layout.offset.empty() && layout.stride_bytes.empty())
            return Status(
                Code::invalid_argument,
                "the offset of an array's piece in its memory needs the memory's shape, or strides; "
                "nothing was done");
        for (size_t d = 0; d < dimensions; ++d)
            if (__builtin_add_overflow(offset[d], piece.local_shape[d], &shape.emplace_back()))
                return too_large();
    }
    for (size_t d = 0; d < dimensions; ++d)
        if (offset[d] > shape[d] || piece.local_shape[d] > shape[d] - offset[d])
            return Status(Code::invalid_argument,
                          fmt::format("in dimension {} the memory of an array has {} elements, but the piece "
                                      "has {} from element {} on; nothing was done",
                                      d, shape[d], piece.local_shape[d], offset[d]));

    const uint64_t element = element_bytes(piece.type);
    std::vector<uint64_t> stride_bytes = layout.stride_bytes;
    if (stride_bytes.empty()) {
        stride_bytes.assign(dimensions, element);
        for (size_t d = dimensions; d-- > 1;)
            if (__builtin_mul_overflow(stride_bytes[d], shape[d], &stride_bytes[d - 1])) return too_large();
    }
    PlaceInMemory place;
    if (std::find(shape.begin(), shape.end(), 0u) == shape.end()) {
        uint64_t end = element;
        for (size_t d = 0; d < dimensions; ++d)
            if (!add_product(end, shape[d] - 1, stride_bytes[d])) return too_large();
        if (layout.bytes > 0 && end > layout.bytes)
            return Status(Code::invalid_argument,
                          fmt::format("the memory of an array has {} bytes, but with these strides its shape "
                                      "({}) needs {}; nothing was done",
                                      layout.bytes, fmt::join(shape, " x "), end));
    }
    if (array_bytes(piece) == 0) return place;
    for (size_t d = 0; d < dimensions; ++d) place.first_byte += offset[d] * stride_bytes[d];
    if (!elements_are_apart(piece, stride_bytes))
        return Status(
            Code::invalid_argument,
            fmt::format("with strides of {} bytes, elements of an array's piece ({} of {} bytes) would "
                        "share memory; nothing was done",
                        fmt::join(stride_bytes, ", "), fmt::join(piece.local_shape, " x "), element));
    place.strides = merge(piece, stride_bytes);
    return place;
}

void gather(const std::byte* memory, const Strides& strides, uint64_t from, std::span<std::byte> target) {
    std::byte* to = target.data();
    walk(strides, from, target.size(), [&](uint64_t at, uint64_t bytes, uint64_t count, uint64_t stride) {
        copy_runs(memory + at, stride, to, bytes, bytes, count);
        to += count * bytes;
    });
}

void scatter(std::span<const std::byte> source, std::byte* memory, const Strides& strides, uint64_t from) {
    const std::byte* next = source.data();
    walk(strides, from, source.size(), [&](uint64_t at, uint64_t bytes, uint64_t count, uint64_t stride) {
        copy_runs(next, bytes, memory + at, stride, bytes, count);
        next += count * bytes;
    });
}

void stream_gather(const std::byte* memory, const Strides& strides, uint64_t from,
                   std::span<std::byte> target, uint32_t* crc) {
    if (crc != nullptr) *crc = 0;
    const auto copy = [&](std::span<const std::byte> source, std::byte* to) {
        if (crc != nullptr)
            *crc = stream_copy_crc32c(source, to, *crc);
        else
            stream_copy(source, to);
    };
    if (strides.one_block() || strides.run_bytes >= long_run_bytes) {
        std::byte* to = target.data();
        walk(strides, from, target.size(), [&](uint64_t at, uint64_t bytes, uint64_t count, uint64_t stride) {
            for (uint64_t i = 0; i < count; ++i, to += bytes) copy({memory + at + i * stride, bytes}, to);
        });
        return;
    }
    // Put the bytes together where the caches hold them, and copy them from there.
    thread_local std::vector<std::byte> together(together_bytes);
    while (!target.empty()) {
        const auto stretch = std::span(together).first(std::min<size_t>(target.size(), together.size()));
        gather(memory, strides, from, stretch);
        copy(stretch, target.data());
        from += stretch.size();
        target = target.subspan(stretch.size());
    }
}

std::byte* one_after_another(std::byte* memory, const Strides& strides, uint64_t from, uint64_t bytes) {
    if (strides.one_block()) return memory + from;
    if (from % strides.run_bytes + bytes > strides.run_bytes) return nullptr;
    std::byte* found = nullptr;
    walk(strides, from, bytes, [&](uint64_t at, uint64_t, uint64_t, uint64_t) { found = memory + at; });
    return found;
}

}  // namespace tailrace::internal
