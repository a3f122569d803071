// tailrace drain --forget: removes what the node-local tier holds for a shared directory that is gone for
// good (drain/forgetting.h).
//
//   1  lock the nodes' directories that hold something (needed only with --yes)
//   2  look again, and whether the shared directory is there
//   3  say what would be removed
//   4  remove it
#pragma once

#include <string>

#include "command.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

struct ForgetOptions {
    std::string shared_dir;
    std::string job;  // empty: all
    bool yes = false;
    bool force = false;  // also if the directory is there
    bool json = false;
};

Exit forget(const ForgetOptions& options, const std::string& local_dir, Storage& local, Storage& shared);

}  // namespace tailrace::internal::tool
