#include "format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <unordered_set>

#include "base/invariant.h"
#include "base/units.h"
#include "format/frame.h"
#include "format/shared_file.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t flag_checksums = 1;
constexpr uint32_t feature_files_apart = 1;   // since version 1.2
constexpr uint64_t region_record_bytes = 32;  // without name, shape and checksums
constexpr size_t field_alignment = 8;
constexpr uint8_t kind_plain = 0;
constexpr uint8_t kind_array = 1;
constexpr uint8_t flag_gaps = 1;      // for arrays, since version 1.1
constexpr uint8_t flag_overlaps = 2;  // for arrays, since version 1.1
constexpr uint8_t flag_list = 4;      // for arrays, since version 1.1

struct TypeRow {
    std::string_view name;
    uint8_t bytes;
};
constexpr std::array<TypeRow, element_type_count> type_rows = {{{"bytes", 1},
                                                                {"int8", 1},
                                                                {"uint8", 1},
                                                                {"int16", 2},
                                                                {"uint16", 2},
                                                                {"int32", 4},
                                                                {"uint32", 4},
                                                                {"int64", 8},
                                                                {"uint64", 8},
                                                                {"float16", 2},
                                                                {"bfloat16", 2},
                                                                {"float32", 4},
                                                                {"float64", 8},
                                                                {"complex64", 8},
                                                                {"complex128", 16},
                                                                {"bool", 1}}};

uint64_t alignment_of(uint64_t region_bytes) {
    return region_bytes >= large_region_bytes ? stream_alignment : small_region_alignment;
}

uint64_t block_count(uint64_t region_bytes) {
    return region_bytes / check_block_bytes + (region_bytes % check_block_bytes != 0 ? 1 : 0);
}

// Number of elements times their size. Nothing if it does not fit 64 bits.
std::optional<uint64_t> shape_bytes(const std::vector<uint64_t>& shape, uint64_t element) {
    if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
    uint64_t bytes = element;
    for (uint64_t extent : shape)
        if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
    return bytes;
}

Status check_region_name(std::string_view name) {
    if (name.empty() || name.size() > max_region_name_bytes)
        return Status(Code::invalid_argument,
                      fmt::format("a region's name has {} bytes, but may have 1 to {}", name.size(),
                                  max_region_name_bytes));
    if (name.find('\0') != std::string_view::npos)
        return Status(Code::invalid_argument, "a region's name contains a zero byte");
    return Status();
}

// The checks of names and arrays that lay_out and the decoder share.
Status check_regions(const PartManifest& manifest) {
    std::unordered_set<std::string_view> names;
    for (const auto& region : manifest.regions) {
        TAILRACE_TRY(check_region_name(region.name));
        if (!names.insert(region.name).second)
            return Status(Code::invalid_argument,
                          fmt::format("two regions are named \"{}\" in rank {}", region.name, manifest.rank));
        if (!region.array) continue;
        TAILRACE_TRY(
            check_array_piece(*region.array).with_context(fmt::format("region \"{}\"", region.name)));
        if (array_bytes(*region.array) != region.bytes)
            return Status(Code::invalid_argument,
                          fmt::format("region \"{}\" has {} bytes, but its array piece has {}", region.name,
                                      region.bytes, array_bytes(*region.array)));
    }
    return Status();
}

// Size of the manifest's records, without padding to stream_alignment.
uint64_t record_bytes(const Region& region) {
    uint64_t bytes = region_record_bytes + align_up(region.name.size(), field_alignment);
    if (region.array) bytes += 3 * 8 * region.array->global_shape.size();
    return bytes + align_up(4 * region.block_crcs.size(), field_alignment);
}
constexpr uint64_t records_start = 64;

}  // namespace

uint64_t element_bytes(ElementType type) {
    auto index = static_cast<size_t>(type);
    return index < type_rows.size() ? type_rows[index].bytes : 0;
}

std::string_view element_type_name(ElementType type) {
    auto index = static_cast<size_t>(type);
    return index < type_rows.size() ? type_rows[index].name : "unknown";
}

