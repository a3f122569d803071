#include "read/shared_epoch_codec.h"

#include "base/bytes.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {
constexpr uint32_t max_path_bytes = 1 << 16;
constexpr uint64_t min_path_record = 4, min_stream_record = stream_info_bytes + 8, extent_record = 4 + 3 * 8;
}  // namespace

std::vector<std::byte> encode_shared_epoch(const SharedEpoch& epoch) {
    ByteWriter out;
    out.put_string(epoch.job);
    put(out, epoch.key);
    out.put(epoch.run_uid);
    out.put(epoch.rank_count);
    out.put(epoch.stream_bytes);
    out.put(epoch.file_bytes);
    out.put(epoch.committed_unix_ms);
    out.put(static_cast<uint64_t>(epoch.paths.size()));
    for (const auto& path : epoch.paths) out.put_string(path);
    out.put(static_cast<uint64_t>(epoch.streams.size()));
    for (const auto& stream : epoch.streams) {
        put(out, stream.info);
        out.put(static_cast<uint64_t>(stream.extents.size()));
        for (const auto& extent : stream.extents) {
            out.put(extent.file);
            out.put(extent.file_offset);
            out.put(extent.stream_offset);
            out.put(extent.bytes);
        }
    }
    return out.take();
}

Result<SharedEpoch> decode_shared_epoch(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    SharedEpoch epoch;
    epoch.job = in.get_string(max_path_bytes);
    epoch.key = get_key(in);
    epoch.run_uid = in.get<uint64_t>();
    epoch.rank_count = in.get<uint32_t>();
    epoch.stream_bytes = in.get<uint64_t>();
    epoch.file_bytes = in.get<uint64_t>();
    epoch.committed_unix_ms = in.get<uint64_t>();
    const uint64_t paths = in.get_count(min_path_record);
    for (uint64_t i = 0; i < paths && in.ok(); ++i) epoch.paths.push_back(in.get_string(max_path_bytes));
    const uint64_t streams = in.get_count(min_stream_record);
    for (uint64_t i = 0; i < streams && in.ok(); ++i) {
        auto& stream = epoch.streams.emplace_back();
        stream.info = get_stream(in);
        const uint64_t extents = in.get_count(extent_record);
        for (uint64_t e = 0; e < extents && in.ok(); ++e) {
            auto& extent = stream.extents.emplace_back();
            extent.file = in.get<uint32_t>();
            extent.file_offset = in.get<uint64_t>();
            extent.stream_offset = in.get<uint64_t>();
            extent.bytes = in.get<uint64_t>();
            if (extent.file >= epoch.paths.size()) in.set_failed();
        }
    }
    if (!in.at_end())
        return Status(Code::transport, "the list of an epoch's extents could not be decoded (" +
                                           std::to_string(bytes.size()) + " bytes)");
    return epoch;
}

}  // namespace tailrace::internal
