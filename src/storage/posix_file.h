// PosixFile: an open file of the system. Its bytes are moved by a TransferEngine; here is what goes through
// the page cache and what around it.
#pragma once

#include <memory>
#include <string>

#include "storage/storage.h"
#include "storage/system_path.h"
#include "storage/transfer_engine.h"

namespace tailrace::internal {

// `direct`: a second descriptor with O_DIRECT; not valid where direct I/O is not wanted or cannot be had.
// `options`: what the caller of open() asked for. `route`: how transfers go, direct only with that
// descriptor. `in_memory`: the file may be mapped.
std::unique_ptr<File> make_posix_file(std::shared_ptr<TransferEngine> engine, std::string path,
                                      Descriptor plain, Descriptor direct, const OpenOptions& options,
                                      Route route, bool in_memory);

}  // namespace tailrace::internal