Status check_array_piece(const ArrayPiece& piece) {
    uint64_t element = element_bytes(piece.type);
    if (element == 0)
        return Status(Code::invalid_argument,
                      fmt::format("there is no element type {}", static_cast<unsigned>(piece.type)));
    size_t dimensions = piece.global_shape.size();
    if (dimensions == 0 || dimensions > max_dimensions)
        return Status(Code::invalid_argument, fmt::format("an array has {} dimensions, but may have 1 to {}",
                                                          dimensions, max_dimensions));
    if (piece.offset.size() != dimensions || piece.local_shape.size() != dimensions)
        return Status(Code::invalid_argument,
                      fmt::format("an array's global shape, offset and local shape have {}, {} and {} "
                                  "dimensions, but must agree",
                                  dimensions, piece.offset.size(), piece.local_shape.size()));
    for (size_t d = 0; d < dimensions; ++d)
        if (piece.offset[d] > piece.global_shape[d] ||
            piece.local_shape[d] > piece.global_shape[d] - piece.offset[d])
            return Status(
                Code::invalid_argument,
                fmt::format("dimension {} of an array's piece begins at {} and has {} elements, but the "
                            "whole array has {}",
                            d, piece.offset[d], piece.local_shape[d], piece.global_shape[d]));
    // The piece lies within the whole. So it fits 64 bits if the whole does. If the whole is empty,
    // so is the piece.
    if (!shape_bytes(piece.global_shape, element))
        return Status(Code::invalid_argument, "an array's size in bytes does not fit 64 bits");
    if (piece.is_list &&
        (piece.local_shape != piece.global_shape || piece.may_have_gaps || piece.may_overlap))
        return Status(Code::invalid_argument,
                      "a rank's piece of a list is declared to be a part, to have gaps or to overlap");
    return Status();
}

uint8_t array_flags(const ArrayPiece& piece) {
    return static_cast<uint8_t>((piece.may_have_gaps ? flag_gaps : 0) |
                                (piece.may_overlap ? flag_overlaps : 0) | (piece.is_list ? flag_list : 0));
}

void set_array_flags(ArrayPiece& piece, uint8_t flags) {
    piece.may_have_gaps = (flags & flag_gaps) != 0;
    piece.may_overlap = (flags & flag_overlaps) != 0;
    piece.is_list = (flags & flag_list) != 0;
}

uint64_t array_bytes(const ArrayPiece& piece) {
    auto bytes = shape_bytes(piece.local_shape, element_bytes(piece.type));
    INVARIANT(bytes);
    return bytes.value_or(0);
}

Status lay_out(PartManifest& manifest) {
    auto context = [&] { return fmt::format("laying out the regions of rank {}", manifest.rank); };
    if (manifest.rank_count > max_ranks || manifest.rank >= manifest.rank_count)
        return Status(Code::invalid_argument,
                      fmt::format("rank {} of {} does not exist", manifest.rank, manifest.rank_count));
    TAILRACE_TRY(check_regions(manifest).with_context(context()));

    // Sum the sizes before memory is taken: an absurd size must not ask for memory for its
    // checksums.
    uint64_t position = 0;
    for (const auto& region : manifest.regions) {
        if (region.bytes > max_stream_bytes || position > max_stream_bytes - region.bytes)
            return Status(
                Code::invalid_argument,
                fmt::format("{}: up to region \"{}\" of {} bytes they have more than the {} bytes that "
                            "a rank can save",
                            context(), region.name, region.bytes, max_stream_bytes));
        position += region.bytes;
    }

    uint64_t end = records_start;
    for (auto& region : manifest.regions) {
        region.block_crcs.clear();
        try {
            if (manifest.has_checksums) region.block_crcs.resize(block_count(region.bytes));
        } catch (const std::bad_alloc&) {
            return Status(Code::out_of_memory,
                          fmt::format("{}: no memory for the {} checksums of region \"{}\"", context(),
                                      block_count(region.bytes), region.name));
        }
        end += record_bytes(region);
    }
    manifest.manifest_bytes = align_up(end, stream_alignment);

    position = manifest.manifest_bytes;
    for (auto& region : manifest.regions) {
        region.stream_offset = align_up(position, alignment_of(region.bytes));
        position = region.stream_offset + region.bytes;
    }
    manifest.stream_bytes = position;
    return Status();
}

