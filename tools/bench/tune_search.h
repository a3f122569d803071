// TuneSearch: decides which settings to try next, when to stop, and why the best ones are the best.
// Pure: the caller runs the cases and tells the rates.
//
//   coarse   the library's defaults, and few and many writers with every way to the disk, once each. The
//            numbers of writers and the buffers are as large as the limits allow.
//   repeat   the best three of these twice more
//   refine   the best and its neighbours (one setting changed by one step), twice in turn. The best neighbour
//            takes over if it gains more than the noise. Otherwise a neighbour takes over that is as fast and
//            takes fewer threads or less memory. If one took over, the step is repeated; else the search
//            ends.
//
// The noise says how far runs of the same settings differ: half of the spread around their median,
// over all cases that were run three times or more, and at least 2 %. Among the cases that lie
// within the noise of the best, the defaults are chosen first, then fewer writers, then less
// memory. If the defaults exceed the limits, they are measured for comparison, but never chosen.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_results.h"

namespace tailrace::internal::tool {

// Room for four buffers of the smallest size.
inline constexpr uint64_t least_tuned_memory_bytes = uint64_t{1} << 20;

struct TuneLimits {
    uint32_t most_writers = 16;
    uint64_t most_memory_bytes = uint64_t{512} << 20;  // buffers x buffer_bytes
};

class TuneSearch {
  public:
    // `defaults`: the load, and the library's own settings.
    TuneSearch(const BenchCase& defaults, const TuneLimits& limits);

    // The cases to run next, once each, in this order. Empty when the search is over. Every case
    // must be answered by take() or refuse() before the next call, unless the search is given up.
    std::vector<BenchCase> next_round();
    void take(const BenchCase& bench, double bytes_per_second);
    void refuse(const BenchCase& bench);  // this system cannot run it

    struct Tried {
        BenchCase bench;
        std::vector<double> rates;
        bool refused = false;
        double median() const { return spread_of(rates).median; }
    };
    const std::vector<Tried>& tried() const { return tried_; }
    double noise() const;  // a fraction, such as 0.04
    bool converged() const { return stage_ == Stage::over; }
    // The best settings known so far. Null if nothing was measured.
    const Tried* choice() const;
    // The reasons, with numbers; one sentence per line.
    std::vector<std::string> explanation() const;

  private:
    enum class Stage { coarse, repeat, refine, over };
    Tried& find(const BenchCase& bench);
    const Tried* known(const BenchCase& bench) const;
    const Tried* fastest(size_t least_runs) const;
    void add_coarse(std::vector<BenchCase>& round) const;
    std::vector<BenchCase> neighbours(const BenchCase& bench) const;
    bool fits(const BenchCase& bench) const;
    bool is_default(const Tried& tried) const { return tried.bench == defaults_; }

    const BenchCase defaults_;
    const TuneLimits limits_;
    Stage stage_ = Stage::coarse;
    int repeats_ = 0;
    BenchCase centre_;  // of the refinement
    std::vector<BenchCase> around_;
    std::vector<Tried> tried_;
};

// "io_uring (32 requests in flight) around the page cache, 4 writers, 8 buffers of 16 MiB": for
// people.
std::string settings_text(const BenchCase& bench);

// A configuration file that the library can read. The explanation stands above the chosen settings.
std::string tune_toml(const TuneSearch::Tried& choice, const std::vector<std::string>& explanation,
                      const BenchMachine& machine);

}  // namespace tailrace::internal::tool
