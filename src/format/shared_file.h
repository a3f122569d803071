// The shared file: one of the K files of an epoch (docs/format.md, "Shared file").
//
//   header | slot of leader 0 .. L-1 | index area of leader 0 .. L-1 | data in stripes
//
// Several leaders (L >= 1) may write one file. Leader l owns slot l, index area l, and in the data
// the stripes l, l + L, l + 2L, ... A leader writes only what it owns, and the header, whose bytes
// are the same whichever leader writes them. With one leader the data has no stripes.
//
// A file is complete if its header and all of its slots are valid. A slot is written and synced
// only after the leader's data and index are durable. So the slots are the commit (docs/format.md,
// "Commit").
//
// Pure encode and decode; decoders take every byte as hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "format/part_file.h"

namespace tailrace::internal {

inline constexpr uint32_t max_leaders_per_file = 1024;
inline constexpr uint32_t max_files = 1 << 20;
inline constexpr uint32_t max_ranks = 1 << 26;

struct SharedHeader {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t file_index = 0;  // k, from 0
    uint32_t file_count = 1;  // K
    uint32_t rank_count = 1;  // of the whole epoch
    uint32_t leader_count = 1;
    uint64_t block_bytes = 4096;       // alignment of everything in the file; power of two, >= 512
    uint64_t index_area_bytes = 4096;  // per leader, multiple of block_bytes
    uint64_t stripe_bytes = 0;         // multiple of block_bytes; 0 if and only if leader_count is 1
    bool operator==(const SharedHeader&) const = default;
};

uint64_t slot_offset(const SharedHeader& header, uint32_t leader);
uint64_t index_offset(const SharedHeader& header, uint32_t leader);
uint64_t data_offset(const SharedHeader& header);  // where stripe 0 starts; everything before is "the head"

// The place in the file of byte `position` of leader `leader`'s own data, and the number of bytes
// from there without a gap.
struct StripePlace {
    uint64_t file_offset = 0;
    uint64_t run_bytes = UINT64_MAX;
};
StripePlace place_in_stripes(const SharedHeader& header, uint32_t leader, uint64_t position);

struct LeaderSlot {
    uint32_t leader = 0;
    uint64_t index_bytes = 0;  // encoded index at index_offset(leader)
    uint32_t index_crc = 0;
    uint64_t data_bytes = 0;         // bytes of streams in this leader's extents, without padding
    uint64_t committed_unix_ms = 0;  // for people; no decision depends on it
    uint64_t run_uid = 0;            // equals the header's; otherwise the slot is stale and commits nothing
    EpochKey key;
    bool operator==(const LeaderSlot&) const = default;
};

// A piece of a rank's stream in the file.
struct Extent {
    uint32_t rank = 0;
    uint64_t stream_offset = 0;
    uint64_t bytes = 0;
    uint64_t file_offset = 0;
    bool operator==(const Extent&) const = default;
};

struct SegmentIndex {
    std::vector<StreamInfo> streams;  // every rank of the file's group, ascending by rank, in every segment
    std::vector<Extent> extents;      // ascending by file_offset, not overlapping
    bool operator==(const SegmentIndex&) const = default;
};

// Sorts extents by file offset and joins neighbours that are adjacent in stream and file.
void normalize(std::vector<Extent>& extents);

// An upper bound of the encoded size for that many streams and extents, before normalize().
uint64_t index_bytes_bound(uint64_t stream_count, uint64_t extent_count);

// encode: header and slot give exactly block_bytes, the smallest unit that a leader may write.
std::vector<std::byte> encode(const SharedHeader& header);
std::vector<std::byte> encode(const LeaderSlot& slot, uint64_t block_bytes);
std::vector<std::byte> encode(const SegmentIndex& index);

inline constexpr uint64_t shared_header_probe_bytes = 512;  // enough to decode any header

Result<SharedHeader> decode_shared_header(std::span<const std::byte> bytes);
// not_found if the slot is all zeros or a hole, because the leader has not committed. corrupt if it
// is damaged or belongs to another epoch, run or leader.
Result<LeaderSlot> decode_leader_slot(std::span<const std::byte> bytes, const SharedHeader& header,
                                      uint32_t leader);
// `bytes` are the slot's index_bytes. Checks the checksum, and that every extent lies in the
// leader's own stripes and within file_bytes, and refers to a stream of the index within its
// length.
Result<SegmentIndex> decode_segment_index(std::span<const std::byte> bytes, const SharedHeader& header,
                                          const LeaderSlot& slot, uint64_t file_bytes);

}  // namespace tailrace::internal
