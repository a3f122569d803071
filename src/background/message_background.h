// MessageBackground: the background for ranks that may communicate at any time. A node's representative
// runs its NodeAgent. The other ranks have no thread: they post messages to the agent, and read their
// mail (RankMail) whenever the program makes a call.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "agent/node_agent.h"
#include "background/asking.h"
#include "background/background.h"
#include "background/rank_mail.h"
#include "ledger/rank_answers.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class MessageBackground final : public Background, private RankMail::Reader, private Asking::Ways {
  public:
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs);

    void recover(const LocalEpoch& epoch) override;
    Begun begin() override;
    uint64_t sequence() const override { return sequence_; }
    Status wait_for_room() override;
    Status captured(Captured news) override;
    Status save_refused() override { return {}; }  // no other rank waits for this save
    void read_news() override;
    Result<bool> wait(EpochRange epochs, Deadline deadline) override;
    Status wait_flushed(EpochKey key) override;
    // An epoch is announced only when it has its names, so there is nothing to wait for.
    bool recovering(EpochKey key) const override;
    void found_damaged(EpochKey key) override;
    Result<Answer> ask(Question question) override { return asking_.ask(question); }
    void ask_to_stop(const std::string& why) override;
    Closed close() override;
    void end() override;
    uint64_t buffer_bytes_used() const override;

  private:
    MessageBackground(const JobContext& context, RankEpochs& epochs);
    // ---- of the mail
    Status hear(const AgentMessage& news) override;
    void left(const Status& why) override;
    // ---- of the questions
    Result<std::optional<Answer>> wait_answer(Question question, uint64_t call,
                                              SteadyClock::time_point deadline) override;
    void tell_stop(const std::string& why) override;
    Result<std::optional<std::string>> asked_to_stop() override;
    Status announce(const Announcement& announcement) override;
    void end_answers(const Status& why) override;

    bool wait_until(const std::function<bool(const RankEpochs::Entries&)>& done, Deadline deadline);

    const JobContext& context_;
    RankEpochs& epochs_;
    uint64_t sequence_ = 0;
    bool all_ended_ = false;  // every rank has come to the last step of close()
    RankAnswers answers_;
    // Threads that use the agent share it; end() takes it exclusively. (`agent_` is not annotated:
    // the thread that calls save(), close() and end(), one at a time, needs no lock to read it.)
    mutable SharedMutex agent_mutex_;
    LocalRank own_rank_;
    std::unique_ptr<NodeAgent> agent_;  // at the representative
    TransportChannel channel_;
    RankMail mail_;  // at the other ranks
    Asking asking_;
};

}  // namespace tailrace::internal
