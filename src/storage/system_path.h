// What the parts of posix_storage share: descriptors, and errors that say what is wrong with a path.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tailrace::internal {

// A descriptor that is closed when forgotten.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor() { (void)close(); }

    bool valid() const { return number_ >= 0; }
    int get() const { return number_; }
    int close() {  // 0 or an errno value. Never retried: after EINTR Linux has closed it
        if (number_ < 0) return 0;
        return ::close(std::exchange(number_, -1)) == 0 || errno == EINTR ? 0 : errno;
    }

  private:
    int number_ = -1;
};

// Closed on exec. Not valid, and errno set, when that fails. A relative path begins at the open directory
// `above`; what is made has the rights `mode`, less the umask.
Descriptor open_descriptor(const std::string& path, int flags, int above = AT_FDCWD, mode_t mode = 0666);

// As open_descriptor with O_CREAT, for a file that several nodes make at the same time: on a network file
// system each can find it missing, and who comes second is told that it exists (EEXIST, though nobody asked
// for O_EXCL), and then for a second or so that it is missing, by what its node remembers. Tries again,
// pauses `pause`, twice that and so on, eleven times in all: two seconds. `open` is open_descriptor.
Descriptor open_or_create(const std::string& path, int flags,
                          const std::function<Descriptor(const std::string&, int)>& open,
                          std::chrono::milliseconds pause = std::chrono::milliseconds(1));

std::string parent_of(const std::string& path);

// May this user do that (R_OK, W_OK, X_OK) in the directory?
bool may(const std::string& directory, int mode);

// Says what about the directories above `path` explains an errno value, or nothing.
std::string directory_hint(const std::string& path, int error);

Status path_error(int error, std::string_view doing, const std::string& path);

}  // namespace tailrace::internal
