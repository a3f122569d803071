// CommitChecks: the checks of a node's background before an epoch may be committed. They ensure that no
// epoch is committed, or kept, that cannot be restored.
//
//   1. The root has every node's digest (NodeCaptured). If the combined digest is that of the last good
//      epoch, this epoch is good, too. So a program that registers the same arrays as before pays 16
//      bytes for each node and epoch.
//   2. Otherwise the root asks all agents. Each agent reads the tables of its node's parts in a thread of
//      its own, adds the answers of the two branches below it, and passes the sum on. Node n stands below
//      node (n - 1) / 2. So the root receives two answers, for any number of nodes.
//   3. The root judges (read/array_judge.h). It asks another question, or has the verdict. If the verdict
//      is bad, the epoch fails and its captured parts are removed.
//   4. During the flush, every agent reads its node's captured parts, compares their checksums, writes files
//      as they were if the program wants that (shared/originals.h), and tells the root. If a part is not
//      sound, or a file cannot be written, the epoch fails as well.
//   5. When the verdict is good and all nodes' parts are sound, the root lets every agent's leaders write
//      their slots (RootLedger, MayCommit).
//
// When an epoch ends, its questions end, too: no agent answers any more, and the answers gathered so far
// are dropped.
//
// Only the agent's thread calls, except begin() and finish().
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "agent/job_context.h"
#include "ledger/agent_messages.h"
#include "ledger/root_ledger.h"
#include "read/array_judge.h"
#include "threads/mutex.h"
#include "threads/throttle.h"
#include "threads/work_queue.h"
#include "threads/worker.h"

namespace tailrace::internal {

class CommitChecks {
  public:
    // What the checks need from the agent.
    class Agent {
      public:
        virtual bool has_ended(EpochKey key) = 0;
        virtual std::vector<PartPlace> parts_of(EpochKey key) = 0;     // captured on this node
        virtual void post_to_agents(const AgentMessage& message) = 0;  // all but this one
        virtual void post_to_node(int node, const AgentMessage& message) = 0;
        virtual void on_verdict(EpochKey key, const Status& verdict) = 0;    // at the root only
        virtual void on_prepared(EpochKey key, const Status& prepared) = 0;  // this node's parts

      protected:
        ~Agent() = default;
    };

    // Both must outlive the checks.
    CommitChecks(const JobContext& context, Agent& agent)
        : context_(context), agent_(agent), writing_originals_(context.config.bandwidth_cap) {}

    // The thread that reads captured parts. `thrown` is called there if reading throws.
    void begin(Priority priority, std::function<void()> thrown);
    void finish();

    void judge(const JudgeArrays& order);  // at the root: finds the verdict, perhaps at once
    void on_asked(const ArraysAsked& asked);
    // What a node, and all below it, have found. Returns transport if it is neither this node nor right
    // below it, or has answered the same question before.
    Status on_facts(int node, EpochKey key, ArrayFacts facts);
    void prepare(EpochKey key, std::vector<PartPlace> parts);
    // Takes what the thread has read. Returns whether there was anything.
    Result<bool> step();
    void forget(EpochKey key);  // the epoch has ended

  private:
    // The answers to the root's last question that have come, from this node and the branches below
    // it.
    struct Inquiry {
        ArrayFacts facts;
        std::set<int> nodes;
    };
    struct Judging {
        ArrayQuestion asked;
        Residues digest = {};
    };

    void ask(EpochKey key, const ArrayQuestion& question);
    void conclude(EpochKey key, const Status& verdict);

    const JobContext& context_;
    Agent& agent_;
    std::map<EpochKey, Inquiry> inquiries_;
    std::map<EpochKey, Judging> judging_;  // at the root
    std::optional<Residues> good_arrays_;  // at the root: the digest of the last epoch found good

    Mutex mutex_;
    std::deque<ArraysAnswered> facts_ GUARDED_BY(mutex_);  // from this node's parts
    std::deque<std::pair<EpochKey, Status>> prepared_ GUARDED_BY(mutex_);
    Throttle writing_originals_;
    WorkQueue reading_;  // reads this node's captured parts
};

}  // namespace tailrace::internal
