// How the index comes from its file and into it.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tailrace_types.hpp>

#include "index.h"

namespace scr_on_tailrace {

namespace {

[[noreturn]] void failed(const std::string& what, const std::string& path) {
    const int error = errno;
    throw tailrace::Error(error == ENOSPC || error == EDQUOT ? TAILRACE_NO_SPACE : TAILRACE_IO_ERROR,
                          what + " " + path + ": " + std::strerror(error) + "; the index is as it was");
}

class File {
  public:
    File(const std::string& path, int flags) : path_(path), file_(::open(path.c_str(), flags, 0666)) {
        if (file_ < 0) failed("opening", path_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() { ::close(file_); }

    // File systems without such locks have one program at a time.
    void lock() const {
        while (::flock(file_, LOCK_EX) != 0) {
            if (errno == EINTR) continue;
            if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return;
            failed("locking", path_);
        }
    }
    void write(std::string_view text) const {
        while (!text.empty()) {
            const auto written = ::write(file_, text.data(), text.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) failed("writing", path_);
            text.remove_prefix(static_cast<size_t>(written));
        }
    }
    void sync() const {
        if (::fsync(file_) != 0) failed("syncing", path_);
    }

  private:
    const std::string path_;
    const int file_;
};

}  // namespace

Index IndexFile::read() const {
    std::error_code error;
    if (!std::filesystem::exists(path_, error) && !error) return {};
    std::ifstream in(path_, std::ios::binary);
    if (!in) failed("opening", path_);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (in.bad()) failed("reading", path_);
    try {
        return Index::decode(text);
    } catch (const tailrace::Error& why) {
        throw tailrace::Error(why.code(), path_ + ": " + why.what() +
                                              "; move the file away to begin without names of datasets");
    }
}

void IndexFile::change(const std::function<void(Index&)>& change) const {
    const File lock(path_ + ".lock", O_RDWR | O_CREAT | O_CLOEXEC);
    lock.lock();
    auto index = read();
    const auto before = index.encode();
    change(index);
    if (index.encode() == before) return;
    const auto next = path_ + ".new";
    {
        const File file(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
        file.write(index.encode());
        file.sync();
    }
    if (::rename(next.c_str(), path_.c_str()) != 0) failed("renaming " + next + " to", path_);
    File(std::filesystem::path(path_).parent_path(), O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync();
}

}  // namespace scr_on_tailrace
