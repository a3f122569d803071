// Tables whose length a file tells: indexes and manifests. A length is trusted if the table's
// checksum is right. Before memory is taken for a large table, the table is read once in small
// pieces and its checksum is computed. So a file of holes that claims a table of a gigabyte costs
// the reader a megabyte.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// Up to this size a length is trusted at once.
inline constexpr uint64_t unconfirmed_table_bytes = 4 << 20;

enum class TableKind { index, manifest };

// Fills `piece` with the table's bytes from `offset` on, and returns how many there were.
using ReadTablePiece = std::function<Result<size_t>(std::span<std::byte> piece, uint64_t offset)>;

// Ok for a table of at most unconfirmed_table_bytes, without reading it. Ok for a larger one that
// begins as a table of this kind and length does and has the checksum `crc`. Otherwise corrupt,
// with `what` as its name.
Status confirm_table(TableKind kind, uint64_t bytes, uint32_t crc, std::string_view what,
                     const ReadTablePiece& read);

}  // namespace tailrace::internal
