// Asking: one rank's calls of should_save and should_stop (when/schedule.h), for backgrounds that pass
// messages. It counts the calls. Rank 0 decides the answers, and the other ranks wait for them, so that
// all ranks get the same answer at the same call.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "agent/job_context.h"
#include "background/decisions.h"
#include "ledger/rank_answers.h"
#include "ledger/rank_epochs.h"
#include "threads/mutex.h"
#include "when/schedule.h"

namespace tailrace::internal {

class Asking {
  public:
    // How the background reaches other ranks. Called by one thread at a time.
    class Ways {
      public:
        // The answer to this call; nothing if it has not come before the deadline.
        virtual Result<std::optional<Answer>> wait_answer(Question question, uint64_t call,
                                                          SteadyClock::time_point deadline) = 0;
        // This rank was asked to stop, or has got a signal. Rank 0 is to hear of it.
        virtual void tell_stop(const std::string& why) = 0;

        // At rank 0. Why some rank was asked to stop. Fails if nobody can be told of an answer.
        virtual Result<std::optional<std::string>> asked_to_stop() = 0;
        virtual Status announce(const Announcement& announcement) = 0;  // to all other ranks
        virtual void end_answers(const Status& why) = 0;                // the same

      protected:
        ~Ways() = default;
    };

    // All arguments must outlive it. `watches_signals`: this rank's signals are looked at here.
    Asking(const JobContext& context, const RankEpochs& epochs, RankAnswers& answers, Ways& ways,
           bool watches_signals);

    // See Background::ask.
    Result<Answer> ask(Question question);
    void ask_to_stop(const std::string& why);

  private:
    Status decide(Question question) REQUIRES(mutex_);
    Status decide_and_tell(Question question) REQUIRES(mutex_);
    void tell_of_own_stop() REQUIRES(mutex_);

    const JobContext& context_;
    RankAnswers& answers_;
    Ways& ways_;
    const bool watches_signals_;
    Mutex mutex_;  // one call at a time, because calls are counted
    std::array<uint64_t, question_count> calls_ GUARDED_BY(mutex_) = {};
    std::optional<Decisions> decisions_ GUARDED_BY(mutex_);   // at rank 0
    std::optional<std::string> own_stop_ GUARDED_BY(mutex_);  // of ask_to_stop
    bool stop_told_ GUARDED_BY(mutex_) = false;
};

}  // namespace tailrace::internal
