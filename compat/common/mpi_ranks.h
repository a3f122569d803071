// mpi_ranks.h - the ranks of a duplicate of a communicator, so that the program's own messages and ours never
// meet.
#pragma once

#include <mpi.h>

#include <memory>

#include "ranks.h"

namespace on_tailrace {

// Collective over `communicator`. Throws tailrace::Error where MPI is not running or refuses.
std::unique_ptr<Ranks> ranks_of(MPI_Comm communicator);

}  // namespace on_tailrace
