// One turn of a strategy: filled anew, written, read cold and warm, every byte compared.
#pragma once

#include <string>

#include "results.h"
#include "strategy.h"

namespace mpi_bench {

// Collective. Throws when a byte differs.
void run_once(Strategy& strategy, Load& load, const std::string& directory, uint64_t dump, Times& times);

}  // namespace mpi_bench
