// The results of a benchmark: cases, runs, and the machine they were made on. They are written as
// JSON, which can be read back to continue after an interrupt, and as CSV with one row per run.
// Pure, except for asking the machine.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench_case.h"
#include "bench/bench_run.h"

namespace tailrace::internal::tool {

struct BenchMachine {
    std::string host, kernel, processor;
    uint32_t processors = 0;
    uint64_t memory_bytes = 0;
    std::string directory, file_system, local_directory, local_file_system;
    std::string tailrace, threads;  // versions
    uint64_t began_unix_ms = 0;
};
Result<BenchMachine> this_machine(Storage& storage, const std::string& directory,
                                  const std::string& local_directory);
// The reason why results of `now` must not be mixed with those of `earlier`, such as "host a is now
// b". Empty if they may.
std::string difference(const BenchMachine& earlier, const BenchMachine& now);

struct BenchRun {
    size_t number = 0;  // of the case
    uint32_t repetition = 0;
    BenchResult result;
};

struct BenchSuite {
    BenchMachine machine;
    uint32_t repetitions = 1;
    std::vector<BenchCase> cases;
    std::vector<std::string> refused;  // by case: the reason why this system cannot run it, or empty
    std::vector<BenchRun> runs;        // in the order in which they were made

    bool has(size_t number, uint32_t repetition) const;
    bool complete() const;
    uint64_t bytes_left() const;  // that the missing runs have still to write
};

std::string to_json(const BenchSuite& suite);
// corrupt, with the reason, for anything that to_json did not write.
Result<BenchSuite> suite_from_json(std::string_view text);
std::string to_csv(const BenchSuite& suite);

// Statistics of the runs of a case. All are zero if it has none.
struct Spread {
    double median = 0, least = 0, most = 0;
    size_t count = 0;
};
Spread spread_of(std::vector<double> values);
Spread rate_of(const BenchSuite& suite, size_t number);           // bytes per second until durable
Spread received_rate_of(const BenchSuite& suite, size_t number);  // as the paper measures it
Spread dirty_of(const BenchSuite& suite, size_t number);          // BenchResult::dirty_bytes

}  // namespace tailrace::internal::tool
