#include "format/shared_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/crc32c.h"
#include "base/invariant.h"
#include "format/codec.h"
#include "format/frame.h"
#include "format/stream_info.h"

namespace tailrace::internal {

namespace {

// The size of the records of a header and of a slot: the smallest possible block.
constexpr uint64_t record_bytes = shared_header_probe_bytes;
constexpr uint64_t index_start_bytes = 48;
constexpr uint64_t stream_record_bytes = 24;
constexpr uint64_t extent_record_bytes = 32;

// Limits that keep every offset of the head far below 2^62.
constexpr uint64_t min_block_bytes = 512;
constexpr uint64_t max_block_bytes = uint64_t{1} << 30;
constexpr uint64_t max_index_area_bytes = uint64_t{1} << 48;
constexpr uint64_t max_stripe_bytes = uint64_t{1} << 48;

void pad_to_block(std::vector<std::byte>& record, uint64_t block_bytes) {
    INVARIANT(block_bytes >= record.size());
    record.resize(block_bytes);
}

Status check_header(const SharedHeader& header) {
    if (header.file_count > max_files || header.file_index >= header.file_count)
        return Status(Code::corrupt, fmt::format("there is no file {} of {}", uint64_t{header.file_index} + 1,
                                                 header.file_count));
    if (header.rank_count == 0 || header.rank_count > max_ranks)
        return Status(Code::corrupt, fmt::format("its number of ranks is {}", header.rank_count));
    if (header.leader_count == 0 || header.leader_count > max_leaders_per_file)
        return Status(Code::corrupt, fmt::format("its number of leaders is {}", header.leader_count));
    if (header.block_bytes < min_block_bytes || header.block_bytes > max_block_bytes ||
        !std::has_single_bit(header.block_bytes))
        return Status(Code::corrupt, fmt::format("its blocks have {} bytes", header.block_bytes));
    if (header.index_area_bytes == 0 || header.index_area_bytes > max_index_area_bytes ||
        header.index_area_bytes % header.block_bytes != 0)
        return Status(Code::corrupt, fmt::format("its index areas have {} bytes, and its blocks {}",
                                                 header.index_area_bytes, header.block_bytes));
    if ((header.stripe_bytes == 0) != (header.leader_count == 1) || header.stripe_bytes > max_stripe_bytes ||
        header.stripe_bytes % header.block_bytes != 0)
        return Status(Code::corrupt,
                      fmt::format("its stripes have {} bytes with {} leaders and blocks of {}",
                                  header.stripe_bytes, header.leader_count, header.block_bytes));
    return Status();
}

}  // namespace

uint64_t slot_offset(const SharedHeader& header, uint32_t leader) {
    return header.block_bytes * (uint64_t{leader} + 1);
}

uint64_t index_offset(const SharedHeader& header, uint32_t leader) {
    return slot_offset(header, header.leader_count) + header.index_area_bytes * leader;
}

uint64_t data_offset(const SharedHeader& header) {
    return index_offset(header, header.leader_count);
}

StripePlace place_in_stripes(const SharedHeader& header, uint32_t leader, uint64_t position) {
    if (header.stripe_bytes == 0) return {data_offset(header) + position, UINT64_MAX};
    uint64_t round = position / header.stripe_bytes;
    uint64_t within = position % header.stripe_bytes;
    uint64_t stripe = round * header.leader_count + leader;
    return {data_offset(header) + stripe * header.stripe_bytes + within, header.stripe_bytes - within};
}

void normalize(std::vector<Extent>& extents) {
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.file_offset < b.file_offset; });
    size_t last = 0;
    for (size_t i = 1; i < extents.size(); ++i) {
        auto& before = extents[last];
        const auto& next = extents[i];
        if (before.rank == next.rank && before.stream_offset + before.bytes == next.stream_offset &&
            before.file_offset + before.bytes == next.file_offset)
            before.bytes += next.bytes;
        else
            extents[++last] = next;
    }
    if (!extents.empty()) extents.resize(last + 1);
}

uint64_t index_bytes_bound(uint64_t stream_count, uint64_t extent_count) {
    return index_start_bytes + stream_record_bytes * stream_count + extent_record_bytes * extent_count;
}

std::vector<std::byte> encode(const SharedHeader& header) {
    ByteWriter writer;
    format::begin_record(writer, format::shared_header_magic);
    put(writer, header.key);
    writer.put(header.file_index);
    writer.put(header.run_uid);
    writer.put(header.file_count);
    writer.put(header.rank_count);
    writer.put(header.leader_count);
    writer.put(static_cast<uint32_t>(header.job.size()));
    writer.put(header.block_bytes);
    writer.put(header.index_area_bytes);
    writer.put(header.stripe_bytes);
    format::put_job(writer, header.job);
    auto record = format::seal(std::move(writer), record_bytes);
    pad_to_block(record, header.block_bytes);
    return record;
}

