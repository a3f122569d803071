// NodeAgent: the background of a node, in its representative rank or in an agent process. One thread
// drives the messages about epochs and the Aggregator. At rank 0's node it also drives the RootLedger, and an
// EpochFinisher gives names and removes files in the shared directory.
//
// The way of an epoch:
//   1. Every rank of the node calls captured() or sends Captured. The NodeLedger collects these,
//      and NodeCaptured goes to the root.
//      With the setting redundancy, the node's set then makes its protect objects (protect/protector.h),
//      and NodeProtected goes to the root. When all nodes have sent it, the root sends EpochProtected.
//   2. After that the flush starts: at once with queue policy wait, otherwise on the root's Decision.
//   3. When all nodes have captured the epoch and it can be restored (CommitChecks), the
//      root sends MayCommit.
//   4. The group's coordinator sends GroupResult to the root.
//   5. The root gives the files their final names and sends EpochEnded to every agent, and agents
//      send it to their ranks.
// A rank hears that an epoch has ended only after the aggregator has let go of its captured part.
//
// Agents also carry the answers to should_save and should_stop (node_agent_answers.cc).
//
// When the transport fails in the background of any node, the background ends for the whole job,
// because no epoch could reach the shared tier any more. The agent that notices gives up its
// flushes and tells the root. The root tells the other agents, and every agent tells its ranks. So
// no rank waits for news that cannot come (node_agent_failed.cc).
//
// Any thread of the program may call the public members, except recover() and begin(), which the opening
// session calls.
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

#include "agent/commit_checks.h"
#include "agent/epoch_finisher.h"
#include "agent/job_context.h"
#include "agent/own_rank.h"
#include "agent/plan_keeper.h"
#include "agent/recorder.h"
#include "aggregate/aggregator.h"
#include "ledger/agent_messages.h"
#include "ledger/node_ledger.h"
#include "ledger/root_ledger.h"
#include "protect/protector.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal {

class NodeAgent final : private CommitChecks::Agent {
  public:
    // The context and the own rank must outlive the agent.
    static Result<std::unique_ptr<NodeAgent>> create(const JobContext& context, OwnRank& own_rank);
    // Ends the threads. An epoch that has not ended yet is given up.
    ~NodeAgent();

    // Call before begin(): flushes an epoch of an earlier run under its own key. Every node's agent
    // gets the same keys in the same order.
    void recover(FlushJob job);
    void begin();

    // The agent's own rank has captured an epoch.
    void captured(Captured capture);
    // The agent's own rank closes its session after `sequence_count` saves. Later saves fail on
    // every rank.
    void end_from(uint64_t sequence_count);

    // The background has ended at another rank, whose message may not have come. So it ends here,
    // too.
    void end(const Status& why);

    // ---- node_agent_answers.cc
    // At rank 0, which has heard it itself: all other ranks hear it, in the order of these calls.
    void announce(const Announcement& announcement);
    void end_answers(const Status& why);
    // The agent's own rank was asked to stop. Rank 0 hears of it.
    void ask_to_stop(const std::string& why);
    // At rank 0: why the first rank that was asked to stop was asked.
    std::optional<std::string> asked_to_stop() const;

    // Waits until every epoch that this node knows has ended.
    void wait_idle();
    // Waits until the recovered epoch `key` has ended here. Returns at once if there is none.
    void wait_recovered(EpochKey key);
    bool recovering(EpochKey key) const;
    size_t open_epochs() const;       // known here, not ended
    Status recovery_failure() const;  // the first failure of a recovered epoch
    Status why_ended() const;         // why the background has ended; ok if it has not

    // At rank 0 only: see EpochFinisher.
    void found_damaged(EpochKey key) { finisher_.found_damaged(key); }

    uint64_t buffer_bytes_used() const;

  private:
    // The flush of an epoch on this node.
    //   queued    its turn comes, unless it ends before
    //   running   the aggregator has the job, and reads captured parts
    //   over      it reads them no more
    enum class Flushing { not_begun, queued, running, over };
    // The work of this node's set. While it runs, the protector reads captured parts. If it fails, it is
    // `none` again.
    enum class Protection { none, running, done };
    // Of an epoch that is kept local: the group hears what this node brings, and then this node knows what
    // all nodes of the group bring.
    enum class LocalPlan { none, offered, known };
    struct Epoch {
        std::vector<Captured> captures;
        bool complete = false;              // all ranks of the node have captured it
        std::optional<FlushJob> recovered;  // of an earlier run: its job, which is moved when it starts
        std::optional<bool> flush;          // empty: not decided yet
        Flushing flushing = Flushing::not_begun;
        Protection protection = Protection::none;
        LocalPlan local_plan = LocalPlan::none;
        std::optional<EpochEnded> ended;
        bool awaits_plan() const {
            return ended->state == EpochState::kept_local && local_plan != LocalPlan::known;
        }
        bool final() const {
            return ended && flushing != Flushing::running && protection != Protection::running;
        }
    };

    NodeAgent(const JobContext& context, OwnRank& own_rank);
    void run(const std::stop_token& stop);
    void work(const std::stop_token& stop);
    Result<bool> step();  // returns whether something moved
    void deliver_posts();
    void hear_late_messages();

