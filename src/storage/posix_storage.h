// Storage over the system's files: paths, descriptors, direct I/O, space, locks. A TransferEngine
// moves the bytes, so posix and io_uring differ in nothing else.
#pragma once

#include <memory>

#include "storage/storage.h"
#include "storage/system_path.h"
#include "storage/transfer_engine.h"

namespace tailrace::internal {

// Uses plain system calls. Cannot fail.
std::shared_ptr<Storage> make_posix_storage(const FileRules& rules = {});

// The same files; `engine` moves their bytes.
std::shared_ptr<Storage> make_file_storage(std::shared_ptr<TransferEngine> engine,
                                           const FileRules& rules = {});

// A directory lock that another process has handed over (DirectoryLock::descriptor). invalid_argument
// if `path` does not lead to that directory.
Result<std::unique_ptr<DirectoryLock>> adopt_lock(Descriptor directory, const std::string& path);

}  // namespace tailrace::internal
