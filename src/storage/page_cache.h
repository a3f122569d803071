// Which bytes of a file lie in the system's page cache, for who could also read around it.
#pragma once

#include <cstdint>
#include <optional>

namespace tailrace::internal {

// All of [offset, offset + bytes), of which none lies behind the file's end, is in the page cache now. False
// where the system does not say. One system call where the kernel has cachestat (Linux 6.5), which takes less
// than a microsecond for 8 MiB; else three (mincore), for files of this user only: the kernel tells of
// others' that all is there.
bool lies_in_page_cache(int descriptor, uint64_t offset, uint64_t bytes);

// The two ways, for tests. Nothing where the system does not say.
std::optional<bool> cached_by_cachestat(int descriptor, uint64_t offset, uint64_t bytes);
std::optional<bool> cached_by_mincore(int descriptor, uint64_t offset, uint64_t bytes);

}  // namespace tailrace::internal
