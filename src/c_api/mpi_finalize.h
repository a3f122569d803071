// For the Fortran library, whose programs may reach MPI's end without the MPI_Finalize of libtailrace_mpi. It
// is a private interface between libraries built together, not for programs.
#pragma once

#include "tailrace.h"

namespace tailrace::internal {

// Closes all sessions that the program has left open on communicators, and says so in the log. Collective.
TAILRACE_API void close_before_finalize();

}  // namespace tailrace::internal
