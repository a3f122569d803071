// RankAnswers: what one rank knows of the answers to should_save and should_stop (when/schedule.h).
//
// Thread-safe: the program's threads ask and wait. Rank 0's program, the node agent, or the code that
// polls this rank's messages brings announcements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "threads/mutex.h"
#include "when/schedule.h"

namespace tailrace::internal {

class RankAnswers {
  public:
    // `alone`: as for Answers. `save_every`: besides what is announced, the answer to should_save is
    // yes at every n-th call; 0: it is not. All ranks have the same number.
    RankAnswers(bool alone, uint32_t save_every)
        : save_every_(save_every), answers_{Answers(Question::save, alone), Answers(Question::stop, alone)} {}

    Status hear(const Announcement& announcement);
    // No announcement comes any more, for this reason. The first reason counts.
    void fail_all(const Status& why);
    Status broken() const;

    // The answer at this call; nothing if it is not known yet. A failure if it never will be. The
    // calls of a question ascend.
    Result<std::optional<Answer>> find(Question question, uint64_t call);
    // Whether that answer is known. It needs no memory.
    bool decided(Question question, uint64_t call) const {
        MutexLock lock(mutex_);
        return answers_[static_cast<size_t>(question)].decided(call);
    }
    // Sleeps until it is known or will never be, or until the deadline; then there is nothing.
    Result<std::optional<Answer>> wait(Question question, uint64_t call, SteadyClock::time_point deadline);

  private:
    Result<std::optional<Answer>> look_up(Question question, uint64_t call) REQUIRES(mutex_);

    const uint32_t save_every_;
    mutable Mutex mutex_;
    Condition changed_;
    std::array<Answers, question_count> answers_ GUARDED_BY(mutex_);
    Status broken_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