    // ---- node_agent_failed.cc
    void end_background(const Status& why);
    // Something was thrown in the agent's thread. Does what end_background does, but at once and
    // without the aggregator.
    void break_down(const Status& why) noexcept;
    bool tell_of_break_down() noexcept;  // returns whether all could be told
    void drop_messages() noexcept;
    // Something was thrown in another thread of this agent, which may leave an epoch unfinished.
    void thread_threw(const Status& why);
    Result<bool> step_ended();  // takes the place of step() once the background has ended
    void announce_end();
    void post_at_best(int rank, const AgentMessage& message);

    // ---- for commit_checks_
    bool has_ended(EpochKey key) override { return epochs_[key].ended.has_value(); }
    std::vector<PartPlace> parts_of(EpochKey key) override;
    void post_to_agents(const AgentMessage& message) override;
    void post_to_node(int node, const AgentMessage& message) override;
    void on_verdict(EpochKey key, const Status& verdict) override;
    void on_prepared(EpochKey key, const Status& prepared) override;

    // ---- node_agent_answers.cc
    bool step_answers();  // returns whether something moved
    void pass_on(const AgentMessage& message);
    Status on_announced(const Announced& news);
    void on_answers_ended(const AnswersEnded& news);
    void on_stop_asked(const StopAsked& news);

    Status on_captured(const Captured& capture);
    void on_saves_ended(const SavesEnded& saves);
    void on_node_complete(const NodeLedger::Complete& complete);
    void on_decision(const Decision& decision);
    void on_ended(const EpochEnded& ended);
    // All groups have committed. The epoch is announced when the files have their final names.
    void commit(const EpochEnded& committed);
    void announce(const EpochEnded& ended);
    void on_result(const FlushResult& result);
    void on_protected(const ProtectResult& result);
    void on_epoch_protected(const EpochProtected& news);

    // ---- node_agent_plans.cc
    Group own_group() const;
    void on_plan_to_keep(const PlanToKeep& plan, int source);
    void on_planned(EpochKey key, const std::vector<NodeOffer>& offers);
    void offer_local(EpochKey key, Epoch& epoch);
    void on_offered(const NodeOffered& news);
    void on_group_offered(const GroupOffered& news);

    Status on_message(const Message& message);
    Status check_sender(int source, const AgentMessage& news) const;
    void maybe_start(EpochKey key, Epoch& epoch);
    void start_queued();
    void start(EpochKey key, Epoch& epoch);
    void tell_ranks(const Epoch& epoch, const AgentMessage& message);
    void finish(EpochKey key, Epoch& epoch);
    void remove_refused(const Epoch& epoch);
    void forget_old();

    void to_root(const AgentMessage& message);
    void root_input(const AgentMessage& message);
    void carry_out_orders();
    void post(int rank, const AgentMessage& message);
    void note_failure(const Status& why);  // the next step ends the background

    static constexpr int root = 0;  // a rank

    const JobContext& context_;
    OwnRank& own_rank_;
    std::unique_ptr<Aggregator> aggregator_;
    std::unique_ptr<Protector> protector_;  // null without setting redundancy

    // Only the agent's thread uses these, once it runs.
    std::unique_ptr<RootLedger> root_;  // at rank 0's node
    NodeLedger node_ledger_;
    std::map<EpochKey, Epoch> epochs_;
    std::deque<EpochKey> to_start_;
    Status failure_;             // a post has failed, or a peer has sent what cannot be
    bool closing_ = false;       // this agent's own rank saves no more
    size_t closings_heard_ = 0;  // SavesEnded of other ranks
    bool stop_told_ = false;     // the root knows that this rank was asked to stop
    Status end_reason_;          // not ok: the background has ended
    bool root_has_ended_ = false, end_announced_ = false;
    std::chrono::steady_clock::time_point ended_since_;

    mutable Mutex mutex_;
    Condition changed_;
    std::deque<Captured> inbox_ GUARDED_BY(mutex_);
    std::optional<uint64_t> end_from_ GUARDED_BY(mutex_);
    std::deque<AgentMessage> to_pass_on_ GUARDED_BY(mutex_);  // at rank 0: Announced, AnswersEnded
    std::optional<std::string> own_stop_ GUARDED_BY(mutex_);
    std::optional<std::string> asked_to_stop_ GUARDED_BY(mutex_);  // at rank 0: any rank
    Status end_ GUARDED_BY(mutex_);                                // set by end()
    std::set<EpochKey> open_ GUARDED_BY(mutex_);                   // known here, not ended
    std::vector<EpochEnded> named_ GUARDED_BY(mutex_);             // committed and renamed, to be announced
    std::set<EpochKey> recovering_ GUARDED_BY(mutex_);
    Status recovery_failure_ GUARDED_BY(mutex_);
    Status why_ended_ GUARDED_BY(mutex_);  // end_reason_, for the program's threads
    Status thrown_ GUARDED_BY(mutex_);     // what was thrown in another thread

    CommitChecks commit_checks_;
    PlanKeeper plans_;
    EpochFinisher finisher_;              // works at rank 0's node only
    std::unique_ptr<Recorder> recorder_;  // null: nothing is recorded here
    Worker worker_;
};

}  // namespace tailrace::internal
