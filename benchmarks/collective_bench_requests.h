// What the collective benchmark's programs have in common: what a rank asks for, by the names that their
// command lines have, and how the MPI library is told to do it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io_patterns.h"

namespace tailrace::internal::patterns {

// btio and s3d: `size` is the side of the grid; irregular: about the number of requests of all ranks;
// contiguous: MiB of each rank. btio needs a square number of ranks, others beyond it have nothing.
std::vector<Request> requests_of(const std::string& pattern, uint64_t size, int rank, int ranks);

// Two-phase I/O is switched on, with as many aggregators as there are nodes. The caller frees it.
MPI_Info two_phase_hints(const char* aggregators, bool real_nodes);

}  // namespace tailrace::internal::patterns
