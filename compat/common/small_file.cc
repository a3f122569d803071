#include "small_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

namespace on_tailrace {

namespace {

constexpr off_t most_bytes = off_t{64} << 20;

}  // namespace

void failed_file(const std::string& what, const std::string& path, const std::string& left) {
    const int error = errno;
    std::string why = std::strerror(error);
    if (error == EISDIR)
        why = "a directory stands where this file should be; move it away";
    else if (error == ELOOP)
        why = "it is a symbolic link, which is not followed; look who made it, and remove it";
    throw tailrace::Error(error == ENOSPC || error == EDQUOT ? TAILRACE_NO_SPACE : TAILRACE_IO_ERROR,
                          what + " " + path + ": " + why + "; " + left + " is as it was");
}

OpenFile::OpenFile(const std::string& path, int flags, unsigned rights, const std::string& left)
    : path_(path), left_(left), file_(::open(path.c_str(), flags, rights)) {
    if (file_ < 0) failed_file("opening", path_, left_);
}

OpenFile::~OpenFile() {
    ::close(file_);
}

// Whoever may read the file can lock it, and never release it.
void OpenFile::lock(std::chrono::milliseconds longest) const {
    const auto deadline = std::chrono::steady_clock::now() + longest;
    while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return;
        if (errno != EWOULDBLOCK) failed_file("locking", path_, left_);
        if (std::chrono::steady_clock::now() >= deadline)
            throw tailrace::Error(TAILRACE_BUSY,
                                  "locking " + path_ + ": another process has held the lock for " +
                                      std::to_string(longest.count()) + " ms; end it (`fuser -v " + path_ +
                                      "` names it); " + left_ + " is as it was");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

void OpenFile::write(std::string_view text) const {
    while (!text.empty()) {
        const auto written = ::write(file_, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) failed_file("writing", path_, left_);
        text.remove_prefix(static_cast<size_t>(written));
    }
}

void OpenFile::sync() const {
    if (::fsync(file_) != 0) failed_file("syncing", path_, left_);
}

void OpenFile::expect_small() const {
    struct stat status {};
    if (::fstat(file_, &status) != 0) failed_file("looking at", path_, left_);
    const char* const fault = !S_ISREG(status.st_mode)      ? "this is no regular file"
                              : status.st_size > most_bytes ? "it has more than 64 MiB"
                                                            : nullptr;
    if (fault != nullptr)
        throw tailrace::Error(TAILRACE_INVALID_ARGUMENT,
                              "reading " + path_ + ": " + fault + "; " + left_ + " is as it was");
}

std::string OpenFile::read() const {
    std::string text;
    char piece[4096];
    while (const auto got = ::read(file_, piece, sizeof piece)) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) failed_file("reading", path_, left_);
        text.append(piece, static_cast<size_t>(got));
    }
    return text;
}

void OpenFile::set_rights(unsigned rights) const {
    if (::fchmod(file_, rights) != 0) failed_file("setting the rights of", path_, left_);
}

std::string read_file(const std::string& path, const std::string& left) {
    const OpenFile file(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0, left);
    file.expect_small();
    return file.read();
}

void replace_file(const std::string& path, std::string_view text, const std::string& left) {
    const auto next = path + ".new";
    struct stat before {};
    const bool was_there = ::stat(path.c_str(), &before) == 0;
    if (::unlink(next.c_str()) != 0 && errno != ENOENT) failed_file("removing", next, left);
    {
        const OpenFile file(next, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666, left);
        if (was_there) file.set_rights(before.st_mode & 0777u);
        file.write(text);
        file.sync();
    }
    if (::rename(next.c_str(), path.c_str()) != 0) failed_file("renaming " + next + " to", path, left);
    const auto parent = std::filesystem::path(path).parent_path().string();
    OpenFile(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, left).sync();
}

}  // namespace on_tailrace
