// Who holds the lock on a directory (flock), as far as this machine can tell.
#pragma once

#include <sys/types.h>

#include <optional>

namespace tailrace::internal {

struct LockOwner {
    pid_t process = 0;
    // Set for a process of another user. If this process cannot look into it, that process took the
    // lock, but may have left it to another one since.
    std::optional<uid_t> other_user;
};

// The holder of a lock on the directory open as `directory`. Nothing if the holder is on another
// machine, is out of sight (in another container), or has just released the lock. A process of this
// user that is returned does hold the lock.
std::optional<LockOwner> lock_owner(int directory);

}  // namespace tailrace::internal
