// PartManifest: what one rank saved, region by region, with the checksums of its data. It lies at
// the head of the rank's stream, so it travels with the data through every tier (docs/format.md,
// "Manifest").
//
// A rank's stream is its manifest, padded to stream_alignment, followed by the regions' data, each
// aligned. The stream is copied into the captured part, sent in chunks to a leader, and written as
// extents into a shared file.
//
// Pure encode and decode. The decoder takes every byte as hostile. It returns corrupt and what was
// wrong, or a manifest that satisfies every invariant below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailrace::internal {

// The numbers are part of the format and of the C interface (tailrace_type). Never change one.
enum class ElementType : uint8_t {
    bytes = 0,  // opaque, one byte each
    int8 = 1,
    uint8 = 2,
    int16 = 3,
    uint16 = 4,
    int32 = 5,
    uint32 = 6,
    int64 = 7,
    uint64 = 8,
    float16 = 9,
    bfloat16 = 10,
    float32 = 11,
    float64 = 12,
    complex64 = 13,
    complex128 = 14,
    boolean = 15,
};
inline constexpr uint8_t element_type_count = 16;
uint64_t element_bytes(ElementType type);
std::string_view element_type_name(ElementType type);  // "float32"

inline constexpr size_t max_dimensions = 16;
inline constexpr uint32_t max_region_name_bytes = 4096;
inline constexpr uint64_t stream_alignment = 4096;      // manifest and large regions start at multiples
inline constexpr uint64_t small_region_alignment = 64;  // regions below large_region_bytes
inline constexpr uint64_t large_region_bytes = 1 << 20;
inline constexpr uint64_t max_stream_bytes = uint64_t{1} << 48;  // of regions in a rank: 256 TiB
inline constexpr uint32_t check_block_bytes = 256 * 1024;        // data under one checksum

// A rank's piece of a global array, row-major (C order). The three vectors have one entry per
// dimension, of which there are 1 to max_dimensions. offset + local <= global holds in each. The
// last three fields are declarations about the whole array, so all ranks make the same ones. Without
// them the ranks' pieces cover each element exactly once.
struct ArrayPiece {
    ElementType type = ElementType::bytes;
    std::vector<uint64_t> global_shape;
    std::vector<uint64_t> offset;
    std::vector<uint64_t> local_shape;
    bool may_have_gaps = false;  // some elements may be in no rank's piece
    bool may_overlap = false;    // several pieces may contain an element; the lowest rank's counts
    // A list: the whole array is the ranks' pieces one after another along dimension 0, in the order of
    // ranks. No rank knows where its piece begins, so offset is 0 and global_shape is local_shape. Only
    // dimension 0 may differ between ranks. Never together with the two above.
    bool is_list = false;
    bool operator==(const ArrayPiece&) const = default;
};

// The declarations as the bits of the format, and back. Bits that this version does not know are ignored.
uint8_t array_flags(const ArrayPiece& piece);
void set_array_flags(ArrayPiece& piece, uint8_t flags);

// invalid_argument if dimensions disagree, offset + local exceeds global, or the size overflows 64
// bits.
Status check_array_piece(const ArrayPiece& piece);
// Elements of local_shape times element size. The piece must have passed check_array_piece.
uint64_t array_bytes(const ArrayPiece& piece);

struct Region {
    std::string name;            // 1..max_region_name_bytes bytes, unique within the rank
    uint64_t stream_offset = 0;  // where its data starts in the stream
    uint64_t bytes = 0;          // may be 0
    std::optional<ArrayPiece> array;
    // The CRC32C of each check_block_bytes of the region's data; the last block may be short. Empty
    // if the manifest has no checksums.
    std::vector<uint32_t> block_crcs;
    bool operator==(const Region&) const = default;
};

struct PartManifest {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    bool has_checksums = true;
    uint64_t manifest_bytes = 0;  // encoded size, padded to stream_alignment; data starts here or later
    uint64_t stream_bytes = 0;    // manifest and data
    // The data of the files at the stream's end lies in files of their own in the shared directory, and in no
    // shared file (format/original_files.h: apart_bytes). A captured part holds all of it.
    bool files_apart = false;
    std::vector<Region> regions;  // in ascending stream_offset, not overlapping
    bool operator==(const PartManifest&) const = default;
};

// Fills in stream_offset of every region, manifest_bytes and stream_bytes from names, arrays and
// bytes, in the given order. If has_checksums is set, it sizes block_crcs and sets them to zero.
// invalid_argument for a duplicate or empty name, an array that does not fit its bytes, or more
// than max_stream_bytes. out_of_memory if there is no memory for the checksums. After a failure the
// manifest's offsets and sizes mean nothing.
Status lay_out(PartManifest& manifest);

// Returns exactly manifest.manifest_bytes bytes. The manifest must have been laid out and its
// checksums filled in.
std::vector<std::byte> encode(const PartManifest& manifest);
Result<PartManifest> decode_manifest(std::span<const std::byte> bytes);

const Region* find_region(const PartManifest& manifest, std::string_view name);

}  // namespace tailrace::internal
