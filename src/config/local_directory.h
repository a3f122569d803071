// The node-local tier's usual directory.
#pragma once

#include <string>

namespace tailrace::internal {

// <base>/tailrace-<uid>, where the base is memory (/dev/shm) if there is some. Everybody may make directories
// there, also one of that name. So of it and a few names after it (.1, .2, ...) the first that is this user's
// is taken, or else the first that is free; every process of the user, and the next run, comes to the same. A
// directory of another user, or that others may rearrange, is told in the log. Makes nothing.
std::string default_local_dir();

}  // namespace tailrace::internal
