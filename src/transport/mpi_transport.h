// The MPI transport: messages, data and collectives on communicators of their own.
//
// It lives in libtailrace_mpi, which sees only what the core's headers hold inline. It never blocks
// inside MPI, except when it is made and when it ends. Everything else is a nonblocking call and
// a test. So a waiting thread can nap instead of taking a core from the program.
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

// The limits at which one MPI call is replaced by another method. The defaults are MPI's; tests
// make them small.
struct MpiLimits {
    // Counts are ints. The memory of a larger transfer is described by a type made for it.
    uint64_t plain_bytes = 0x7fffffff;
    // The most bytes that one round of a collective brings to a rank.
    uint64_t collective_bytes = uint64_t{1} << 30;
    // Messages and data are used only from within the program's own calls, by the thread that makes
    // them. Then they are possible at every level of thread support. concurrent() does not change.
    bool only_in_calls = false;
    // If a collective call waits longer than this for ranks, `warn` is told which
    // (mpi_roll_call.h).
    std::chrono::milliseconds patience{10000};
    std::function<void(const std::string& sentence)> warn{};
};

// Collective over `communicator`, which is duplicated and may be freed afterwards. MPI must be
// initialized and not finalized. The transport must be destroyed before MPI_Finalize. If a rank has no
// memory for it, no rank gets one.
//
// Tags are mapped to MPI's tags by the remainder. So transfers between the same two ranks that are
// under way at one time must have tags that differ modulo MPI_TAG_UB + 1 (at least 32768).
Result<std::shared_ptr<Transport>> make_mpi_transport(MPI_Comm communicator, MpiLimits limits = {});

}  // namespace tailrace::internal