std::vector<std::byte> encode(const PartManifest& manifest) {
    ByteWriter writer;
    format::begin_record(writer, format::manifest_magic, manifest.files_apart ? feature_files_apart : 0);
    writer.put(manifest.rank);
    writer.put(manifest.rank_count);
    writer.put(manifest.stream_bytes);
    writer.put(manifest.has_checksums ? flag_checksums : 0u);
    writer.put(check_block_bytes);
    writer.put(static_cast<uint64_t>(manifest.regions.size()));
    INVARIANT(writer.size() == records_start);
    for (const auto& region : manifest.regions) {
        writer.put(static_cast<uint32_t>(region.name.size()));
        writer.put(region.array ? kind_array : kind_plain);
        writer.put(region.array ? static_cast<uint8_t>(region.array->type) : uint8_t{0});
        writer.put(region.array ? static_cast<uint8_t>(region.array->global_shape.size()) : uint8_t{0});
        writer.put(region.array ? array_flags(*region.array) : uint8_t{0});
        writer.put(region.stream_offset);
        writer.put(region.bytes);
        writer.put(static_cast<uint64_t>(region.block_crcs.size()));
        writer.put_bytes(std::as_bytes(std::span(region.name.data(), region.name.size())));
        writer.align(field_alignment);
        if (region.array)
            for (const auto* numbers :
                 {&region.array->global_shape, &region.array->offset, &region.array->local_shape})
                for (uint64_t number : *numbers) writer.put(number);
        for (uint32_t crc : region.block_crcs) writer.put(crc);
        writer.align(field_alignment);
    }
    return format::seal(std::move(writer), manifest.manifest_bytes);
}

namespace {

// Reads one region's record. A record that is too short shows in reader.ok().
Status read_region(ByteReader& reader, const PartManifest& manifest, Region& region) {
    auto skip_to_field = [&] {
        reader.get_bytes((field_alignment - reader.position() % field_alignment) % field_alignment);
    };
    auto name_bytes = reader.get<uint32_t>();
    auto kind = reader.get<uint8_t>();
    auto type = reader.get<uint8_t>();
    auto dimensions = reader.get<uint8_t>();
    auto flags = reader.get<uint8_t>();
    region.stream_offset = reader.get<uint64_t>();
    region.bytes = reader.get<uint64_t>();
    auto crc_count = reader.get<uint64_t>();
    if (!reader.ok()) return Status();

    if (name_bytes == 0 || name_bytes > max_region_name_bytes)
        return Status(Code::corrupt, fmt::format("a region's name has {} bytes", name_bytes));
    auto name = reader.get_bytes(name_bytes);
    region.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    skip_to_field();

    if (kind == kind_array) {
        auto& piece = region.array.emplace();
        piece.type = static_cast<ElementType>(type);
        set_array_flags(piece, flags);
        for (auto* numbers : {&piece.global_shape, &piece.offset, &piece.local_shape})
            for (unsigned d = 0; d < dimensions; ++d) numbers->push_back(reader.get<uint64_t>());
    } else if (kind != kind_plain || type != 0 || dimensions != 0) {
        return Status(Code::corrupt, fmt::format("region \"{}\" is of kind {}, type {}, with {} dimensions, "
                                                 "which is not known",
                                                 region.name, kind, type, dimensions));
    }

    uint64_t expected_crcs = manifest.has_checksums ? block_count(region.bytes) : 0;
    if (crc_count != expected_crcs)
        return Status(Code::corrupt, fmt::format("region \"{}\" of {} bytes has {} checksums, but needs {}",
                                                 region.name, region.bytes, crc_count, expected_crcs));
    if (crc_count > reader.remaining() / 4) {
        reader.set_failed();
        return Status();
    }
    region.block_crcs.reserve(crc_count);
    for (uint64_t i = 0; i < crc_count; ++i) region.block_crcs.push_back(reader.get<uint32_t>());
    skip_to_field();
    return Status();
}

// Every region begins behind the manifest and the region before it, is aligned, and lies within the
// stream.
Status check_places(const PartManifest& manifest) {
    uint64_t end = manifest.manifest_bytes;
    for (const auto& region : manifest.regions) {
        if (region.stream_offset % alignment_of(region.bytes) != 0)
            return Status(Code::corrupt,
                          fmt::format("region \"{}\" starts at byte {} of the stream, which is "
                                      "not a multiple of {}",
                                      region.name, region.stream_offset, alignment_of(region.bytes)));
        if (region.stream_offset < end)
            return Status(
                Code::corrupt,
                fmt::format("region \"{}\" starts at byte {} of the stream, but what lies before it "
                            "ends at {}",
                            region.name, region.stream_offset, end));
        if (region.stream_offset > manifest.stream_bytes ||
            region.bytes > manifest.stream_bytes - region.stream_offset)
            return Status(
                Code::corrupt,
                fmt::format("region \"{}\" has {} bytes from byte {}, but the stream has {}", region.name,
                            region.bytes, region.stream_offset, manifest.stream_bytes));
        end = region.stream_offset + region.bytes;
    }
    return Status();
}

}  // namespace

