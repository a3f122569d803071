#include "storage/page_cache.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

namespace tailrace::internal {

namespace {

// Headers of older systems lack the call and its number, which is the same on every architecture.
constexpr long cachestat_call = 451;
struct CachestatRange {
    uint64_t offset, bytes;
};
struct Cachestat {  // all counts are in pages
    uint64_t cached, dirty, in_writeback, evicted, recently_evicted;
};

struct Pages {
    uint64_t first = 0, count = 0;
};
Pages pages_of(uint64_t offset, uint64_t bytes) {
    static const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t first = offset / page_bytes;
    return {first * page_bytes, (offset + bytes - 1) / page_bytes - first + 1};
}

std::atomic<bool> has_cachestat{true};

}  // namespace

bool lies_in_page_cache(int descriptor, uint64_t offset, uint64_t bytes) {
    if (bytes == 0 || bytes > INT64_MAX || offset > INT64_MAX - bytes) return false;
    if (has_cachestat) {
        const auto told = cached_by_cachestat(descriptor, offset, bytes);
        if (told || has_cachestat) return told.value_or(false);
    }
    return cached_by_mincore(descriptor, offset, bytes).value_or(false);
}

std::optional<bool> cached_by_cachestat(int descriptor, uint64_t offset, uint64_t bytes) {
    const CachestatRange range{offset, bytes};
    Cachestat found{};
    if (syscall(cachestat_call, descriptor, &range, &found, 0u) != 0) {
        if (errno == ENOSYS) has_cachestat = false;
        return std::nullopt;
    }
    return found.cached >= pages_of(offset, bytes).count;
}

std::optional<bool> cached_by_mincore(int descriptor, uint64_t offset, uint64_t bytes) {
    struct stat info {};
    if (fstat(descriptor, &info) != 0 || info.st_uid != geteuid()) return std::nullopt;
    const auto [start, count] = pages_of(offset, bytes);
    const uint64_t length = offset + bytes - start;
    void* memory = mmap(nullptr, length, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(start));
    if (memory == MAP_FAILED) return std::nullopt;
    std::vector<unsigned char> there(count);
    const bool told = mincore(memory, length, there.data()) == 0;
    munmap(memory, length);
    if (!told) return std::nullopt;
    return std::all_of(there.begin(), there.end(), [](unsigned char page) { return (page & 1) != 0; });
}

}  // namespace tailrace::internal
