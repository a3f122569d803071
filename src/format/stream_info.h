// The check of a StreamInfo that part headers and indexes share. Internal to the format; pure.
#pragma once

#include "base/status.h"
#include "format/part_file.h"

namespace tailrace::internal::format {

// corrupt if the rank does not exist, or if the manifest is not aligned or does not fit the stream.
Status check_stream_info(const StreamInfo& stream, uint32_t rank_count);

}  // namespace tailrace::internal::format
