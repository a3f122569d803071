// The protect object: what a node keeps for other nodes of its set, for one epoch, in one file
// (docs/format.md, "Protect object"). Pure: bytes in, values out.
//
// A file is a ProtectHead, encoded as a record, and the pieces behind it: a copy of another node's
// logical part (partner), or parity of the set (coding.h). The head lists every part of every node of
// the set, so a lost node's parts can be written again without anything else that this node had.
//
// The pieces are written first, then the head, and then the file gets its final name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "format/epoch_key.h"
#include "format/part_file.h"
#include "format/redundancy.h"

namespace tailrace::internal {

// What a node of the set has captured. Its logical part is these captured parts, header and stream
// each, one after the other.
struct MemberParts {
    uint32_t node = 0;              // its number in the job that captured them
    std::vector<StreamInfo> parts;  // ascending by rank
    bool operator==(const MemberParts&) const = default;
};

inline uint64_t part_bytes(const StreamInfo& part) {
    return part_header_bytes + part.stream_bytes;
}
uint64_t logical_bytes(const MemberParts& member);

// The identity of an epoch: nothing of another run is ever taken for its own.
struct EpochIdentity {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 1;
    // As in the header of a captured part. May be empty only where the parts' is.
    std::string shared_dir;
    bool operator==(const EpochIdentity&) const = default;
};

struct ProtectHead {
    EpochIdentity identity;
    Redundancy redundancy;             // never none
    std::vector<MemberParts> members;  // of the set, by position; at least two
    uint32_t position = 0;             // whose object this is
    // partner: the position whose logical part is kept, another one. Otherwise the same as position.
    uint32_t kept = 0;
    // CRC32C of each check block (256 KiB, the last one of a piece short), piece by piece.
    std::vector<uint32_t> block_crcs;
    bool operator==(const ProtectHead&) const = default;
};

// The position whose whole logical part is piece 0 of the object, as it is: with partner, and with
// parity over a single node's data. Empty: there is none.
std::optional<uint32_t> copied_position(const ProtectHead& head);

// These follow from the members. `piece_count` pieces of `piece_bytes` lie behind the record: one of
// the kept part's length, or K of coding.h's.
uint32_t piece_count(const ProtectHead& head);
uint64_t piece_bytes(const ProtectHead& head);
uint64_t blocks_of_piece(const ProtectHead& head);
// Of the encoded head, a multiple of 4096: the place of the first piece in the file.
uint64_t record_bytes(const ProtectHead& head);
uint64_t file_bytes(const ProtectHead& head);

// Everything but the checksums, as one node tells another.
void put_tables(ByteWriter& writer, const ProtectHead& head);
// Leaves block_crcs empty. Bytes may follow.
Result<ProtectHead> get_tables(ByteReader& reader);

// Exactly record_bytes(head).
std::vector<std::byte> encode(const ProtectHead& head);
Result<ProtectHead> decode_protect_head(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
