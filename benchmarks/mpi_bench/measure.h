// One turn of a strategy: fill the memory anew, write, read cold and warm, compare every byte.
#pragma once

#include <string>

#include "results.h"
#include "strategy.h"

namespace mpi_bench {

// Collective. Throws if a byte differs.
void run_once(Strategy& strategy, Load& load, const std::string& directory, uint64_t dump, Times& times);

}  // namespace mpi_bench
