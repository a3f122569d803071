// Background: what happens to an epoch after this rank has captured it, as the session sees it.
//
// There are three kinds:
//   - MessageBackground has an agent on every node. Agents talk to each other while the program
//     computes, so save and wait are calls of one rank.
//   - CollectiveBackground serves transports that allow no communication in the background (MPI
//     below MPI_THREAD_MULTIPLE). Ranks exchange their news within save and wait, which are
//     collective, and nodes write their parts without sending anything.
//   - ProcessBackground leaves the work to the agent processes of the nodes, which reach each other
//     by themselves and go on when the program has ended. No thread of ours runs in the program.
//
// RankEpochs holds what is known of each epoch. Every kind writes to it, and the session reads it.
//
// Whoever calls the steps of a save, or end(), holds the session's lock for saves. Any thread may call
// the other members, at any time before end(). After end() they do nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_link.h"
#include "agent/job_context.h"
#include "base/status.h"
#include "capture/local_tier.h"
#include "flush/flush_job.h"
#include "ledger/agent_messages.h"
#include "ledger/rank_epochs.h"
#include "threads/executor.h"
#include "when/schedule.h"

namespace tailrace::internal {

// What a session has for agents that could carry its epochs. Null: not that.
struct Carriers {
    AgentDoor* door = nullptr;
    // Of a representative. It is given up if the agents carry the session's epochs, because that background
    // has its own connection, and notices by itself if the agent ends.
    std::unique_ptr<AgentLink>* link = nullptr;
    const DirectoryLock* local_lock = nullptr;  // of its node's directory
};

// How a background has begun. The same on every rank.
struct Begun {
    Status failure;
    // Agents were to carry the epochs, and have given up: a background without them may begin instead.
    bool other_may_begin = false;

    Begun(Status why) : failure(std::move(why)) {}
    Begun(Status why, bool other_may) : failure(std::move(why)), other_may_begin(other_may) {}
};

// How a background has closed. The same on every rank, but for the sentence.
struct Closed {
    // What is left for another background to flush.
    enum class Rest {
        nothing,    // because this background has failed
        kept,       // epochs that were kept in the node-local tier, if any
        held,       // the same, but agents have not let go of them in time
        unflushed,  // captured epochs whose agents are gone
    };
    Status failure;  // the first of any rank
    Rest rest = Rest::nothing;

    Closed(Status why) : failure(std::move(why)) {}
    Closed(Status why, Rest left) : failure(std::move(why)), rest(left) {}
};

class Background {
  public:
    using Clock = SteadyClock;
    using Deadline = std::optional<Clock::time_point>;  // empty: wait for ever

    // Creates the kind that settings, agents and transport allow. The first two arguments and the door
    // must outlive it. Collective; the outcome is the same everywhere.
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs,
                                                      const Carriers& carriers = {});
    virtual ~Background() = default;

    // Call before begin(): a captured epoch of an earlier run is to be flushed under its own key.
    // All ranks name the same epochs in the same order.
    virtual void recover(const LocalEpoch& epoch) = 0;
    // Starts the background. Collective.
    virtual Begun begin() = 0;

    // How many saves this rank has tried. This is the sequence number of the next save.
    virtual uint64_t sequence() const = 0;
    // A save has two calls here. Before the capture, wait_for_room() waits for room in the queue as
    // queue_policy says. After the capture, captured() passes on how it went.
    virtual Status wait_for_room() = 0;
    virtual Status captured(Captured news) = 0;
    // Takes the place of these two calls if this rank refuses the save and captures nothing.
    virtual Status save_refused() = 0;

    // Takes in the news that have come. Never blocks, and is never collective.
    virtual void read_news() = 0;
    // Waits until these epochs of this session have ended. Returns whether they ended before the
    // deadline.
    virtual Result<bool> wait(EpochRange epochs, Deadline deadline) = 0;
    // Waits until nothing is under way that may still bring this epoch, of whatever run, to the
    // shared directory.
    virtual Status wait_flushed(EpochKey key) = 0;
    // Whether this is a recovered epoch whose captured parts are still needed.
    virtual bool recovering(EpochKey key) const = 0;
    // At rank 0: a restore could not read this epoch. From now on, no older epoch is removed in its
    // favour.
    virtual void found_damaged(EpochKey key) = 0;

    // This rank's next call of should_save or should_stop (when/schedule.h). Each question's calls are
    // counted by themselves. Waits, if at all, for rank 0's call before this one. Returns timeout after
    // ten minutes; such a call does not count.
    virtual Result<Answer> ask(Question question) = 0;
    // This rank was asked to stop. Some later ask(Question::stop) says so on all ranks.
    virtual void ask_to_stop(const std::string& why) = 0;

    // Waits until every epoch has ended. Collective.
    virtual Closed close() = 0;
    // Ends all threads. If close() has completed, also drops messages that nobody will read.
    virtual void end() = 0;

    virtual uint64_t buffer_bytes_used() const = 0;

    // Whether somebody of whom no news come any more may still have captured parts open. Their files must
    // not get other bytes then.
    virtual bool parts_may_be_open() const { return false; }
};

// Functions that several kinds use.

// Whether these epochs have ended. One that `entries` does not have counts as ended.
bool all_ended(const RankEpochs::Entries& entries, EpochRange epochs);
bool all_ended(const RankEpochs::Entries& entries);
// The same of one epoch. One of another run is not this session's.
bool has_ended(const RankEpochs::Entries& entries, EpochKey key);
// Whether the next save goes to the shared directory and must wait for its turn there, and whether
// there is room for it.
bool waits_for_room(const Config& config, uint64_t sequence);
bool has_room(const Config& config, const RankEpochs::Entries& entries);
// Rank 0 says that a session whose agents could carry its epochs goes on without them.
void say_not_carried(const JobContext& context, const Status& why);
// This node's job in the flush of a recovered epoch.
FlushJob flush_job_of(const JobContext& context, const LocalEpoch& epoch);
// Calls `work`, which starts threads. If a thread cannot be had, returns that as this rank's
// failure, so that the other ranks can hear of it.
Status with_threads(const std::function<Status()>& work);

}  // namespace tailrace::internal
