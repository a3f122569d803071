// Who holds the lock on a directory (flock), as far as this machine can tell.
#pragma once

#include <sys/types.h>

#include <optional>

namespace tailrace::internal {

struct LockOwner {
    pid_t process = 0;
    // Set for a process of another user. Where this one cannot look into it, it took the lock but may have
    // left it to another since.
    std::optional<uid_t> other_user;
};

// Who holds a lock on the directory open as `directory`. Nothing when it is on another machine,
// out of sight (in another container), or has just let go. Of this user's processes never a wrong one.
std::optional<LockOwner> lock_owner(int directory);

}  // namespace tailrace::internal
