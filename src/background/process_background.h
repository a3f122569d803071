// ProcessBackground: the background of ranks whose epochs are carried by the agent processes of their
// nodes (carrier/carried_node.h). In the program only the copy of a save runs. There is no thread of
// ours, and MPI is called only in open, close and restore. So save and wait are calls of one rank at
// every level of thread support. A rank talks to its node's agent by a socket, and reads its mail when
// the program makes a call.
//
// If an agent dies, MPI ends the others. Every rank then finds the end of its line at its next call, and
// each node logs this once. The session goes on: saves still capture, their epochs stay captured, and
// wait fails with a message. When the session is closed, it flushes the remaining epochs (session.cc).
//
// An agent that is stopped is not dead: it may go on at any time, and write. So a rank that waits for it
// asks for signs of life (silence_watch.h), logs their absence, and regards the agent as gone after a
// while. If the agent then goes on, it ends the background for all ranks, as the death of agents does. If
// it is still silent when the session is closed, nothing is flushed, and close fails.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/agent_link.h"
#include "background/asking.h"
#include "background/background.h"
#include "background/rank_mail.h"
#include "background/silence_watch.h"
#include "carrier/line_messages.h"
#include "flush/flush_job.h"
#include "ledger/rank_answers.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class ProcessBackground final : public Background,
                                private RankChannel,
                                private RankMail::Reader,
                                private Asking::Ways {
  public:
    // `agent_of_node`: among the agents of one world. Collective; the outcome is the same everywhere.
    static Result<std::unique_ptr<Background>> create(const JobContext& context, RankEpochs& epochs,
                                                      const Carriers& carriers,
                                                      std::vector<uint32_t> agent_of_node);

    void recover(const LocalEpoch& epoch) override;
    Begun begin() override;
    uint64_t sequence() const override { return sequence_; }
    Status wait_for_room() override;
    Status captured(Captured news) override;
    Status save_refused() override { return {}; }  // no other rank waits for this save
    void read_news() override { mail_.read(); }
    Result<bool> wait(EpochRange epochs, Deadline deadline) override;
    Status wait_flushed(EpochKey key) override;
    // An epoch is announced only when it has its names, so there is nothing to wait for.
    bool recovering(EpochKey key) const override;
    void found_damaged(EpochKey key) override;
    Result<Answer> ask(Question question) override { return asking_.ask(question); }
    void ask_to_stop(const std::string& why) override { asking_.ask_to_stop(why); }
    Closed close() override;
    void end() override { mail_.end(); }
    uint64_t buffer_bytes_used() const override { return 0; }
    // An agent that lives may have lost only its lines.
    bool parts_may_be_open() const override { return lost(); }

  private:
    ProcessBackground(const JobContext& context, RankEpochs& epochs, std::unique_ptr<AgentLine> line);
    Status send_job(const Carriers& carriers, std::vector<uint32_t> agent_of_node);
    // Sends, and waits for the agent's answer.
    Status asks(const std::function<Status()>& send, const char* what);
    bool lost() const;
    void lose(const Status& why);
    void say_lost(const Status& why);
    void look_after_agent();
    void take_for_gone(const Status& why);
    // Waits until no rank's epochs are under way any more. Returns whether some rank has lost its agent.
    // Collective.
    Result<bool> wait_for_end();
    Status silence() const;
    Status say_goodbye(bool give_up);
    Status failure() const;

    // ---- the channel; the thread that holds the mail's lock calls
    Status post(std::span<const std::byte> message) override {
        return line::in_pieces(message, [&](std::span<const std::byte> piece, bool last) {
            return line_->post(line::encode(line::Mail{{piece.begin(), piece.end()}, last}));
        });
    }
    Result<std::optional<std::vector<std::byte>>> poll() override;
    void wait(std::chrono::microseconds longest) override {
        look_after_agent();
        line_->wait(longest);
    }
    void wake() override { line_->wake(); }
    // ---- the mail
    Status hear(const AgentMessage& news) override;
    void left(const Status& why) override;
    // ---- the questions
    Result<std::optional<Answer>> wait_answer(Question question, uint64_t call,
                                              SteadyClock::time_point deadline) override;
    void tell_stop(const std::string& why) override;
    Result<std::optional<std::string>> asked_to_stop() override;
    Status announce(const Announcement& announcement) override;
    void end_answers(const Status& why) override;

    const JobContext& context_;
    RankEpochs& epochs_;
    uint64_t sequence_ = 0;
    std::vector<FlushJob> to_recover_;  // until begin()
    RankAnswers answers_;
    const std::unique_ptr<AgentLine> line_;
    RankMail mail_;

    mutable Mutex mutex_;
    Status lost_ GUARDED_BY(mutex_);  // why the agent carries no more
    SilenceWatch watch_ GUARDED_BY(mutex_);
    std::set<EpochKey> recovering_ GUARDED_BY(mutex_);
    std::optional<std::string> asked_to_stop_ GUARDED_BY(mutex_);  // at rank 0: why some rank was
    std::optional<Status> answer_ GUARDED_BY(mutex_);
    std::optional<line::Idle> idle_ GUARDED_BY(mutex_);
    bool begun_ GUARDED_BY(mutex_) = false;  // on all nodes: the session has this background
    bool closing_ GUARDED_BY(mutex_) = false, said_goodbye_ GUARDED_BY(mutex_) = false;
    bool agent_ended_ GUARDED_BY(mutex_) = false, line_ended_ GUARDED_BY(mutex_) = false;

    Asking asking_;
};

}  // namespace tailrace::internal
