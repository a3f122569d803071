#include "read/shared_epoch_codec.h"

#include "base/bytes.h"
#include "format/codec.h"

namespace tailrace::internal {

namespace {
constexpr uint32_t max_path_bytes = 1 << 16;
constexpr uint64_t min_path_record = 4, min_stream_record = stream_info_bytes + 8, extent_record = 4 + 3 * 8;
}  // namespace

template <class Codec>
void fields(Codec& codec, SharedEpoch& epoch) {
    codec.text(epoch.job, max_path_bytes);
    codec(epoch.key, epoch.run_uid, epoch.rank_count, epoch.stream_bytes, epoch.file_bytes,
          epoch.committed_unix_ms);
    codec.list(epoch.paths, min_path_record, [&](std::string& path) { codec.text(path, max_path_bytes); });
    codec.list(epoch.streams, min_stream_record, [&](auto& stream) {
        codec(stream.info);
        codec.list(stream.extents, extent_record, [&](auto& extent) {
            codec(extent.file, extent.file_offset, extent.stream_offset, extent.bytes);
        });
    });
}

std::vector<std::byte> encode_shared_epoch(const SharedEpoch& epoch) {
    ByteWriter out;
    put_fields(out, epoch);
    return out.take();
}

Result<SharedEpoch> decode_shared_epoch(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    SharedEpoch epoch;
    get_fields(in, epoch);
    for (const auto& stream : epoch.streams)
        for (const auto& extent : stream.extents)
            if (extent.file >= epoch.paths.size()) in.set_failed();
    if (!in.at_end())
        return Status(Code::transport, "the list of an epoch's extents could not be decoded (" +
                                           std::to_string(bytes.size()) + " bytes)");
    return epoch;
}

}  // namespace tailrace::internal
