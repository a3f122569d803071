#include "measure.h"

#include <algorithm>

namespace mpi_bench {

void run_once(Strategy& strategy, Load& load, const std::string& directory, uint64_t dump, Times& times) {
    fill(load, dump);
    const WriteTimes written = strategy.write(load, directory, dump);
    times.local.push_back(written.local_seconds);
    times.flush.push_back(written.flush_seconds);
    if (!written.leaders.empty()) times.leaders.push_back(written.leaders);
    Memory found(load.memory.size());
    for (std::vector<double>* seconds : {&times.cold, &times.warm}) {
        std::fill(found.begin(), found.end(), std::byte{0});
        const ReadTimes read = strategy.read(load, directory, found);
        seconds->push_back(read.read_seconds);
        times.open.push_back(read.open_seconds);
        check(load, dump, found, strategy.name());
    }
}

}  // namespace mpi_bench
