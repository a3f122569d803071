// Decisions: rank 0's decisions about should_save and should_stop, at its own calls. Clocks and costs
// differ between ranks, so rank 0 decides for all of them. It applies the rules (when/rules.h) to the
// costs of saves, to clocks and to the halt file, and says what to tell all ranks (when/schedule.h).
//
// One thread at a time may use it.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "agent/job_context.h"
#include "ledger/rank_epochs.h"
#include "when/halt_watch.h"
#include "when/rules.h"
#include "when/schedule.h"

namespace tailrace::internal {

class Decisions {
  public:
    // At rank 0 only. The arguments must outlive it. `alone`: nobody needs to know an answer before
    // rank 0 comes to its call.
    Decisions(const JobContext& context, const RankEpochs& epochs, bool alone);

    // Rank 0 makes its next call. `asked_to_stop`: why some rank was asked to stop, if one was.
    std::optional<Announcement> call(Question question, const std::optional<std::string>& asked_to_stop);
    // Ends the thread that looks for the halt file.
    void finish() { halts_.finish(); }

  private:
    Situation situation(Question question, SteadyClock::time_point now) const;
    std::optional<std::string> why(Question question, SteadyClock::time_point now,
                                   const std::optional<std::string>& asked_to_stop);
    const Announcer& announcer(Question question) const { return announcers_[static_cast<size_t>(question)]; }

    const JobContext& context_;
    const RankEpochs& epochs_;
    WhenRules rules_;
    const SteadyClock::time_point opened_;
    std::optional<int64_t> end_unix_;
    std::optional<SteadyClock::time_point> end_;

    std::array<Announcer, question_count> announcers_;
    bool stop_is_asked_ = false;       // the program calls should_stop
    std::optional<uint64_t> save_at_;  // the call at which the next save was announced
    std::optional<SteadyClock::time_point> last_yes_;

    HaltWatch halts_;
    std::optional<Halt> halt_;
    uint64_t saves_before_halt_ = 0;
    bool obeys_halt_ = false;  // it is the reason to stop
};

}  // namespace tailrace::internal
