// The samples of a strategy, as a table for people and as JSON.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load.h"
#include "strategy.h"

namespace mpi_bench {

using Json = nlohmann::ordered_json;

// In seconds. There is a sample per write (flush and local) or per read.
struct Times {
    std::vector<double> local, flush, open, cold, warm;
    std::vector<std::vector<Leader>> leaders;  // one entry per flush, from strategies that can tell
};

Json json_of(const Times& times);
// The results are by strategies' names.
void print_table(const Load& load, const std::vector<std::unique_ptr<Strategy>>& strategies,
                 const std::map<std::string, Times>& results);

}  // namespace mpi_bench
