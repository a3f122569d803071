// The default directory of the node-local tier.
#pragma once

#include <string>

namespace tailrace::internal {

// <base>/tailrace-<uid>, where the base is in memory (/dev/shm) if possible. Everybody may make
// directories there, also one with this name. So this name and a few after it (.1, .2, ...) are
// tried. The first directory that belongs to this user is taken, otherwise the first name that is
// free. Every process of the user, and the next run, arrives at the same one. If a directory is
// passed over because it belongs to another user, or others may change it, the log says so. Makes
// nothing.
std::string default_local_dir();

}  // namespace tailrace::internal
