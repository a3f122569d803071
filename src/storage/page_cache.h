// Which bytes of a file lie in the system's page cache. A caller that could also read around it
// asks this.
#pragma once

#include <cstdint>
#include <optional>

namespace tailrace::internal {

// Whether all of [offset, offset + bytes), which must not reach behind the file's end, is in the
// page cache now. False if the system does not tell. With cachestat (Linux 6.5) this is one system
// call, which takes less than a microsecond for 8 MiB. Without it, it takes three (mincore), and
// only for files of this user, because the kernel says of others' files that everything is there.
bool lies_in_page_cache(int descriptor, uint64_t offset, uint64_t bytes);

// The two ways, for tests. Nothing if the system does not tell.
std::optional<bool> cached_by_cachestat(int descriptor, uint64_t offset, uint64_t bytes);
std::optional<bool> cached_by_mincore(int descriptor, uint64_t offset, uint64_t bytes);

}  // namespace tailrace::internal
