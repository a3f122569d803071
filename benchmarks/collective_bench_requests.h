// What the collective benchmark's programs share: what a rank asks for, by the names on their
// command lines, and the hints that tell the MPI library how to do it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io_patterns.h"

namespace tailrace::internal::patterns {

// `size` is the side of the grid for btio and s3d, about the number of requests of all ranks for
// irregular, and MiB of each rank for contiguous. btio needs a square number of ranks; further
// ranks have nothing.
std::vector<Request> requests_of(const std::string& pattern, uint64_t size, int rank, int ranks);

// Hints that switch two-phase I/O on, with as many aggregators as there are nodes. The caller frees
// them.
MPI_Info two_phase_hints(const char* aggregators, bool real_nodes);

}  // namespace tailrace::internal::patterns
