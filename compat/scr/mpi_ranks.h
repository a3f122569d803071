// mpi_ranks.h - the ranks of a duplicate of MPI_COMM_WORLD, so that the program's own messages and ours never
// meet.
#pragma once

#include <memory>

#include "ranks.h"

namespace scr_on_tailrace {

// Collective over MPI_COMM_WORLD. Throws tailrace::Error where MPI is not running or refuses.
std::unique_ptr<Ranks> ranks_of_world();

}  // namespace scr_on_tailrace
