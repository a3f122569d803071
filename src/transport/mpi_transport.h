// The MPI transport: messages, data and collectives on communicators of their own.
//
// Lives in libtailrace_mpi, which sees only what the core's headers hold inline. Never blocks inside MPI
// except to duplicate and free communicators: everything else is a nonblocking call and a test, so that a
// waiting thread can nap instead of burning a core of the program's.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "transport/transport.h"

namespace tailrace::internal {

// Where one MPI call stops and another way begins. The defaults are MPI's; tests make them small.
struct MpiLimits {
    // Counts are ints: the memory of a larger transfer is described by a type made for it.
    uint64_t plain_bytes = 0x7fffffff;
    // What one round of a collective brings to a rank.
    uint64_t collective_bytes = uint64_t{1} << 30;
    // Messages and data are only used from within the program's own calls, by the thread that makes them:
    // then they are possible at every level of thread support. concurrent() stays what it is.
    bool only_in_calls = false;
    // A collective call that waits longer for a rank tells `warn` for which (mpi_roll_call.h).
    std::chrono::milliseconds patience{10000};
    std::function<void(const std::string& sentence)> warn{};
};

// Collective over `communicator`, which is duplicated and may be freed afterwards. The transport must be
// destroyed before MPI_Finalize. MPI must be initialized and not finalized.
//
// Tags are mapped into what MPI offers by the remainder: between the same two ranks, transfers under way at
// one time must have tags that differ modulo MPI_TAG_UB + 1 (at least 32768).
Result<std::unique_ptr<Transport>> make_mpi_transport(MPI_Comm communicator, MpiLimits limits = {});

}  // namespace tailrace::internal
