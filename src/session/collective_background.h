// CollectiveBackground: the background for ranks that may communicate only in collective calls (MPI
// below MPI_THREAD_MULTIPLE). save, wait and close are collective. In each of them the ranks
// exchange their news (captures, and results of their nodes' flushes), and every rank runs the same
// RootLedger on these. Every node writes its own segment of its group's files, with sizes known
// from the exchange, and sends no message.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/epoch_finisher.h"
#include "agent/node_flusher.h"
#include "agent/plan_keeper.h"
#include "agent/recorder.h"
#include "agent/root_ledger.h"
#include "session/background.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class CollectiveBackground : public Background {
  public:
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs);

    void recover(const LocalEpoch& epoch) override;
    Status begin() override;
    uint64_t sequence() const override { return sequence_; }
    Status wait_for_room() override;
    Status captured(Captured news) override { return exchange(std::move(news), true).status(); }
    // The rank takes part all the same, so that the others learn that it did not save.
    Status save_refused() override;
    void read_news() override {}
    Result<bool> wait(const std::vector<uint64_t>& epochs, Deadline deadline) override;
    Status wait_flushed(EpochKey key) override;
    void wait_named() override;
    bool recovering(EpochKey key) const override;
    void found_damaged(EpochKey key) override;
    Status close() override;
    void end() override;
    uint64_t buffer_bytes_used() const override;

  private:
    struct Epoch {
        std::vector<NodeOffer> offers;     // one for each node
        std::vector<LocalStream> streams;  // this node's
        std::optional<PartPlace> own;      // this rank's part; empty for a recovered epoch
        uint64_t run_uid = 0;
        uint32_t rank_count = 0;
        bool started = false;
        bool result_known = false;  // this node's result
        bool recovered = false;
        std::optional<EpochEnded> ended;
    };

    CollectiveBackground(const JobContext& context, RankEpochs& epochs);
    // One collective step: sends this rank's news to all ranks, gives all news to the ledger, and
    // carries out its orders. Returns whether all ranks still have time.
    Result<bool> exchange(const std::optional<Captured>& capture, bool in_time);
    std::vector<AgentMessage> own_news(const std::optional<Captured>& capture);
    void take_captures(const std::vector<std::optional<Captured>>& captures);
    Status carry_out_orders();
    Status judge(const JudgeArrays& order);
    void end_epoch(const EpochEnded& ended);
    void start_flush(EpochKey key);
    // Takes collective steps until done() is true, which is the same on every rank. Returns timeout
    // if some rank's time runs out.
    Status exchange_until(const std::function<bool()>& done, Deadline deadline);
    void record(const AgentMessage& news);

    const JobContext& context_;
    RankEpochs& rank_epochs_;
    uint64_t sequence_ = 0;
    // The next three are the same on every rank.
    RootLedger ledger_;
    std::optional<Residues> good_arrays_;  // the digest of the last epoch that was found good
    std::map<EpochKey, Epoch> epochs_;

    // Threads that may run beside end() use these under the mutex. (They are not annotated, because
    // the thread that is in a collective call reads them without the lock.)
    mutable Mutex mutex_;
    // At the representative, if there is something to record.
    std::unique_ptr<Recorder> recorder_;
    std::unique_ptr<EpochFinisher> finisher_;  // at rank 0
    std::unique_ptr<NodeFlusher> flusher_;     // at the representative, as are the plan records
    std::unique_ptr<PlanKeeper> plans_;
};

}  // namespace tailrace::internal
