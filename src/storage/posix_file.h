// PosixFile: an open file of the system. It decides what goes through the page cache and what
// around it. A TransferEngine moves the bytes.
#pragma once

#include <memory>
#include <string>

#include "storage/storage.h"
#include "storage/system_path.h"
#include "storage/transfer_engine.h"

namespace tailrace::internal {

// `direct`: a second descriptor with O_DIRECT. It is not valid if direct I/O is not wanted or not
// possible. `options`: what the caller of open() asked for. `route`: how transfers go; direct only
// with that descriptor. `in_memory`: the file may be mapped.
std::unique_ptr<File> make_posix_file(std::shared_ptr<TransferEngine> engine, std::string path,
                                      Descriptor plain, Descriptor direct, const OpenOptions& options,
                                      Route route, bool in_memory);

}  // namespace tailrace::internal
