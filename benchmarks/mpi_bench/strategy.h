// Strategy: one way to write the memory of all ranks to files and to read it back. All calls are
// collective, made by every rank in the same order.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "load.h"

namespace mpi_bench {

// One of the nodes that write the files of a flush.
struct Leader {
    int node = 0;
    double seconds = 0;  // until its own part was durable, without waiting for other leaders
    uint64_t bytes = 0;  // its own bytes and others' that it wrote
};

struct WriteTimes {
    double local_seconds =
        0;  // the program waits, nothing is durable yet: only where a strategy has such a phase
    double flush_seconds = 0;          // until everything is durable on all ranks
    std::vector<Leader> leaders = {};  // at rank 0, where a strategy can tell
};
struct ReadTimes {
    double open_seconds = 0;  // once per run of a program, if the strategy has a session
    double read_seconds = 0;  // until all ranks have their bytes
};

class Strategy {
  public:
    virtual ~Strategy() = default;
    virtual std::string name() const = 0;
    virtual std::string settings() const = 0;  // a line for people

    // `dump` numbers the calls of a strategy, ascending.
    virtual WriteTimes write(const Load& load, const std::string& directory, uint64_t dump) = 0;
    virtual ReadTimes read(const Load& load, const std::string& directory, Memory& target) = 0;
};

// Keys and values of tailrace's configuration.
using Settings = std::vector<std::pair<std::string, std::string>>;

// tailrace's peers, in the order in which they run. --only takes their names.
std::vector<std::unique_ptr<Strategy>> peer_strategies();
// The peers for which this build has no adapter, or whose library was not found, each with the
// reason.
std::vector<std::string> absent_strategies();

// `local_dir` is the place of its node-local tier. `warm_up` epochs come before the timed one.
std::unique_ptr<Strategy> make_tailrace(std::string name, std::string local_dir, Settings settings,
                                        uint32_t warm_up);
std::unique_ptr<Strategy> make_file_per_process(Cache cache);
std::unique_ptr<Strategy> make_shared_file();
std::unique_ptr<Strategy> make_mpi_io(bool two_phase);
std::unique_ptr<Strategy> make_hdf5();              // only if HDF5 was found
std::unique_ptr<Strategy> make_adios2(bool async);  // only if ADIOS2 was found
std::unique_ptr<Strategy> make_genericio();         // only if GenericIO was found

}  // namespace mpi_bench
