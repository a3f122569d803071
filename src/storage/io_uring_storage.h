// The io_uring storage: the files of posix_storage, with large transfers split into many requests
// in flight at once. Only the .cc includes <liburing.h>.
#pragma once

#include <memory>

#include "storage/storage.h"

namespace tailrace::internal {

// unsupported, with the kernel's reason, if no ring can be made. queue_depth: requests in flight
// per calling thread. request_bytes: rounded up to a multiple of 4096, and at most 1 GiB.
Result<std::shared_ptr<Storage>> make_io_uring_storage(unsigned queue_depth, uint64_t request_bytes,
                                                       const FileRules& rules = {});

}  // namespace tailrace::internal
