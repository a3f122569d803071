#include "storage/transfer_engine.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace tailrace {

Moved PosixEngine::read(int descriptor, std::span<const iovec> targets, uint64_t offset, size_t unit) {
    std::vector<iovec> rest(targets.begin(), targets.end());
    auto next = rest.begin();
    Moved moved;
    while (true) {
        while (next != rest.end() && next->iov_len == 0) ++next;
        if (next == rest.end()) return moved;
        const auto pieces = std::min<std::ptrdiff_t>(rest.end() - next, IOV_MAX);
        const ssize_t got =
            preadv(descriptor, &*next, static_cast<int>(pieces), static_cast<off_t>(offset + moved.bytes));
        if (got < 0) {
            if (errno == EINTR) continue;
            moved.error = errno;
            return moved;
        }
        auto left = static_cast<size_t>(got);
        moved.bytes += left;
        while (next != rest.end() && left >= next->iov_len) left -= (next++)->iov_len;
        if (next == rest.end() || got == 0 || static_cast<size_t>(got) % unit != 0) return moved;
        next->iov_base = static_cast<char*>(next->iov_base) + left;
        next->iov_len -= left;
    }
}

Moved PosixEngine::write(int descriptor, std::span<const std::byte> source, uint64_t offset, size_t unit) {
    Moved moved;
    while (moved.bytes < source.size()) {
        const ssize_t count = pwrite(descriptor, source.data() + moved.bytes, source.size() - moved.bytes,
                                     static_cast<off_t>(offset + moved.bytes));
        if (count < 0) {
            if (errno == EINTR) continue;
            moved.error = errno;
            return moved;
        }
        if (count == 0) {  // a write that makes no progress would be tried for ever
            moved.error = EIO;
            return moved;
        }
        moved.bytes += static_cast<size_t>(count);
        if (static_cast<size_t>(count) % unit != 0) return moved;
    }
    return moved;
}

int PosixEngine::sync(int descriptor) {
    // fdatasync leaves out times only: the size, and what is needed to find the data, go along.
    while (fdatasync(descriptor) != 0) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

}  // namespace tailrace
