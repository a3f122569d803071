// RankMail: how a rank without an agent and its node's agent tell each other of epochs. The rank has no
// thread for it: mail is read when the program calls, by one thread at a time.
//
// Members may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "agent/agent_messages.h"
#include "agent/job_context.h"
#include "agent/rank_epochs.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class RankMail {
  public:
    // Both outlive it.
    RankMail(const JobContext& context, RankEpochs& epochs) : context_(context), epochs_(epochs) {}

    // To the node's agent. When it fails, so does everything that waits for the agent's answer.
    Status post(const AgentMessage& message, const std::string& purpose);
    // What has come by now; nothing where another thread is reading. Never blocks.
    void read();
    // Sleeps until `done` (of RankEpochs::wait_until) or the deadline, reading mail; says whether done.
    bool wait_until(const std::function<bool(const RankEpochs::Entries&)>& done,
                    std::optional<std::chrono::steady_clock::time_point> deadline);
    // This rank has not told what it had to: it takes no part any more. The first reason counts.
    void leave(const Status& why);
    // Nothing is read any more.
    void end() { ended_ = true; }

  private:
    void read_locked() REQUIRES(mutex_);
    // This rank's own transport has failed: nobody must wait for what it cannot tell or hear.
    void leave_background(const Status& why) REQUIRES(mutex_);

    const JobContext& context_;
    RankEpochs& epochs_;
    std::atomic<bool> ended_{false};
    Mutex mutex_;                 // of whoever uses the transport's messages
    std::atomic<int> wanted_{0};  // threads that want the lock to post: one that waits gives way...
    bool left_ GUARDED_BY(mutex_) = false;
    Condition posted_;  // ... until this says that they are through
};

}  // namespace tailrace::internal
