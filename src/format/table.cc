#include "format/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/crc32c.h"
#include "format/frame.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t piece_bytes = 1 << 20;

}  // namespace

Status confirm_table(TableKind kind, uint64_t bytes, uint32_t crc, std::string_view what,
                     const ReadTablePiece& read) {
    if (bytes <= unconfirmed_table_bytes) return Status();
    const auto magic = kind == TableKind::index ? format::index_magic : format::manifest_magic;
    std::vector<std::byte> memory(piece_bytes);
    uint32_t computed = 0;
    for (uint64_t offset = 0; offset < bytes; offset += piece_bytes) {
        const auto piece = std::span(memory).first(std::min(piece_bytes, bytes - offset));
        TAILRACE_ASSIGN(const size_t got, read(piece, offset));
        if (got < piece.size())
            return Status(Code::corrupt, fmt::format("the {} is cut off: it has {} bytes, but {} are needed",
                                                     what, offset + got, bytes));
        if (offset == 0) TAILRACE_TRY(format::check_frame(piece, magic, bytes, what));
        computed = crc32c(piece, computed);
    }
    if (computed != crc)
        return Status(Code::corrupt,
                      fmt::format("the {} of {} bytes has checksum {:08x}, but {:08x} belongs there", what,
                                  bytes, computed, crc));
    return Status();
}

}  // namespace tailrace::internal
