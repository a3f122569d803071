// What a rank of the collective benchmark's programs asks for, by the names that its command line has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io_patterns.h"

namespace tailrace::patterns {

// btio and s3d: `size` is the side of the grid; irregular: about the number of requests of all ranks;
// contiguous: MiB of each rank. btio needs a square number of ranks, others beyond it have nothing.
std::vector<Request> requests_of(const std::string& pattern, uint64_t size, int rank, int ranks);

}  // namespace tailrace::patterns
