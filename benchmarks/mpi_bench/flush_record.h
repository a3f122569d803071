// What a session's record (docs/records.md) tells of one flush.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategy.h"

namespace mpi_bench {

// The leaders that committed `epoch`, ascending by node. Empty if the directory has no record of
// it, because of `record = no` or a flush that failed.
std::vector<Leader> read_leaders(const std::string& record_dir, uint64_t epoch);

}  // namespace mpi_bench