std::vector<std::byte> encode(const LeaderSlot& slot, uint64_t block_bytes) {
    ByteWriter writer;
    format::begin_record(writer, format::slot_magic);
    put(writer, slot.key);
    writer.put(slot.leader);
    writer.put(slot.run_uid);
    writer.put(slot.index_bytes);
    writer.put(slot.data_bytes);
    writer.put(slot.committed_unix_ms);
    writer.put(slot.index_crc);
    auto record = format::seal(std::move(writer), record_bytes);
    pad_to_block(record, block_bytes);
    return record;
}

std::vector<std::byte> encode(const SegmentIndex& index) {
    ByteWriter writer;
    format::begin_record(writer, format::index_magic);
    writer.put(static_cast<uint64_t>(index.streams.size()));
    writer.put(static_cast<uint64_t>(index.extents.size()));
    for (const auto& stream : index.streams) {
        writer.put(stream.rank);
        writer.put(stream.manifest_crc);
        writer.put(stream.stream_bytes);
        writer.put(stream.manifest_bytes);
    }
    for (const auto& extent : index.extents) {
        writer.put(extent.stream_offset);
        writer.put(extent.bytes);
        writer.put(extent.file_offset);
        writer.put(extent.rank);
        writer.put_zeros(4);
    }
    uint64_t bytes = writer.size();
    return format::seal(std::move(writer), bytes);
}

Result<SharedHeader> decode_shared_header(std::span<const std::byte> bytes) {
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::shared_header_magic, record_bytes,
                                                     "shared file's header"));
    SharedHeader header;
    header.key = get_key(reader);
    header.file_index = reader.get<uint32_t>();
    header.run_uid = reader.get<uint64_t>();
    header.file_count = reader.get<uint32_t>();
    header.rank_count = reader.get<uint32_t>();
    header.leader_count = reader.get<uint32_t>();
    auto job_bytes = reader.get<uint32_t>();
    header.block_bytes = reader.get<uint64_t>();
    header.index_area_bytes = reader.get<uint64_t>();
    header.stripe_bytes = reader.get<uint64_t>();
    header.job = format::get_job(reader, job_bytes);

    constexpr std::string_view what = "the shared file's header is wrong";
    if (auto status = check_job_name(header.job); !status.ok())
        return Status(Code::corrupt, fmt::format("{}: {}", what, status.message()));
    TAILRACE_TRY(check_header(header).with_context(what));
    return header;
}

Result<LeaderSlot> decode_leader_slot(std::span<const std::byte> bytes, const SharedHeader& header,
                                      uint32_t leader) {
    if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }))
        return Status(Code::not_found, fmt::format("leader {} of {} has not committed its part", leader + 1,
                                                   header.leader_count));
    auto what = fmt::format("slot of leader {}", leader + 1);
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::slot_magic, record_bytes, what));
    LeaderSlot slot;
    slot.key = get_key(reader);
    slot.leader = reader.get<uint32_t>();
    slot.run_uid = reader.get<uint64_t>();
    slot.index_bytes = reader.get<uint64_t>();
    slot.data_bytes = reader.get<uint64_t>();
    slot.committed_unix_ms = reader.get<uint64_t>();
    slot.index_crc = reader.get<uint32_t>();

    if (slot.key != header.key || slot.run_uid != header.run_uid)
        return Status(
            Code::corrupt,
            fmt::format("the {} belongs to {} (run {:016x}), but the header to {} (run {:016x})", what,
                        to_string(slot.key), slot.run_uid, to_string(header.key), header.run_uid));
    if (slot.leader != leader)
        return Status(Code::corrupt,
                      fmt::format("the {} is that of leader {}", what, uint64_t{slot.leader} + 1));
    if (slot.index_bytes < index_start_bytes || slot.index_bytes > header.index_area_bytes)
        return Status(Code::corrupt, fmt::format("the {} names an index of {} bytes in an area of {}", what,
                                                 slot.index_bytes, header.index_area_bytes));
    if (slot.data_bytes > format::most_bytes)
        return Status(Code::corrupt, fmt::format("the {} names {} bytes of data", what, slot.data_bytes));
    return slot;
}

