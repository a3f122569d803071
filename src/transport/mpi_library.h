// Two mistakes of how a program meets its MPI library, found before they do harm.
#pragma once

#include <mpi.h>

#include <string>

namespace tailrace::internal {

// A warning if `communicator` and the world are this process alone, but a launcher says that it started
// several; else empty.
std::string suspected_singleton(MPI_Comm communicator);

}  // namespace tailrace::internal
