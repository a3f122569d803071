// RankMail: the messages about epochs and answers between a rank and its node's agent, for a rank without
// an agent in its process. The rank has no thread for them. One thread at a time reads the mail, when the
// program makes a call.
//
// A RankChannel carries the mail to the agent. It is the transport's messages to the node's
// representative (TransportChannel), or a socket to the node's agent process (process_background.h).
//
// Any thread may call the members.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/job_context.h"
#include "ledger/agent_messages.h"
#include "ledger/rank_answers.h"
#include "ledger/rank_epochs.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// One thread at a time calls the members, except wake(), which any thread may call.
class RankChannel {
  public:
    // Neither blocks.
    virtual Status post(std::span<const std::byte> message) = 0;
    virtual Result<std::optional<std::vector<std::byte>>> poll() = 0;
    // Sleeps until something may have come, until wake() is called, or for `longest`.
    virtual void wait(std::chrono::microseconds longest) = 0;
    virtual void wake() = 0;

  protected:
    ~RankChannel() = default;
};

class TransportChannel final : public RankChannel {
  public:
    explicit TransportChannel(const JobContext& context) : context_(context) {}
    Status post(std::span<const std::byte> message) override {
        return context_.transport->post(context_.representative(), message);
    }
    Result<std::optional<std::vector<std::byte>>> poll() override;
    void wait(std::chrono::microseconds longest) override { context_.transport->wait(longest, false); }
    void wake() override { context_.transport->wake(); }

  private:
    const JobContext& context_;
};

class RankMail {
  public:
    // What the rank's background makes of the mail. The thread that reads calls.
    class Reader {
      public:
        virtual Status hear(const AgentMessage& news) = 0;
        // The way to the agent has failed, or what came cannot be understood. Called once, by the
        // thread that uses the channel.
        virtual void left(const Status& why) = 0;

      protected:
        ~Reader() = default;
    };

    // All arguments must outlive it.
    RankMail(RankChannel& channel, Reader& reader) : channel_(channel), reader_(reader) {}

    // Posts to the node's agent. If that fails, the rank has left the background.
    Status post(const AgentMessage& message, const std::string& purpose);
    // Uses the channel in another way than post() does, and then reads mail. If `work` fails, the rank
    // has left the background.
    Status use(const std::function<Status()>& work, const std::string& purpose);
    // Reads the mail that has come, unless another thread is reading. Never blocks.
    void read();
    // Sleeps until done() is true or the deadline has passed, and reads mail meanwhile. The calling
    // thread looks at done() after each look at the mail. Returns whether it is true.
    bool wait_for(const std::function<bool()>& done,
                  std::optional<std::chrono::steady_clock::time_point> deadline);
    // This rank could not say what it had to say, so it leaves the background. The first reason
    // counts.
    void leave(const Status& why);
    // Reads nothing from now on.
    void end() { ended_ = true; }

  private:
    void read_locked() REQUIRES(mutex_);
    void leave_background(const Status& why) REQUIRES(mutex_);

    RankChannel& channel_;
    Reader& reader_;
    std::atomic<bool> ended_{false};
    Mutex mutex_;                 // held by the thread that uses the channel
    std::atomic<int> wanted_{0};  // threads that want the lock to post; a waiting thread gives way
    bool left_ GUARDED_BY(mutex_) = false;
    Condition posted_;  // signalled when wanted_ is back at 0
};

}  // namespace tailrace::internal
