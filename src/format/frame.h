// Frame: the first 32 bytes of every record of the format. It is the same in every version, so that
// any reader can tell a damaged record from a newer one (docs/format.md, "Frame").
//
//   0 magic (8) | 8 major (2) | 10 minor (2) | 12 required features (4) | 16 optional features (4)
//   20 CRC32C of the record, these four bytes taken as zero (4) | 24 record bytes, frame included (8)
//
// Internal to the format. Bytes enter as a span and leave as a ByteReader that begins behind the
// frame and ends where the record ends. Nothing in it is trusted before the checksum was found
// right. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace tailrace::internal::format {

inline constexpr size_t frame_bytes = 32;
inline constexpr uint16_t version_major = 1;
inline constexpr uint16_t version_minor = 2;

// Magic numbers, 8 characters each.
inline constexpr std::string_view part_header_magic = "TRCPARTH";
inline constexpr std::string_view manifest_magic = "TRCMANIF";
inline constexpr std::string_view shared_header_magic = "TRCSHARE";
inline constexpr std::string_view slot_magic = "TRCSLOT_";
inline constexpr std::string_view index_magic = "TRCINDEX";
inline constexpr std::string_view plan_magic = "TRCPLAN_";
inline constexpr std::string_view protect_magic = "TRCPROTE";

// A sum or a byte count beyond this is taken as damage. So adding two of them cannot overflow.
inline constexpr uint64_t most_bytes = uint64_t{1} << 62;

// Starts a record. seal() fills in size and checksum.
void begin_record(ByteWriter& writer, std::string_view magic, uint32_t required_features = 0);

// Pads with zeros up to `record_bytes` and fills in the frame's size and checksum.
std::vector<std::byte> seal(ByteWriter&& writer, uint64_t record_bytes);

// The checksum of a record as its frame must hold it. `record` has at least frame_bytes.
uint32_t record_crc(std::span<const std::byte> record);

// corrupt unless `bytes`, at least frame_bytes of them, begin with this magic and with the size
// that the record must have. Does not check the checksum.
Status check_frame(std::span<const std::byte> bytes, std::string_view magic, uint64_t record_bytes,
                   std::string_view what);

// Checks the frame of the record at the start of `bytes`. `record_bytes` is the size it must have.
// `what` names it in sentences ("part header"). corrupt if it is wrong, unsupported if another
// version wrote it, or it requires features that are not `known_features`.
Result<ByteReader> open_record(std::span<const std::byte> bytes, std::string_view magic,
                               uint64_t record_bytes, std::string_view what, uint32_t known_features = 0);

// Of a record that open_record() has checked.
uint32_t required_features(std::span<const std::byte> record);

// The job's name as a field of fixed size: the length (4), then the name padded with zeros
// (job_field_bytes). The two lie apart, because numbers come first in every record.
inline constexpr size_t job_field_bytes = 104;
void put_job(ByteWriter& writer, std::string_view job);
std::string get_job(ByteReader& reader, uint32_t job_bytes);

}  // namespace tailrace::internal::format
