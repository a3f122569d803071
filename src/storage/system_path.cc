#include "storage/system_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <thread>

#include "threads/executor.h"

namespace tailrace::internal {

Descriptor open_descriptor(const std::string& path, int flags, int above, mode_t mode) {
    int number = -1;
    do {
        number = ::openat(above, path.c_str(), flags | O_CLOEXEC, mode);
    } while (number < 0 && errno == EINTR);
    return Descriptor(number);
}

int reserve_space(int file, uint64_t offset, uint64_t bytes) {
    constexpr uint64_t piece = uint64_t{64} << 20;
    const uint64_t end = offset + bytes;
    for (uint64_t at = offset; at < end;) {
        const uint64_t length = std::min(piece, end - at);
        // Linux's own call. The C library's posix_fallocate would write zeros if the file system cannot
        // reserve.
        if (fallocate(file, 0, static_cast<off_t>(at), static_cast<off_t>(length)) == 0) {
            at += length;
            continue;
        }
        if (errno == EINTR) continue;
        // The ranges of these callers are sound, so EINVAL is about the file system, as POSIX allows.
        return errno == EINVAL || errno == ENOSYS ? EOPNOTSUPP : errno;
    }
    return 0;
}

namespace {

// Not posix_fallocate. It does so in some C libraries alone, and there only if the file system answers
// EOPNOTSUPP.
int fill_with_zeros(int file, uint64_t bytes) {
    static constexpr std::array<std::byte, 64 << 10> zeros{};
    for (uint64_t at = 0; at < bytes;) {
        const size_t length = std::min<uint64_t>(zeros.size(), bytes - at);
        const ssize_t written = pwrite(file, zeros.data(), length, static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : EIO;
        at += static_cast<uint64_t>(written);
    }
    return 0;
}

}  // namespace

int reserve_or_fill(int file, uint64_t bytes) {
    const int error = reserve_space(file, 0, bytes);
    return error == EOPNOTSUPP ? fill_with_zeros(file, bytes) : error;
}

Descriptor open_or_create(const std::string& path, int flags,
                          const std::function<Descriptor(const std::string&, int)>& open,
                          std::chrono::milliseconds pause) {
    constexpr int tries = 12;
    Descriptor made;
    for (int i = 0; i < tries; ++i) {
        if (i > 0) sleep_for(pause * (1 << (i - 1)));
        made = open(path, flags | O_CREAT);
        if (made.valid() || errno != EEXIST) break;
        made = open(path, flags);
        if (made.valid() || errno != ENOENT) break;
    }
    return made;
}

std::string parent_of(const std::string& path) {
    size_t end = path.find_last_not_of('/');
    if (end == std::string::npos) return path.empty() ? "." : "/";
    const size_t slash = path.find_last_of('/', end);
    if (slash == std::string::npos) return ".";
    end = path.find_last_not_of('/', slash);
    return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

bool may(const std::string& directory, int mode) {
    return faccessat(AT_FDCWD, directory.c_str(), mode, AT_EACCESS) == 0;
}

std::string directory_hint(const std::string& path, int error) {
    if (error == EROFS) return " (the file system is mounted read-only)";
    if (error != ENOENT && error != ENOTDIR && error != EACCES && error != EPERM) return "";
    std::string directory = parent_of(path);
    struct stat info {};
    if (stat(directory.c_str(), &info) == 0) {
        if (!S_ISDIR(info.st_mode)) return fmt::format(" ('{}' is not a directory)", directory);
        if (!may(directory, W_OK | X_OK)) {
            return fmt::format(" (the directory '{}' may not be written by this user)", directory);
        }
        return "";
    }
    // Climb to the first directory that exists. The one below it is the cause.
    while (true) {
        const std::string above = parent_of(directory);
        if (above == directory) return "";
        if (stat(above.c_str(), &info) == 0) {
            if (!S_ISDIR(info.st_mode)) return fmt::format(" ('{}' is not a directory)", above);
            if (!may(above, X_OK)) {
                return fmt::format(" (the directory '{}' may not be searched by this user)", above);
            }
            return fmt::format(" (the directory '{}' does not exist)", directory);
        }
        directory = above;
    }
}

Status path_error(int error, std::string_view doing, const std::string& path) {
    return errno_status(error, fmt::format("{} '{}'{}", doing, path, directory_hint(path, error)));
}

}  // namespace tailrace::internal
