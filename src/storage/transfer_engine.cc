#include "storage/transfer_engine.h"

#include <limits.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/units.h"

namespace tailrace::internal {

namespace {

// <linux/fs.h> of older systems does not define it.
constexpr int rwf_dontcache = 0x80;

// The kernel starts to write what a call left in the page cache when the call ends, and a file
// takes one such write at a time.
constexpr size_t uncached_write_bytes = MiB;

int flags_of(Route route) {
    return route == Route::uncached ? rwf_dontcache : 0;
}

size_t unit_of(Route route) {
    return route == Route::direct ? direct_unit_bytes : 1;
}

}  // namespace

bool release_at_least(const char* release, int major, int minor) {
    int found_major = 0, found_minor = 0;
    if (std::sscanf(release, "%d.%d", &found_major, &found_minor) != 2) return false;
    return found_major > major || (found_major == major && found_minor >= minor);
}

bool TransferEngine::can_go_uncached(int descriptor) {
    static const bool kernel_can = [] {
        utsname system{};
        return uname(&system) == 0 && release_at_least(system.release, 6, 16);
    }();
    if (!kernel_can) return false;
    // No file reaches that far, so nothing is read. But flags that the file system does not know
    // are refused.
    std::byte byte{};
    const iovec target{&byte, 1};
    return preadv2(descriptor, &target, 1, INT64_MAX - 1, rwf_dontcache) == 0;
}

Moved PosixEngine::read(int descriptor, std::span<const iovec> targets, uint64_t offset, Route route) {
    std::vector<iovec> rest(targets.begin(), targets.end());
    auto next = rest.begin();
    Moved moved;
    while (true) {
        while (next != rest.end() && next->iov_len == 0) ++next;
        if (next == rest.end()) return moved;
        const auto pieces = std::min<std::ptrdiff_t>(rest.end() - next, IOV_MAX);
        const ssize_t got = preadv2(descriptor, &*next, static_cast<int>(pieces),
                                    static_cast<off_t>(offset + moved.bytes), flags_of(route));
        if (got < 0) {
            if (errno == EINTR) continue;
            moved.error = errno;
            return moved;
        }
        auto left = static_cast<size_t>(got);
        moved.bytes += left;
        while (next != rest.end() && left >= next->iov_len) left -= (next++)->iov_len;
        if (next == rest.end() || got == 0 || static_cast<size_t>(got) % unit_of(route) != 0) return moved;
        next->iov_base = static_cast<char*>(next->iov_base) + left;
        next->iov_len -= left;
    }
}

Moved PosixEngine::write(int descriptor, std::span<const std::byte> source, uint64_t offset, Route route) {
    const size_t most = route == Route::uncached ? uncached_write_bytes : source.size();
    Moved moved;
    while (moved.bytes < source.size()) {
        const iovec piece{const_cast<std::byte*>(source.data()) + moved.bytes,
                          std::min(source.size() - moved.bytes, most)};
        const ssize_t count =
            pwritev2(descriptor, &piece, 1, static_cast<off_t>(offset + moved.bytes), flags_of(route));
        if (count < 0) {
            if (errno == EINTR) continue;
            moved.error = errno;
            return moved;
        }
        if (count == 0) {  // a write without progress would be tried for ever
            moved.error = EIO;
            return moved;
        }
        moved.bytes += static_cast<size_t>(count);
        if (static_cast<size_t>(count) % unit_of(route) != 0) return moved;
    }
    return moved;
}

int PosixEngine::sync(int descriptor) {
    // fdatasync leaves out only times. It includes the size and what is needed to find the data.
    while (fdatasync(descriptor) != 0) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

}  // namespace tailrace::internal