namespace {

// Checks that an extent lies in one stripe of the leader (without stripes: in the data), and in the
// file.
Status check_extent_place(const Extent& extent, const SharedHeader& header, uint32_t leader,
                          uint64_t file_bytes) {
    uint64_t start = data_offset(header);
    if (extent.bytes == 0 || extent.file_offset < start || extent.file_offset > file_bytes ||
        extent.bytes > file_bytes - extent.file_offset)
        return Status(
            Code::corrupt,
            fmt::format("an extent has {} bytes from byte {}, but the file's data goes from {} to {}",
                        extent.bytes, extent.file_offset, start, file_bytes));
    if (extent.file_offset % header.block_bytes != 0)
        return Status(Code::corrupt, fmt::format("an extent starts at byte {}, which is not a multiple of "
                                                 "the block of {}",
                                                 extent.file_offset, header.block_bytes));
    if (header.stripe_bytes == 0) return Status();
    uint64_t position = extent.file_offset - start;
    if (position / header.stripe_bytes % header.leader_count != leader ||
        extent.bytes > header.stripe_bytes - position % header.stripe_bytes)
        return Status(Code::corrupt,
                      fmt::format("an extent of {} bytes from byte {} is not within a stripe of "
                                  "leader {}",
                                  extent.bytes, extent.file_offset, leader + 1));
    return Status();
}

Status check_extent_stream(const Extent& extent, const std::vector<StreamInfo>& streams) {
    auto stream =
        std::lower_bound(streams.begin(), streams.end(), extent.rank,
                         [](const StreamInfo& candidate, uint32_t rank) { return candidate.rank < rank; });
    if (stream == streams.end() || stream->rank != extent.rank)
        return Status(Code::corrupt,
                      fmt::format("an extent belongs to rank {}, which is not in the index", extent.rank));
    if (extent.stream_offset > stream->stream_bytes ||
        extent.bytes > stream->stream_bytes - extent.stream_offset)
        return Status(
            Code::corrupt,
            fmt::format("an extent holds {} bytes from byte {} of the stream of rank {}, which has only {}",
                        extent.bytes, extent.stream_offset, extent.rank, stream->stream_bytes));
    return Status();
}

Status check_index(const SegmentIndex& index, const SharedHeader& header, const LeaderSlot& slot,
                   uint64_t file_bytes) {
    for (size_t i = 0; i < index.streams.size(); ++i) {
        TAILRACE_TRY(format::check_stream_info(index.streams[i], header.rank_count));
        if (i > 0 && index.streams[i - 1].rank >= index.streams[i].rank)
            return Status(Code::corrupt, fmt::format("rank {} comes after rank {}", index.streams[i].rank,
                                                     index.streams[i - 1].rank));
    }
    uint64_t end = 0;  // of the previous extent
    uint64_t data_bytes = 0;
    for (const auto& extent : index.extents) {
        TAILRACE_TRY(check_extent_place(extent, header, slot.leader, file_bytes));
        TAILRACE_TRY(check_extent_stream(extent, index.streams));
        if (extent.file_offset < end)
            return Status(Code::corrupt,
                          fmt::format("an extent starts at byte {}, but the one before ends at {}",
                                      extent.file_offset, end));
        end = extent.file_offset + extent.bytes;
        data_bytes += extent.bytes;  // extents do not overlap in the file, so this cannot exceed its size
    }
    if (data_bytes != slot.data_bytes)
        return Status(Code::corrupt, fmt::format("the extents have {} bytes, but the slot says {}",
                                                 data_bytes, slot.data_bytes));
    return Status();
}

}  // namespace

Result<SegmentIndex> decode_segment_index(std::span<const std::byte> bytes, const SharedHeader& header,
                                          const LeaderSlot& slot, uint64_t file_bytes) {
    auto name = fmt::format("index of leader {}", slot.leader + 1);
    if (bytes.size() != slot.index_bytes)
        return Status(Code::corrupt, fmt::format("the {} is cut off: it has {} bytes, but the slot says {}",
                                                 name, bytes.size(), slot.index_bytes));
    uint32_t crc = crc32c(bytes);
    if (crc != slot.index_crc)
        return Status(Code::corrupt, fmt::format("the {} has checksum {:08x}, but the slot says {:08x}", name,
                                                 crc, slot.index_crc));
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::index_magic, bytes.size(), name));

    SegmentIndex index;
    auto stream_count = reader.get_count(stream_record_bytes);
    auto extent_count = reader.get_count(extent_record_bytes);
    if (!reader.ok() ||
        stream_count > (reader.remaining() - extent_count * extent_record_bytes) / stream_record_bytes)
        return Status(Code::corrupt,
                      fmt::format("the {} counts more streams and extents than its {} bytes can hold", name,
                                  bytes.size()));
    index.streams.reserve(stream_count);
    for (uint64_t i = 0; i < stream_count; ++i) {
        auto& stream = index.streams.emplace_back();
        stream.rank = reader.get<uint32_t>();
        stream.manifest_crc = reader.get<uint32_t>();
        stream.stream_bytes = reader.get<uint64_t>();
        stream.manifest_bytes = reader.get<uint64_t>();
    }
    index.extents.reserve(extent_count);
    for (uint64_t i = 0; i < extent_count; ++i) {
        auto& extent = index.extents.emplace_back();
        extent.stream_offset = reader.get<uint64_t>();
        extent.bytes = reader.get<uint64_t>();
        extent.file_offset = reader.get<uint64_t>();
        extent.rank = reader.get<uint32_t>();
        reader.get<uint32_t>();
    }
    INVARIANT(reader.ok());
    TAILRACE_TRY(
        check_index(index, header, slot, file_bytes).with_context(fmt::format("the {} is wrong", name)));
    return index;
}

}  // namespace tailrace::internal
