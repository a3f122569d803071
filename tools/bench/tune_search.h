// TuneSearch: which settings to try next, when to stop, and why the best one is the best. Pure: whoever
// drives it runs the cases and tells the rates.
//
//   coarse   the library's defaults, and few and many writers with every way to the disk, once each, with as
//            many writers and as large buffers as the limits allow
//   repeat   the best three of these twice more
//   refine   the best and its neighbours (one setting changed by one step), twice in turn; the best neighbour
//            takes over when it gains more than the noise; if none does, one that is as fast and takes fewer
//            threads or less memory; and the step is repeated; else the search ends
//
// The noise is how far runs of the same settings lay apart (half of the spread around their median, over all
// cases that were run three times or more), and at least 2 %. Of what lies within the noise of the best, the
// defaults are chosen first, then fewer writers, then less memory. Defaults beyond the limits are measured to
// compare with, and never chosen.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_results.h"

namespace tailrace::internal::tool {

// Four buffers of the smallest size.
inline constexpr uint64_t least_tuned_memory_bytes = uint64_t{1} << 20;

struct TuneLimits {
    uint32_t most_writers = 16;
    uint64_t most_memory_bytes = uint64_t{512} << 20;  // buffers x buffer_bytes
};

class TuneSearch {
  public:
    // `defaults`: the load, and the library's own settings.
    TuneSearch(const BenchCase& defaults, const TuneLimits& limits);

    // What to run next, in this order, each once; nothing when the search is over. Every case must be
    // answered by take() or refuse() before the next call, unless the search is given up.
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
    double noise() const;  // a share, as 0.04
    bool converged() const { return stage_ == Stage::over; }
    // The settings to use, as far as is known now; null when nothing was measured.
    const Tried* choice() const;
    // Why, with numbers, a sentence per line.
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

// "io_uring with direct I/O, 4 writers, 8 buffers of 16 MiB": for people.
std::string settings_text(const BenchCase& bench);

// A configuration file that the library reads: the chosen settings below the explanation.
std::string tune_toml(const TuneSearch::Tried& choice, const std::vector<std::string>& explanation,
                      const BenchMachine& machine);

}  // namespace tailrace::internal::tool
