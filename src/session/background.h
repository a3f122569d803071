// Background: what happens to an epoch after this rank has captured it, as the program's session sees it.
//
// There are two kinds. MessageBackground has an agent on every node, which talks to the others while the
// program computes: save and wait are calls of one rank. CollectiveBackground is for transports that allow no
// communication in the background (MPI below MPI_THREAD_MULTIPLE): ranks exchange their news within save and
// wait, which are collective, and nodes write their parts without a word. A kind whose work is done by a
// process of its own, and goes on when the program has ended, belongs here as well.
//
// RankEpochs holds what is known of each epoch; every kind tells it, the session reads it.
//
// save() and end() need the session's lock for saves; the other members may be called from any thread, at any
// time before end(). After it they do nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/agent_messages.h"
#include "agent/job_context.h"
#include "agent/rank_epochs.h"
#include "base/status.h"
#include "capture/local_tier.h"
#include "flush/flush_job.h"
#include "threads/executor.h"

namespace tailrace::internal {

class Background {
  public:
    using Clock = SteadyClock;
    using Deadline = std::optional<Clock::time_point>;  // none: for ever

    // The kind that the transport allows. Collective; the same outcome everywhere. Both outlive it.
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs);
    virtual ~Background() = default;

    // Before begin(): a captured epoch of an earlier run is to be flushed under its own key. All ranks name
    // the same ones in the same order.
    virtual void recover(const LocalEpoch& epoch) = 0;
    // Collective; the same outcome everywhere.
    virtual Status begin() = 0;

    // How many saves this rank has tried: the sequence number of the next one.
    virtual uint64_t sequence() const = 0;
    // One save: waits for room in the queue as queue_policy says, has `capture` take the epoch (with the
    // seconds that were waited), and tells whoever must know. Where a rank is refused (`refused` is not ok)
    // it captures nothing; what else happens is the kind's. The status is of the telling.
    using CaptureEpoch = std::function<Captured(double waited_seconds)>;
    virtual Status save(const Status& refused, const CaptureEpoch& capture) = 0;

    // Takes in what is known by now. Never blocks, is never collective.
    virtual void read_news() = 0;
    // Until these epochs of this session have ended; says whether they have before the deadline.
    virtual Result<bool> wait(const std::vector<uint64_t>& epochs, Deadline deadline) = 0;
    // Until nothing is under way that may still bring this epoch, of whatever run, to the shared directory.
    virtual Status wait_flushed(EpochKey key) = 0;
    // Rank 0: until no file is about to get its name. While that happens a listing may miss some.
    virtual void wait_named() = 0;
    // A recovered epoch whose captured parts are still needed.
    virtual bool recovering(EpochKey key) const = 0;
    // Rank 0: a restore could not read this epoch. No older one goes any more because it is there.
    virtual void found_damaged(EpochKey key) = 0;

    // Waits until every epoch has ended. Collective; the first failure of any rank, the same everywhere.
    virtual Status close() = 0;
    // Ends all threads. After a close() that came to its end messages that nobody will read are taken in.
    virtual void end() = 0;

    virtual uint64_t buffer_bytes_used() const = 0;
};

// What the kinds have in common.

// Whether these epochs have ended, as far as `entries` has them.
bool all_ended(const RankEpochs::Entries& entries, const std::vector<uint64_t>& epochs);
// Whether the next save goes to the shared directory, and must wait there for its turn.
bool waits_for_room(const Config& config, uint64_t sequence);
// This node's part in the flush of a recovered epoch.
FlushJob flush_job_of(const JobContext& context, const LocalEpoch& epoch);
// `work` starts threads. One that cannot be had must be this rank's failure, which the others hear of.
Status with_threads(const std::function<Status()>& work);

}  // namespace tailrace::internal
