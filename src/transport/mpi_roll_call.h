// MpiRollCall: tells the log which ranks have not come to a collective call that takes long.
//
// A rank that waits sends nothing at first. When it has waited for `patience`, it tells the two
// reporters, ranks 0 and 1, that it is there. A reporter that waits logs the ranks it has not heard
// of. Rank 1 does so only if rank 0 itself has not come. So a call in which nobody waits long costs
// no message, and a long one costs two small messages from each rank. If both reporters are
// missing, nothing is logged.
//
// The thread that makes the collective calls uses it, from within them. So it works at every level
// of thread support.
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

    // The communicator is looked at with each call, and must outlive this object. Only the roll call may send
    // point-to-point messages with `tag` on it. Without `warn` no messages are sent.
    MpiRollCall(const MPI_Comm& communicator, int tag, int rank, int size, std::chrono::milliseconds patience,
                Warn warn)
        : communicator_(communicator),
          tag_(tag),
          rank_(rank),
          size_(size),
          patience_(patience),
          warn_(std::move(warn)) {}

    // A collective call begins. Every rank makes the same ones in the same order.
    void begin(Clock::time_point now);
    // The call still waits. `attempted` says for what ("gathering from all ranks").
    void waiting(Clock::time_point now, std::string_view attempted);
    // Receives messages that came too late to be of use.
    void hear();

  private:
    void say_here();
    void report(std::string_view attempted);

    const MPI_Comm& communicator_;
    int tag_, rank_, size_;
    std::chrono::milliseconds patience_;
    Warn warn_;
    uint64_t call_ = 0;  // equal on all ranks
    Clock::time_point began_;
    bool said_ = false, reported_ = false;
    std::deque<uint64_t> said_calls_;  // what was sent: MPI may read it as long as the transport lives
    std::set<int> here_;               // for a reporter: the ranks it has heard of in this call
};

}  // namespace tailrace::internal
