// MessageBackground: the background for ranks that may communicate at any time. A node's
// representative runs its NodeAgent. The other ranks have no thread: they post to the agent, and
// read their mail (RankMail) whenever the program calls.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "agent/node_agent.h"
#include "ledger/rank_answers.h"
#include "session/background.h"
#include "session/decisions.h"
#include "session/rank_mail.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class MessageBackground : public Background {
  public:
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs);

    void recover(const LocalEpoch& epoch) override;
    Status begin() override;
    uint64_t sequence() const override { return sequence_; }
    Status wait_for_room() override;
    Status captured(Captured news) override;
    Status save_refused() override { return {}; }  // no other rank waits for this save
    void read_news() override;
    Result<bool> wait(std::span<const uint64_t> epochs, Deadline deadline) override;
    Status wait_flushed(EpochKey key) override;
    // An epoch is announced only when it has its names, so there is nothing to wait for.
    void wait_named() override {}
    bool recovering(EpochKey key) const override;
    void found_damaged(EpochKey key) override;
    Result<Answer> ask(Question question) override;
    void ask_to_stop(const std::string& why) override;
    Status close() override;
    void end() override;
    uint64_t buffer_bytes_used() const override;

  private:
    MessageBackground(const JobContext& context, RankEpochs& epochs);
    // Decides what rank 0's next call has to decide, and has all ranks told.
    Status decide(Question question) REQUIRES(asking_mutex_);
    Status decide_and_tell(Question question) REQUIRES(asking_mutex_);
    void tell_of_own_stop() REQUIRES(asking_mutex_);
    bool wait_until(const std::function<bool(const RankEpochs::Entries&)>& done, Deadline deadline);

    const JobContext& context_;
    RankEpochs& epochs_;
    uint64_t sequence_ = 0;
    bool all_ended_ = false;  // every rank has come to the last step of close()
    RankAnswers answers_;
    Mutex asking_mutex_;  // one call at a time, because calls are counted
    std::array<uint64_t, question_count> calls_ GUARDED_BY(asking_mutex_) = {};
    std::optional<Decisions> decisions_ GUARDED_BY(asking_mutex_);   // at rank 0
    std::optional<std::string> own_stop_ GUARDED_BY(asking_mutex_);  // of ask_to_stop
    bool stop_told_ GUARDED_BY(asking_mutex_) = false;
    // Threads that use the agent share it; end() takes it exclusively. (`agent_` is not annotated:
    // the thread that calls save(), close() and end(), one at a time, needs no lock to read it.)
    mutable SharedMutex agent_mutex_;
    std::unique_ptr<NodeAgent> agent_;  // at the representative
    RankMail mail_;                     // at the other ranks
};

}  // namespace tailrace::internal
