// One collective call on one rank, between the two agreements: drives the parts until this rank is through.
#pragma once

#include <vector>

#include "collective/call_context.h"
#include "requests/memory_list.h"

namespace tailrace::internal::collective {

// Blocks. Statuses of the file phase and of shared memory go to context.failure; what it returns is a failure
// of the transport, after which no further call can be made.
Status exchange(CallContext& context, const RequestList& list, const MemoryList& memory);

// Without an exchange: this rank's requests, one by one. Ends in context.failure and context.file_end.
void access_directly(CallContext& context, Result<File*> file, const RequestList& list,
                     const MemoryList& memory);

}  // namespace tailrace::internal::collective
