// NodeAgent: the background of a node, in its representative rank. One thread drives the messages about
// epochs and the Aggregator; at rank 0's node it also drives the RootLedger, and an EpochFinisher gives names
// and removes files in the shared directory.
//
// Way of an epoch: captured() from every rank of the node (messages, or the own rank's call) -> NodeLedger ->
// NodeCaptured to the root; flush started at once (queue policy wait) or on the root's Decision; MayCommit
// from the root when all nodes have captured it and its arrays can be restored (node_agent_arrays.cc) -> the
// group's coordinator reports GroupResult -> the root gives the files their final names and says EpochEnded
// to every agent, and they to their ranks. A rank hears that an epoch has ended only after the aggregator has
// let go of its part.
//
// When the transport fails in the background, at any node, it is over for the whole job: no epoch could reach
// the shared tier any more. The agent that sees it gives up its flushes and tells the root, the root the
// other agents, and every agent its ranks, so that nobody waits for news that cannot come
// (node_agent_failed.cc).
//
// Public members may be called from the program's threads.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/agent_messages.h"
#include "agent/epoch_finisher.h"
#include "agent/job_context.h"
#include "agent/node_ledger.h"
#include "agent/rank_epochs.h"
#include "agent/recorder.h"
#include "agent/root_ledger.h"
#include "aggregate/aggregator.h"
#include "threads/mutex.h"
#include "threads/work_queue.h"
#include "threads/worker.h"

namespace tailrace::internal {

class NodeAgent {
  public:
    // The context outlives the agent, and so do the epochs of the representative's own rank.
    static Result<std::unique_ptr<NodeAgent>> create(const JobContext& context, RankEpochs& rank_epochs);
    // Ends the threads. Every epoch should have ended before: what has not is given up.
    ~NodeAgent();

    // Before begin(): an epoch of an earlier run, flushed under its own key. Every node's agent gets the
    // same keys in the same order.
    void recover(FlushJob job);
    void begin();

    // The own rank has captured an epoch.
    void captured(Captured capture);
    // The own rank closes its session after `sequence_count` saves: what lies beyond fails on every rank.
    void end_from(uint64_t sequence_count);

    // Another rank's background is over, and its word may not have come: so is this one's.
    void end(const Status& why);

    // Waits until every epoch that this node knows has ended.
    void wait_idle();
    // Waits until the recovered epoch `key` has ended here; at once when there is none.
    void wait_recovered(EpochKey key);
    bool recovering(EpochKey key) const;
    Status recovery_failure() const;  // the first of a recovered epoch
    Status over() const;              // why the background has ended, if it has

    // At rank 0: EpochFinisher's.
    void found_damaged(EpochKey key) { finisher_.found_damaged(key); }

    uint64_t buffer_bytes_used() const;

  private:
    // What has come in of the answer to the root's last question, from this node and the branches below it.
    struct Inquiry {
        ArrayFacts facts;
        size_t answers = 0;
    };
    struct Epoch {
        std::vector<Captured> captures;
        bool complete = false;  // all ranks of the node have captured it
        bool recovered = false;
        FlushJob job;               // of a recovered epoch
        std::optional<bool> flush;  // decided
        bool started = false;       // handed to the aggregator
        Inquiry inquiry;
        bool let_go = false;  // by the aggregator
        std::optional<EpochEnded> ended;
        bool final() const { return ended && (!started || let_go); }
    };

    NodeAgent(const JobContext& context, RankEpochs& rank_epochs);
    void run(const std::stop_token& stop);
    void work(const std::stop_token& stop);
    Result<bool> step();  // whether something moved
    void deliver_posts();
    void hear_the_rest();

    // ---- node_agent_failed.cc
    void end_background(const Status& why);
    // Something was thrown in the agent's thread: as end_background, at once, and without the aggregator.
    void break_down(const Status& why) noexcept;
    void drop_messages() noexcept;
    // Something was thrown in another thread of this agent, which may leave an epoch unfinished.
    void thread_threw(const Status& why);
    Result<bool> step_over();  // in place of step(), from then on
    void tell_that_it_is_over();
    void post_at_best(int rank, const AgentMessage& message);

