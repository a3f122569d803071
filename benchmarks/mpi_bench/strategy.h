// Strategy: one way to bring the memory of all ranks into files and back. All calls are collective, made by
// every rank in the same order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "load.h"

namespace mpi_bench {

struct WriteTimes {
    double local_seconds =
        0;  // the program waits, nothing is durable yet: only where a strategy has such a phase
    double flush_seconds = 0;  // until everything is durable on all ranks
};

class Strategy {
  public:
    virtual ~Strategy() = default;
    virtual std::string name() const = 0;
    virtual std::string settings() const = 0;  // a line for people

    // `dump` numbers the calls of a strategy, ascending.
    virtual WriteTimes write(const Load& load, const std::string& directory, uint64_t dump) = 0;
    virtual void read(const Load& load, const std::string& directory, std::span<std::byte> target) = 0;
};

// Those there are, in the order in which they are run; `tailrace_settings` are keys and values of the first.
// "two-phase" before "independent" and so on: the names are what --only takes.
std::vector<std::unique_ptr<Strategy>> all_strategies(
    const std::vector<std::pair<std::string, std::string>>& tailrace_settings);
// Peers that this build has no adapter for, or whose library was not found, each with the reason.
std::vector<std::string> absent_strategies();

std::unique_ptr<Strategy> make_tailrace(const std::vector<std::pair<std::string, std::string>>& settings);
std::unique_ptr<Strategy> make_file_per_process(Cache cache);
std::unique_ptr<Strategy> make_shared_file();
std::unique_ptr<Strategy> make_mpi_io(bool two_phase);
std::unique_ptr<Strategy> make_hdf5();  // only where HDF5 was found

}  // namespace mpi_bench
