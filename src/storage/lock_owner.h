// Who holds the lock on a directory (flock), as far as this machine can tell.
#pragma once

#include <sys/types.h>

#include <optional>

namespace tailrace {

// The process that holds the exclusive lock on the directory open as `directory`. Nothing when it is on
// another machine, out of sight (another user's, another container's), or has just let go. Never another
// process.
std::optional<pid_t> lock_owner(int directory);

}  // namespace tailrace
