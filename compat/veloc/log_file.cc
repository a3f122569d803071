#include "log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace veloc_on_tailrace {

std::string log_path(const std::string& directory, const std::string& kind) {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "localhost");
    return directory + "/veloc-" + kind + "-" + host.data() + "-" + std::to_string(::getuid()) + ".log";
}

int open_log(const std::string& path, std::string& why) {
    // Without O_NONBLOCK the opening of a pipe would wait for its reader.
    constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const int file = ::open(path.c_str(), flags, 0600);
    struct stat known {};
    if (file < 0 || ::fstat(file, &known) != 0) {
        why = std::strerror(errno);
    } else if (!S_ISREG(known.st_mode) || known.st_uid != ::geteuid() || known.st_nlink != 1) {
        why = "it is no regular file of this user's own with one name; remove it, or set log_prefix";
    } else {
        return file;
    }
    if (file >= 0) ::close(file);
    return -1;
}

}  // namespace veloc_on_tailrace