Result<PartManifest> decode_manifest(std::span<const std::byte> bytes) {
    constexpr std::string_view what = "the manifest is wrong";
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::manifest_magic, bytes.size(), "manifest",
                                                     feature_files_apart));
    PartManifest manifest;
    manifest.files_apart = (format::required_features(bytes) & feature_files_apart) != 0;
    manifest.rank = reader.get<uint32_t>();
    manifest.rank_count = reader.get<uint32_t>();
    manifest.stream_bytes = reader.get<uint64_t>();
    manifest.has_checksums = (reader.get<uint32_t>() & flag_checksums) != 0;
    auto block_bytes = reader.get<uint32_t>();
    manifest.manifest_bytes = bytes.size();
    auto region_count = reader.get_count(region_record_bytes);
    if (!reader.ok())
        return Status(Code::corrupt,
                      fmt::format("{}: it has more regions than its {} bytes can hold", what, bytes.size()));
    if (bytes.size() % stream_alignment != 0 || manifest.stream_bytes < bytes.size() ||
        manifest.stream_bytes > format::most_bytes)
        return Status(Code::corrupt, fmt::format("{}: it has {} bytes in a stream of {}", what, bytes.size(),
                                                 manifest.stream_bytes));
    if (manifest.rank_count > max_ranks || manifest.rank >= manifest.rank_count)
        return Status(Code::corrupt, fmt::format("{}: rank {} of {} does not exist", what, manifest.rank,
                                                 manifest.rank_count));
    if (block_bytes != check_block_bytes)
        return Status(Code::corrupt,
                      fmt::format("{}: it has a checksum every {} bytes, but version 1 has one every {}",
                                  what, block_bytes, check_block_bytes));

    manifest.regions.reserve(region_count);
    for (uint64_t i = 0; i < region_count; ++i) {
        auto& region = manifest.regions.emplace_back();
        TAILRACE_TRY(read_region(reader, manifest, region).with_context(what));
        if (!reader.ok())
            return Status(Code::corrupt,
                          fmt::format("{}: it ends inside region {} of {}", what, i + 1, region_count));
    }
    if (auto status = check_regions(manifest); !status.ok())
        return Status(Code::corrupt, fmt::format("{}: {}", what, status.message()));
    TAILRACE_TRY(check_places(manifest).with_context(what));
    return manifest;
}

const Region* find_region(const PartManifest& manifest, std::string_view name) {
    auto found = std::find_if(manifest.regions.begin(), manifest.regions.end(),
                              [&](const Region& region) { return region.name == name; });
    return found == manifest.regions.end() ? nullptr : &*found;
}

}  // namespace tailrace::internal
