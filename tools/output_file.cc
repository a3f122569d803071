#include "output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "storage/system_path.h"

namespace tailrace::internal::tool {

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path, uint64_t bytes,
                                                       bool replace) {
    if (path.empty() || path.back() == '/')
        return Status(Code::invalid_argument, fmt::format("'{}' is not the name of a file", path));
    struct stat there;
    if (!replace && lstat(path.c_str(), &there) == 0)
        return Status(Code::already_exists,
                      fmt::format("'{}' exists already: replace it with --force", path));
    if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode))
        return Status(Code::invalid_argument,
                      fmt::format("'{}' was left as it is: it is a directory, a device or a pipe, and only "
                                  "files are replaced",
                                  path));
    std::unique_ptr<OutputFile> file(new OutputFile(path));
    // The name may be taken by somebody else's link or file. It is removed, never written through.
    if (unlink(file->partial_.c_str()) != 0 && errno != ENOENT)
        return errno_status(errno, fmt::format("removing '{}'", file->partial_));
    file->descriptor_ =
        open(file->partial_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file->descriptor_ < 0) {
        Status failure = errno_status(errno, fmt::format("creating '{}'", file->partial_));
        // The code must not be not_found: a missing directory is not a missing epoch.
        return Status(Code::io_error, failure.message());
    }
    if (bytes == 0) return file;
    if (const int error = reserve_or_fill(file->descriptor_, bytes); error != 0)
        return errno_status(error, fmt::format("reserving {} bytes for '{}'", bytes, file->partial_));
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor_, 0);
    if (memory == MAP_FAILED)
        return errno_status(errno, fmt::format("mapping {} bytes of '{}'", bytes, file->partial_));
    file->memory_ = std::span(static_cast<std::byte*>(memory), bytes);
    return file;
}

Status OutputFile::commit() {
    if (!memory_.empty() && msync(memory_.data(), memory_.size(), MS_SYNC) != 0)
        return errno_status(errno, fmt::format("writing {} bytes of '{}'", memory_.size(), partial_));
    if (rename(partial_.c_str(), path_.c_str()) != 0)
        return errno_status(errno, fmt::format("renaming '{}' to '{}'", partial_, path_));
    close(descriptor_);
    descriptor_ = -1;
    return Status();
}

OutputFile::~OutputFile() {
    if (!memory_.empty()) munmap(memory_.data(), memory_.size());
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(partial_.c_str());
}

}  // namespace tailrace::internal::tool
