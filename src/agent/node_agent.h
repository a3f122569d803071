// NodeAgent: the background of a node, in its representative rank. One thread drives the messages about
// epochs and the Aggregator; at rank 0's node it also drives the RootLedger, and two more threads rename and
// remove files in the shared tier.
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
// Where ranks may not communicate in the background (`quiet`), the thread drives the Aggregator alone: the
// owner hands in jobs by start_job(), takes their results, and tells epochs' ends itself.
//
// Public members may be called from the program's threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/agent_messages.h"
#include "agent/node_ledger.h"
#include "agent/rank_epochs.h"
#include "agent/recorder.h"
#include "agent/root_ledger.h"
#include "aggregate/aggregator.h"
#include "base/work_queue.h"
#include "base/worker.h"
#include "config/config.h"
#include "transport/transport.h"

namespace tailrace {

class NodeAgent {
  public:
    struct Setup {
        const Config* config = nullptr;  // complete; outlives the agent, as all of these
        Topology topology;
        int node = 0;
        Transport* transport = nullptr;
        Storage* local = nullptr;
        Storage* shared = nullptr;
        DirectoryLock* shared_lock = nullptr;  // at rank 0's node, where the file system can lock
        RankEpochs* rank_epochs = nullptr;     // of the representative's own rank
        const ArrayPoints* points = nullptr;
        uint64_t block_bytes = 4096;
        uint64_t stripe_align = 0;
        uint64_t run_uid = 0;
        bool quiet = false;
        SessionRecord session;  // heads the record and the trace
    };
    static Result<std::unique_ptr<NodeAgent>> create(Setup setup);
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

    // quiet only.
    void start_job(FlushJob job);
    std::vector<FlushResult> take_results();
    // Sleeps until there is a result to take or the deadline has passed; says whether there is.
    bool wait_result(std::optional<std::chrono::steady_clock::time_point> deadline);

    // Work in the shared tier, at rank 0's node, done in the background.
    void remove_leftovers(std::vector<EpochKey> keys);
    // A restore could not read this epoch: from now on no older one goes because it is there.
    void found_damaged(EpochKey key);
    // All groups have committed: the files get their final names, then (unless quiet) everybody is told, then
    // keep_shared is applied. wait_idle() waits for the names.
    void commit(const EpochEnded& ended);

    // News for the record; does something at rank 0's node only. Where messages are exchanged for the agent
    // (quiet), its owner hands them in.
    void record(const AgentMessage& news);

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

    explicit NodeAgent(Setup setup);
    void run(const std::stop_token& stop);
    void run_quiet(const std::stop_token& stop);
    void wake();
    Result<bool> step();  // whether something moved
    void deliver_posts();
    void hear_the_rest();

    // ---- node_agent_failed.cc
    void end_background(const Status& why);
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
    void announce(const EpochEnded& ended);
    void apply_retention(EpochKey key);
    Status check_shared_directory() const;
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

    const Setup setup_;
    std::unique_ptr<Aggregator> aggregator_;

    // Of the agent's thread, once it runs.
    std::unique_ptr<RootLedger> root_;  // at rank 0's node, unless quiet
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

    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<Captured> inbox_;
    std::deque<FlushJob> jobs_;
    std::deque<ArraysAnswered> facts_;  // of this node's parts
    std::deque<std::pair<EpochKey, Status>> verified_;
    std::optional<uint64_t> end_from_;
    Status end_;
    std::vector<FlushResult> results_;
    std::set<EpochKey> open_;  // known here, not ended
    size_t being_named_ = 0;
    std::vector<EpochEnded> named_;  // committed and renamed, to be announced
    std::set<EpochKey> recovering_;
    Status recovery_failure_;
    Status over_;
    bool woken_ = false;  // quiet

    // Names come first: a waiting program must not wait for the removal of something old.
    WorkQueue naming_, removing_, reading_;
    std::vector<EpochKey> known_complete_;  // of the removing thread
    std::set<EpochKey> known_damaged_;      // the same
    std::unique_ptr<Recorder> recorder_;    // where there is something to record
    Worker worker_;
};

}  // namespace tailrace