    // ---- node_agent_arrays.cc
    void judge(const JudgeArrays& order);  // at the root
    void ask(EpochKey key, const ArrayQuestion& question);
    void on_verdict(EpochKey key, const Status& verdict);
    void on_asked(const ArraysAsked& asked);
    void on_facts(EpochKey key, ArrayFacts facts);
    void on_may_commit(const MayCommit& may_commit);
    bool take_facts();
    void remove_refused(const Epoch& epoch);
    void verify(EpochKey key, std::vector<PartPlace> parts);
    bool take_verified();
    void on_verified(EpochKey key, const Status& verified);

    void on_captured(const Captured& capture);
    void on_saves_over(const SavesOver& over);
    void on_node_complete(const NodeLedger::Complete& complete);
    void on_decision(const Decision& decision);
    void on_ended(const EpochEnded& ended);
    // All groups have committed: everybody is told when the files have their final names.
    void commit(const EpochEnded& committed);
    void announce(const EpochEnded& ended);
    void on_result(const FlushResult& result);
    Status on_message(const Message& message);
    void maybe_start(EpochKey key, Epoch& epoch);
    void tell_ranks(const Epoch& epoch, const AgentMessage& message);
    void finish(EpochKey key, Epoch& epoch);
    void forget_old();

    void to_root(const AgentMessage& message);
    void root_input(const AgentMessage& message);
    void carry_out_orders();
    void post(int rank, const AgentMessage& message);
    void post_to_agents(const AgentMessage& message);  // all but the root's own
    void tell_own_rank(const AgentMessage& message);

    static constexpr int root = 0;  // the rank

    const JobContext& context_;
    RankEpochs& rank_epochs_;
    std::unique_ptr<Aggregator> aggregator_;

    // Of the agent's thread, once it runs.
    std::unique_ptr<RootLedger> root_;  // at rank 0's node
    NodeLedger node_ledger_;
    std::map<EpochKey, Epoch> epochs_;
    struct Judging {
        ArrayQuestion asked;
        Residues digest = {};
    };
    std::map<EpochKey, Judging> judging_;  // at the root
    std::optional<Residues> good_arrays_;  // at the root: the digest of the last epoch that was found good
    Status post_failure_;
    bool closing_ = false;    // the own rank saves no more
    size_t words_heard_ = 0;  // SavesOver of other ranks
    Status why_over_;
    bool root_is_over_ = false, told_over_ = false;
    std::chrono::steady_clock::time_point over_since_;

    mutable Mutex mutex_;  // guards what follows
    Condition changed_;
    std::deque<Captured> inbox_ GUARDED_BY(mutex_);
    std::deque<ArraysAnswered> facts_ GUARDED_BY(mutex_);  // of this node's parts
    std::deque<std::pair<EpochKey, Status>> verified_ GUARDED_BY(mutex_);
    std::optional<uint64_t> end_from_ GUARDED_BY(mutex_);
    Status end_ GUARDED_BY(mutex_);
    std::set<EpochKey> open_ GUARDED_BY(mutex_);        // known here, not ended
    std::vector<EpochEnded> named_ GUARDED_BY(mutex_);  // committed and renamed, to be announced
    std::set<EpochKey> recovering_ GUARDED_BY(mutex_);
    Status recovery_failure_ GUARDED_BY(mutex_);
    Status over_ GUARDED_BY(mutex_);
    Status thrown_ GUARDED_BY(mutex_);  // in another thread

    WorkQueue reading_;                   // of this node's captured parts
    EpochFinisher finisher_;              // at rank 0's node
    std::unique_ptr<Recorder> recorder_;  // where there is something to record
    Worker worker_;
};

}  // namespace tailrace::internal
