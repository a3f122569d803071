// MpiRollCall: who has come to a collective call that takes long, for the log. A rank that waits says nothing
// at first. When it has waited for `patience` it tells the two reporters, ranks 0 and 1, that it is there. A
// reporter that waits names the ranks it has not heard of; rank 1 does so only where rank 0 itself has not
// come.
//
// So a call in which nobody waits long costs no message, and one that waits two small ones from each rank.
// Nothing is said where both reporters are missing. Used by the thread that makes the collective calls, from
// within them: possible at every level of thread support.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "threads/executor.h"

namespace tailrace::internal {

class MpiRollCall {
  public:
    using Clock = SteadyClock;

    // Takes a sentence for the log.
    using Warn = std::function<void(const std::string& sentence)>;

    // `communicator` outlives this object; its point-to-point messages with `tag` are the roll call's alone.
    // Without `warn` nobody is asked.
    MpiRollCall(MPI_Comm communicator, int tag, int rank, int size, std::chrono::milliseconds patience,
                Warn warn)
        : communicator_(communicator),
          tag_(tag),
          rank_(rank),
          size_(size),
          patience_(patience),
          warn_(std::move(warn)) {}

    // A collective call begins; every rank makes the same ones in the same order.
    void begin(Clock::time_point now);
    // It still waits. `attempted`: what for ("gathering from all ranks").
    void waiting(Clock::time_point now, std::string_view attempted);
    // Takes in what has come too late to be of use.
    void hear();

  private:
    void say_here();
    void report(std::string_view attempted);

    MPI_Comm communicator_;
    int tag_, rank_, size_;
    std::chrono::milliseconds patience_;
    Warn warn_;
    uint64_t call_ = 0;  // counted alike on all ranks
    Clock::time_point began_;
    bool said_ = false, reported_ = false;
    std::deque<uint64_t> said_calls_;  // what was sent: MPI may look at it for as long as the transport lives
    std::set<int> here_;               // of this call, as a reporter has heard
};

}  // namespace tailrace::internal
