#include "small_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace on_tailrace {

void failed_file(const std::string& what, const std::string& path, const std::string& left) {
    const int error = errno;
    throw tailrace::Error(error == ENOSPC || error == EDQUOT ? TAILRACE_NO_SPACE : TAILRACE_IO_ERROR,
                          what + " " + path + ": " + std::strerror(error) + "; " + left + " is as it was");
}

OpenFile::OpenFile(const std::string& path, int flags, unsigned rights, const std::string& left)
    : path_(path), left_(left), file_(::open(path.c_str(), flags, rights)) {
    if (file_ < 0) failed_file("opening", path_, left_);
}

OpenFile::~OpenFile() {
    ::close(file_);
}

void OpenFile::lock() const {
    while (::flock(file_, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return;
        failed_file("locking", path_, left_);
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

std::string read_file(const std::string& path, const std::string& left) {
    std::ifstream in(path, std::ios::binary);
    if (!in) failed_file("opening", path, left);
    std::string text(std::istreambuf_iterator<char>(in), {});
    if (in.bad()) failed_file("reading", path, left);
    return text;
}

void replace_file(const std::string& path, std::string_view text, unsigned rights, const std::string& left) {
    const auto next = path + ".new";
    {
        const OpenFile file(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, rights, left);
        file.write(text);
        file.sync();
    }
    if (::rename(next.c_str(), path.c_str()) != 0) failed_file("renaming " + next + " to", path, left);
    const auto parent = std::filesystem::path(path).parent_path().string();
    OpenFile(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, left).sync();
}

}  // namespace on_tailrace
