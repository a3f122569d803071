// Whether what lies in the files of an epoch is exactly a stream. A reader asks this of an epoch that it
// opens, and a commit of one that it writes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "catalog/catalog.h"

namespace tailrace::internal {

// corrupt if the stream's extents, ascending by stream_offset, have gaps or overlap, or end elsewhere.
// `paths`: of the files. `listed_in`: a file whose index names the stream, for the sentence.
Status check_cover(const StreamMap& stream, const std::vector<std::string>& paths, uint32_t listed_in);

}  // namespace tailrace::internal
