// Statistics: the costs of collective calls and the gain of the layers, on one rank since the file
// was opened. add() makes those of all ranks. The terms are those of the paper's figures 4 to 8.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "threads/executor.h"

namespace tailrace::internal::collective {

struct Statistics {
    // Sums over ranks.
    uint64_t bytes = 0;
    uint64_t requests = 0;               // as the ranks gave them
    uint64_t requests_after_local = 0;   // as global aggregators received them
    uint64_t requests_after_global = 0;  // as they were coalesced again before the file
    // Those of them that exist only because of the borders between one aggregator's windows.
    uint64_t cuts_after_local = 0, cuts_after_global = 0;
    uint64_t file_operations = 0;    // reads and writes of the file
    uint64_t overlapping_bytes = 0;  // that more than one rank asked for
    uint64_t messages = 0;           // messages and transfers between different ranks

    // Equal on every rank, or the greatest of all.
    uint64_t calls = 0;
    uint64_t direct_calls = 0, two_phase_calls = 0, two_layer_calls = 0;
    uint64_t local_aggregators = 0, global_aggregators = 0;  // p_l and p_g of the last call that had any
    uint64_t collectives = 0;  // collective steps of the transport, for which every rank waits
    // Messages and transfers that had to follow one another, in the longest chain of each call. A
    // call takes at least this many times the time of one message.
    uint64_t steps = 0;
    uint64_t rounds = 0;
    uint64_t receives = 0;  // the most peers that told one global aggregator of requests, summed over calls
    uint64_t memory_bytes = 0;  // the most memory a rank took for data under way
    // The most messages and transfers that one rank has sent; that rank is an aggregator. Only in
    // the statistics of all ranks.
    uint64_t messages_of_one = 0;

    // Seconds of the slowest rank.
    double total = 0;
    double gather = 0;    // local aggregators merging their ranks' requests
    double copy = 0;      // ranks copying between their memory and the group's
    double scatter = 0;   // global aggregators copying between packed bytes and windows
    double file = 0;      // the file phase, which runs beside the others
    double exchange = 0;  // the rest: messages, transfers and waiting

    void add(const Statistics& other);
};

std::vector<std::byte> encode(const Statistics& statistics);
Result<Statistics> decode_statistics(std::span<const std::byte> bytes);

// Adds the time between its construction and its end to `seconds`.
class Stopwatch {
  public:
    explicit Stopwatch(double& seconds) : seconds_(seconds) {}
    ~Stopwatch() { seconds_ += seconds(); }
    double seconds() const {  // so far
        return std::chrono::duration<double>(SteadyClock::now() - begin_).count();
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

  private:
    double& seconds_;
    const std::chrono::steady_clock::time_point begin_ = SteadyClock::now();
};

}  // namespace tailrace::internal::collective
