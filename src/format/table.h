// Tables whose length a file says: indexes and manifests. A length is believed when the table's checksum is:
// before memory is taken for a large table, it is read once in small pieces and its checksum computed. So a
// file of holes that claims a table of a gigabyte costs the reader a megabyte.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// Up to here a length is taken as it is.
inline constexpr uint64_t unconfirmed_table_bytes = 4 << 20;

enum class TableKind { index, manifest };

// Fills `piece` with the table's bytes from `offset` on; how many there were.
using ReadTablePiece = std::function<Result<size_t>(std::span<std::byte> piece, uint64_t offset)>;

// Ok for a table of at most unconfirmed_table_bytes, of which nothing is read, and for a larger one that
// begins as one of its kind and length does and has the checksum `crc`. corrupt otherwise; `what` names it
// then.
Status confirm_table(TableKind kind, uint64_t bytes, uint32_t crc, std::string_view what,
                     const ReadTablePiece& read);

}  // namespace tailrace::internal
