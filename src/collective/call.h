// One collective call on one rank, between the two agreements. It drives the roles until this rank
// has finished.
#pragma once

#include <vector>

#include "collective/call_context.h"
#include "requests/memory_list.h"

namespace tailrace::internal::collective {

// Blocks. Failures of the file phase and of shared memory go to context.failure. The returned
// status is a failure of the transport; after that no further call can be made.
Status exchange(CallContext& context, const RequestList& list, const MemoryList& memory);

// Works without an exchange: transfers this rank's requests one by one. The outcome is in
// context.failure and context.file_end.
void access_directly(CallContext& context, Result<File*> file, const RequestList& list,
                     const MemoryList& memory);

}  // namespace tailrace::internal::collective
