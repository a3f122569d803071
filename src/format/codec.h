// Epoch keys and stream information as they travel in messages. Files hold keys in the same form.
// Pure.
#pragma once

#include "base/bytes.h"
#include "format/epoch_key.h"
#include "format/part_file.h"

namespace tailrace::internal {

inline constexpr uint64_t epoch_key_bytes = 8 + 4;
inline constexpr uint64_t stream_info_bytes = 4 + 8 + 8 + 4;

inline void put(ByteWriter& out, const EpochKey& key) {
    out.put(key.epoch);
    out.put(key.run);
}
inline EpochKey get_key(ByteReader& in) {
    EpochKey key;
    key.epoch = in.get<uint64_t>();
    key.run = in.get<uint32_t>();
    return key;
}

inline void put(ByteWriter& out, const StreamInfo& stream) {
    out.put(stream.rank);
    out.put(stream.stream_bytes);
    out.put(stream.manifest_bytes);
    out.put(stream.manifest_crc);
}
inline StreamInfo get_stream(ByteReader& in) {
    StreamInfo stream;
    stream.rank = in.get<uint32_t>();
    stream.stream_bytes = in.get<uint64_t>();
    stream.manifest_bytes = in.get<uint64_t>();
    stream.manifest_crc = in.get<uint32_t>();
    return stream;
}

// As FieldReader calls them.
inline void get(ByteReader& in, EpochKey& key) {
    key = get_key(in);
}
inline void get(ByteReader& in, StreamInfo& stream) {
    stream = get_stream(in);
}

}  // namespace tailrace::internal
