// Storage over the system's files: paths, descriptors, direct I/O, space, locks. How bytes move is left to a
// TransferEngine, so that posix and io_uring differ in nothing else.
#pragma once

#include <memory>

#include "storage/storage.h"
#include "storage/transfer_engine.h"

namespace tailrace::internal {

// Plain system calls. Cannot fail.
std::shared_ptr<Storage> make_posix_storage(const FileRules& rules = {});

// The same files, their bytes moved by `engine`.
std::shared_ptr<Storage> make_file_storage(std::shared_ptr<TransferEngine> engine,
                                           const FileRules& rules = {});

}  // namespace tailrace::internal
