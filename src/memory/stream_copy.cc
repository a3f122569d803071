#include "memory/stream_copy.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tailrace::internal {

namespace {

// Several pages are written side by side, because one stream of writes alone does not keep the
// memory busy.
constexpr size_t lanes = 4;
constexpr size_t line_bytes = 64;
// Fits into the second-level cache of any processor of today, together with the next step.
constexpr size_t step_bytes = 64 * 1024;
constexpr size_t lane_bytes = step_bytes / lanes;

#if defined(__SSE2__)

// One step. `target` must lie at a multiple of a line. Meanwhile the next step's source is
// prefetched. (A prefetch of memory that does not exist is allowed, and does nothing.)
void copy_step(const std::byte* source, std::byte* target) {
    for (size_t at = 0; at < lane_bytes; at += line_bytes) {
        for (size_t lane = 0; lane < lanes; ++lane) {
            const std::byte* from = source + lane * lane_bytes + at;
            auto* to = reinterpret_cast<__m128i*>(target + lane * lane_bytes + at);
            __m128i line[line_bytes / sizeof(__m128i)];
            std::memcpy(line, from, line_bytes);
            _mm_prefetch(reinterpret_cast<const char*>(from) + step_bytes, _MM_HINT_T0);
            for (const auto& quarter : line) _mm_stream_si128(to++, quarter);
        }
    }
}
// Orders the streamed writes. Before this, others cannot rely on their order.
void finish_steps() {
    _mm_sfence();
}

#else

void copy_step(const std::byte* source, std::byte* target) {
    std::memcpy(target, source, step_bytes);
}
void finish_steps() {}

#endif

void copy_plainly(std::span<const std::byte>& source, std::byte*& target, size_t bytes) {
    if (bytes > 0) std::memcpy(target, source.data(), bytes);
    source = source.subspan(bytes);
    target += bytes;
}

}  // namespace

void stream_copy(std::span<const std::byte> source, std::byte* target) {
    const size_t to_line = -reinterpret_cast<uintptr_t>(target) % line_bytes;
    copy_plainly(source, target, std::min(to_line, source.size()));
    const bool any = source.size() >= step_bytes;
    while (source.size() >= step_bytes) {
        copy_step(source.data(), target);
        source = source.subspan(step_bytes);
        target += step_bytes;
    }
    copy_plainly(source, target, source.size());
    if (any) finish_steps();
}

uint32_t stream_copy_crc32c(std::span<const std::byte> source, std::byte* target, uint32_t crc) {
    const std::span<const std::byte> whole = source;
    while (!source.empty()) {
        // Long enough that all but the ends are whole steps, and short enough that the checksum
        // finds the piece cached.
        const auto piece = source.first(std::min(source.size(), 4 * step_bytes));
        stream_copy(piece, target + (source.data() - whole.data()));
        crc = crc32c(piece, crc);
        source = source.subspan(piece.size());
    }
    return crc;
}

}  // namespace tailrace::internal
