#include "sync_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tailrace_types.hpp>

namespace scr_on_tailrace {

namespace {

uint64_t synced(const std::string& path, int flags, const std::string& why) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
    if (file < 0) failed("opening " + path + " " + why);
    struct stat known {};
    const bool good = ::fsync(file) == 0 && ::fstat(file, &known) == 0;
    const int error = errno;
    ::close(file);
    errno = error;
    if (!good) failed("syncing " + path + " " + why);
    return static_cast<uint64_t>(known.st_size);
}

}  // namespace

void failed(const std::string& what) {
    const int error = errno;
    throw tailrace::Error(error == ENOENT                      ? TAILRACE_NOT_FOUND
                          : error == ENOSPC || error == EDQUOT ? TAILRACE_NO_SPACE
                                                               : TAILRACE_IO_ERROR,
                          what + ": " + std::strerror(error));
}

uint64_t sync_file(const std::string& path) {
    return synced(path, 0, "(a file that was routed)");
}

void sync_directories_of(const Prefix& prefix, const std::set<std::string>& keys) {
    std::set<std::string> directories;
    for (const auto& key : keys)
        for (auto above = parent_of(key); directories.insert(above).second && !above.empty();)
            above = parent_of(above);
    for (const auto& directory : directories)
        synced(prefix.path_of(directory), O_DIRECTORY, "(a directory of a file that was routed)");
}

std::string parent_of(const std::string& key) {
    return std::filesystem::path(key).parent_path().string();
}

}  // namespace scr_on_tailrace
