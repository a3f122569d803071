// RankMail: how a rank without an agent and its node's agent tell each other of epochs and answers. The rank
// has no thread for it. Mail is read when the program calls, by one thread at a time.
//
// Any thread may call the members.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "agent/job_context.h"
#include "ledger/agent_messages.h"
#include "ledger/rank_answers.h"
#include "ledger/rank_epochs.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class RankMail {
  public:
    // All arguments must outlive it.
    RankMail(const JobContext& context, RankEpochs& epochs, RankAnswers& answers)
        : context_(context), epochs_(epochs), answers_(answers) {}

    // Posts to the node's agent. If that fails, everything fails that waits for the agent's answer.
    Status post(const AgentMessage& message, const std::string& purpose);
    // Reads the mail that has come, unless another thread is reading. Never blocks.
    void read();
    // Sleeps until done() (see RankEpochs::wait_until) is true or the deadline has passed, and
    // reads mail meanwhile. Returns whether done() is true.
    bool wait_until(const std::function<bool(const RankEpochs::Entries&)>& done,
                    std::optional<std::chrono::steady_clock::time_point> deadline);
    // The same for any other condition, which the calling thread looks at after each look at the mail.
    bool wait_for(const std::function<bool()>& done,
                  std::optional<std::chrono::steady_clock::time_point> deadline);
    // This rank could not say what it had to say, so it leaves the background. The first reason
    // counts.
    void leave(const Status& why);
    // Reads nothing from now on.
    void end() { ended_ = true; }

  private:
    void read_locked() REQUIRES(mutex_);
    // This rank's own transport has failed. No other rank may wait for what this one cannot tell or
    // hear.
    void leave_background(const Status& why) REQUIRES(mutex_);

    const JobContext& context_;
    RankEpochs& epochs_;
    RankAnswers& answers_;
    std::atomic<bool> ended_{false};
    Mutex mutex_;                 // held by the thread that uses the transport's messages
    std::atomic<int> wanted_{0};  // threads that want the lock to post; a waiting thread gives way
    bool left_ GUARDED_BY(mutex_) = false;
    Condition posted_;  // signalled when wanted_ is back at 0
};

}  // namespace tailrace::internal
