#include "format/part_file.h"

#include <fmt/format.h>

#include "base/invariant.h"
#include "format/codec.h"
#include "format/frame.h"
#include "format/manifest.h"
#include "format/shared_file.h"
#include "format/stream_info.h"

namespace tailrace::internal {

namespace {

constexpr uint32_t flag_for_shared = 1;

}  // namespace

std::vector<std::byte> encode(const PartHeader& header) {
    ByteWriter writer;
    format::begin_record(writer, format::part_header_magic);
    put(writer, header.key);
    writer.put(header.rank_count);
    writer.put(header.run_uid);
    writer.put(header.sequence);
    writer.put(header.stream.rank);
    writer.put(header.for_shared ? flag_for_shared : 0u);
    writer.put(header.stream.stream_bytes);
    writer.put(header.stream.manifest_bytes);
    writer.put(header.stream.manifest_crc);
    writer.put(static_cast<uint32_t>(header.job.size()));
    format::put_job(writer, header.job);
    INVARIANT(header.shared_dir.size() <= max_part_directory_bytes);
    writer.put(static_cast<uint32_t>(header.shared_dir.size()));
    writer.put(uint32_t{0});
    writer.put_bytes(std::as_bytes(std::span(header.shared_dir.data(), header.shared_dir.size())));
    writer.put(header.apart_bytes);
    return format::seal(std::move(writer), part_header_bytes);
}

Result<PartHeader> decode_part_header(std::span<const std::byte> bytes) {
    TAILRACE_ASSIGN(auto reader, format::open_record(bytes, format::part_header_magic, part_header_bytes,
                                                     "captured part's header"));
    PartHeader header;
    header.key = get_key(reader);
    header.rank_count = reader.get<uint32_t>();
    header.run_uid = reader.get<uint64_t>();
    header.sequence = reader.get<uint64_t>();
    header.stream.rank = reader.get<uint32_t>();
    header.for_shared = (reader.get<uint32_t>() & flag_for_shared) != 0;
    header.stream.stream_bytes = reader.get<uint64_t>();
    header.stream.manifest_bytes = reader.get<uint64_t>();
    header.stream.manifest_crc = reader.get<uint32_t>();
    auto job_bytes = reader.get<uint32_t>();
    header.job = format::get_job(reader, job_bytes);
    auto directory_bytes = reader.get<uint32_t>();
    reader.get<uint32_t>();

    constexpr std::string_view what = "the captured part's header is wrong";
    if (auto status = check_job_name(header.job); !status.ok())
        return Status(Code::corrupt, fmt::format("{}: {}", what, status.message()));
    if (directory_bytes > reader.remaining())
        return Status(Code::corrupt, fmt::format("{}: the path of its shared directory has {} bytes, but may "
                                                 "have {}",
                                                 what, directory_bytes, max_read_directory_bytes));
    auto directory = reader.get_bytes(directory_bytes);
    header.shared_dir.assign(reinterpret_cast<const char*>(directory.data()), directory.size());
    // A part of version 1.1 may have a longer path, and no room behind it.
    if (reader.remaining() >= sizeof(header.apart_bytes)) header.apart_bytes = reader.get<uint64_t>();
    if (!header.shared_dir.empty() &&
        (header.shared_dir.front() != '/' || header.shared_dir.find('\0') != std::string::npos))
        return Status(Code::corrupt,
                      fmt::format("{}: the path of its shared directory is not an absolute path", what));
    if (header.rank_count == 0 || header.rank_count > max_ranks)
        return Status(Code::corrupt, fmt::format("{}: its number of ranks is {}", what, header.rank_count));
    TAILRACE_TRY(format::check_stream_info(header.stream, header.rank_count).with_context(what));
    if (header.apart_bytes > header.stream.stream_bytes - header.stream.manifest_bytes)
        return Status(Code::corrupt, fmt::format("{}: {} bytes are to lie apart, of a stream of {} bytes",
                                                 what, header.apart_bytes, header.stream.stream_bytes));
    return header;
}

namespace format {

Status check_stream_info(const StreamInfo& stream, uint32_t rank_count) {
    if (stream.rank >= rank_count)
        return Status(Code::corrupt, fmt::format("rank {} of {} does not exist", stream.rank, rank_count));
    if (stream.stream_bytes > most_bytes || stream.manifest_bytes > stream.stream_bytes ||
        stream.manifest_bytes % stream_alignment != 0)
        return Status(Code::corrupt, fmt::format("rank {} has a manifest of {} bytes in a stream of {} bytes",
                                                 stream.rank, stream.manifest_bytes, stream.stream_bytes));
    return Status();
}

}  // namespace format

}  // namespace tailrace::internal
