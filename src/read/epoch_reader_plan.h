// Plans which bytes of which files to read, and in which order, for a set of blocks of a rank's
// stream. Pure.
//
// A block is the unit that is checked: it has one checksum and one piece of memory. Blocks are cut
// where the stream's extents end, sorted by (file, offset), and joined into few large read calls. A
// small gap between two neighbours (alignment, or a region that nobody asked for) is read into
// throw-away memory, because a seek costs more. Within a file offsets only go up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "catalog/catalog.h"
#include "storage/storage.h"

namespace tailrace::internal {

struct StreamBlock {
    uint64_t stream_offset = 0;
    std::span<std::byte> memory;  // the caller's; never empty
    std::optional<uint32_t> crc;  // of these bytes; empty when the manifest has no checksums
    uint32_t region = 0;          // the caller's number for the region, for messages
};

struct ReadLimits {
    uint64_t call_bytes = 64 << 20;
    uint64_t gap_bytes = 64 << 10;
};

// One call of File::read_pieces.
struct ReadCall {
    // The bytes of one block that this call reads.
    struct Share {
        size_t block = 0;  // index into `blocks` of plan_reads
        uint64_t bytes = 0;
        uint64_t end = 0;  // the share is there when the call has read at least this many bytes
    };
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::vector<Piece> pieces;
    std::vector<Share> shares;
};

// `extents` ascend by stream_offset and cover every block. `throw_away` has limits.gap_bytes; the
// gaps of all calls go there.
std::vector<ReadCall> plan_reads(std::span<const StreamExtent> extents, std::span<const StreamBlock> blocks,
                                 const ReadLimits& limits, std::span<std::byte> throw_away);

// The extent in which the byte `stream_offset` lies. `extents` as above; they cover the byte.
const StreamExtent& extent_at(std::span<const StreamExtent> extents, uint64_t stream_offset);

}  // namespace tailrace::internal
