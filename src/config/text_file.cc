#include "config/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/units.h"

namespace tailrace::internal {

Result<std::string> read_text_file(const std::string& path) {
    const std::string attempted = fmt::format("reading the configuration file {}", path);
    // Open without waiting, so that neither a pipe that nobody writes nor a terminal can hold a job
    // up.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) return errno_status(errno, attempted);
    struct stat info {};
    if (::fstat(file, &info) == 0 && S_ISFIFO(info.st_mode)) {
        ::close(file);
        return Status(Code::invalid_argument,
                      attempted +
                          ": it is a pipe, which gives its text only once, but every process of a job reads "
                          "the configuration: name a file");
    }
    std::string text;
    std::array<char, 16384> piece;
    for (;;) {
        const ssize_t got = ::read(file, piece.data(), piece.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            const int error = errno;
            ::close(file);
            return errno_status(error, attempted);
        }
        if (got == 0) break;
        text.append(piece.data(), static_cast<size_t>(got));
        if (text.size() > MiB) {
            ::close(file);
            return Status(Code::invalid_argument,
                          attempted + ": longer than 1 MiB, so it is not a configuration file");
        }
    }
    ::close(file);
    // Tables of dotted keys nest as deep as there are dots, and the parser destroys its tables
    // recursively.
    constexpr std::ptrdiff_t max_dots = 1000;
    if (std::count(text.begin(), text.end(), '.') > max_dots)
        return Status(
            Code::invalid_argument,
            fmt::format("{}: more than {} dots, so it is not a configuration file", attempted, max_dots));
    return text;
}

}  // namespace tailrace::internal
