// CollectiveBackground: the background for ranks that may communicate only in collective calls (MPI
// below MPI_THREAD_MULTIPLE). save, wait, ask and close are collective. In each of them the ranks
// exchange their news (captures, and results of their nodes' flushes), and every rank runs the same
// RootLedger on these. Every node writes its own segment of its group's files, with sizes known
// from the exchange, and sends no message.
//
// An exchange succeeds on every rank, or on none (together() in transport.h). If a rank cannot go on,
// because it has no memory for the news or cannot decode them, the background is over on all ranks:
// every epoch that has not ended fails, and the captured parts stay for the next session. After that,
// only the last step of close() is collective.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/epoch_finisher.h"
#include "agent/node_flusher.h"
#include "agent/plan_keeper.h"
#include "agent/recorder.h"
#include "background/background.h"
#include "background/decisions.h"
#include "ledger/rank_answers.h"
#include "ledger/root_ledger.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class CollectiveBackground : public Background {
  public:
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs);

    void recover(const LocalEpoch& epoch) override;
    Begun begin() override;
    uint64_t sequence() const override { return sequence_; }
    Status wait_for_room() override;
    Status captured(Captured news) override;
    // The rank takes part all the same, so that the others learn that it did not save.
    Status save_refused() override;
    void read_news() override {}
    Result<bool> wait(EpochRange epochs, Deadline deadline) override;
    Status wait_flushed(EpochKey key) override;
    bool recovering(EpochKey key) const override;
    void found_damaged(EpochKey key) override;
    // One small message from each rank to all, and a round in which a rank can say that it has failed.
    Result<Answer> ask(Question question) override;
    void ask_to_stop(const std::string& why) override { own_stop_ = why; }
    Closed close() override;
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
        bool is_protected = false;
        std::optional<EpochEnded> committed;  // all nodes have written it
        std::optional<EpochEnded> ended;      // and its files have their names
    };

    CollectiveBackground(const JobContext& context, RankEpochs& epochs);
    // One collective step: sends this rank's news to all ranks, and takes in theirs. Returns whether all
    // ranks still have time.
    Result<bool> exchange(const std::optional<Captured>& capture, bool in_time);
    // Gives the news of all ranks to the ledger, and carries out its orders.
    Result<bool> take_news(const std::vector<std::vector<std::byte>>& all);
    Status check_sender(int rank, const AgentMessage& news) const;
    std::vector<std::byte> encode_own_news(const std::optional<Captured>& capture, bool in_time);
    void end_background(const Status& why) noexcept;
    void collect_news();
    Status take_captures(const std::vector<std::optional<Captured>>& captures);
    Status protect(const std::vector<std::optional<Captured>>& captures);
    Status carry_out_orders();
    Status judge(const JudgeArrays& order);
    void commit(const EpochEnded& committed);
    std::vector<EpochEnded> take_named();
    void end_epoch(const EpochEnded& ended);
    std::vector<std::byte> encode_own_question(Question question);
    Result<Answer> take_questions(const std::vector<std::vector<std::byte>>& all, Question question,
                                  uint64_t call);
    void start_flush(EpochKey key);
    std::vector<NodeOffer> offers_of_group(const Epoch& epoch, int node) const;
    void keep_plans(EpochKey key, bool local);
    // Takes collective steps until done() is true, which is the same on every rank. Returns timeout
    // if some rank's time runs out.
    Status exchange_until(const std::function<bool()>& done, Deadline deadline);
    void record(const AgentMessage& news);

    const JobContext& context_;
    RankEpochs& rank_epochs_;
    uint64_t sequence_ = 0;
    bool over_ = false;                 // no rank can go on; the same on every rank
    Status broken_;                     // why
    std::vector<AgentMessage> unsent_;  // this rank's news that the others do not have
    // The next three are the same on every rank.
    RootLedger ledger_;
    std::optional<Residues> good_arrays_;  // the digest of the last epoch that was found good
    std::map<EpochKey, Epoch> epochs_;

    // The next six are the same on every rank, but for own_stop_ and decisions_.
    RankAnswers answers_;
    bool no_answers_ = false;
    std::array<uint64_t, question_count> calls_ = {};
    std::optional<std::string> stopped_;   // why some rank was asked to stop
    std::optional<std::string> own_stop_;  // of ask_to_stop
    std::optional<Decisions> decisions_;   // at rank 0

    // At rank 0: committed and renamed, to be announced. The naming thread brings them.
    Mutex named_mutex_;
    std::vector<EpochEnded> named_ GUARDED_BY(named_mutex_);

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
