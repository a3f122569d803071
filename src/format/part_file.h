// The captured part: one rank's stream in a file of the node-local tier (docs/format.md, "Captured
// part").
//
// A file is a PartHeader (part_header_bytes) and the stream. The stream is written first, then the
// header, and then the file gets its final name. So a part with a final name and a valid header is
// complete. Its manifest's checksums tell whether its data survived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"

namespace tailrace::internal {

inline constexpr uint64_t part_header_bytes = 4096;
inline constexpr uint64_t max_part_directory_bytes = part_header_bytes - 208 - 8;
inline constexpr uint64_t max_read_directory_bytes = part_header_bytes - 208;  // of version 1.1

// Identifies one rank's stream anywhere: in a part header and in a shared file's index.
struct StreamInfo {
    uint32_t rank = 0;
    uint64_t stream_bytes = 0;
    uint64_t manifest_bytes = 0;
    uint32_t manifest_crc = 0;  // of the manifest_bytes at the head of the stream
    bool operator==(const StreamInfo&) const = default;
};

struct PartHeader {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;  // random, the same for all files of a run; it differs for runs with equal numbers
    uint32_t rank_count = 1;
    uint64_t sequence = 0;   // the number of saves of the run before this one
    bool for_shared = true;  // false: this epoch was meant to stay in the node-local tier
    StreamInfo stream;       // as it is here
    // At the stream's end: the data of files that lie in the shared directory as they were written, and in
    // no shared file (format/original_files.h).
    uint64_t apart_bytes = 0;
    // The shared directory that the part belongs to: an absolute path of at most
    // max_part_directory_bytes. Empty in parts that version 0.1.0 wrote, because those do not name
    // it.
    std::string shared_dir;
    bool operator==(const PartHeader&) const = default;
};

// What the shared files hold of a captured stream.
inline StreamInfo shared_stream(StreamInfo captured, uint64_t apart_bytes) {
    captured.stream_bytes -= apart_bytes;
    return captured;
}
inline StreamInfo shared_stream(const PartHeader& header) {
    return shared_stream(header.stream, header.apart_bytes);
}

// Exactly part_header_bytes.
std::vector<std::byte> encode(const PartHeader& header);
Result<PartHeader> decode_part_header(std::span<const std::byte> bytes);

}  // namespace tailrace::internal
