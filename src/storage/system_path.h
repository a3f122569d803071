// What the parts of posix_storage share: descriptors, and errors that say what is wrong with a
// path.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tailrace::internal {

// A descriptor that the destructor closes.
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

// The descriptor is closed on exec. If it cannot be opened, it is not valid, and errno is set. A
// relative path begins at the open directory `above`. A new file or directory has the rights
// `mode`, less the umask.
Descriptor open_descriptor(const std::string& path, int flags, int above = AT_FDCWD, mode_t mode = 0666);

// Like open_descriptor with O_CREAT, for a file that several nodes make at the same time. On a
// network file system each node can find the file missing. The second one is then told that it
// exists (EEXIST, though nobody asked for O_EXCL), and after that, for about a second, that it is
// missing, because its node remembers that. So this tries eleven times, and pauses `pause`, twice
// that and so on: two seconds in all. `open` is open_descriptor.
Descriptor open_or_create(const std::string& path, int flags,
                          const std::function<Descriptor(const std::string&, int)>& open,
                          std::chrono::milliseconds pause = std::chrono::milliseconds(1));

// Reserves the space of [offset, offset + bytes), which is a range that a file can have; the file is at least
// so long then. 0, or an errno value: EOPNOTSUPP where the file system cannot reserve, in whatever words it
// says so. After any other one a part may be reserved. It is not given back, because others may have written
// to the file meanwhile, and a cut would take their data. In pieces, because a file system in memory begins a
// piece anew after each signal.
int reserve_space(int file, uint64_t offset, uint64_t bytes);
// The space of a new file's first bytes. Where the file system cannot reserve, zeros are written.
int reserve_or_fill(int file, uint64_t bytes);

std::string parent_of(const std::string& path);

// Whether this user may do that (R_OK, W_OK, X_OK) in the directory.
bool may(const std::string& directory, int mode);

// What explains an errno value about the directories above `path`. Empty if nothing does.
std::string directory_hint(const std::string& path, int error);

Status path_error(int error, std::string_view doing, const std::string& path);

}  // namespace tailrace::internal
