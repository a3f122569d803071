#include "background/asking.h"

#include <fmt/format.h>

#include "base/caught.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// Ranks of a program are hardly ever that far apart. But rank 0 may have lost its network without
// anybody noticing.
constexpr std::chrono::minutes longest_wait_for_rank_0(10);

}  // namespace

Asking::Asking(const JobContext& context, const RankEpochs& epochs, RankAnswers& answers, Ways& ways,
               bool watches_signals)
    : context_(context), answers_(answers), ways_(ways), watches_signals_(watches_signals) {
    if (context.is_root()) decisions_.emplace(context, epochs, context.rank_count() == 1);
}

Result<Answer> Asking::ask(Question question) {
    MutexLock lock(mutex_);
    const uint64_t call = ++calls_[static_cast<size_t>(question)];
    tell_of_own_stop();
    if (decisions_) TAILRACE_TRY(decide(question));
    TAILRACE_ASSIGN(auto found,
                    ways_.wait_answer(question, call, SteadyClock::now() + longest_wait_for_rank_0));
    if (found) return std::move(*found);
    --calls_[static_cast<size_t>(question)];  // so that it can be made again
    return Status(
        Code::timeout,
        fmt::format(
            "rank {} has waited {} min at call {} for rank 0, which has not made this call yet, or cannot be "
            "reached; the call does not count",
            context_.rank(), longest_wait_for_rank_0.count(), call));
}

Status Asking::decide(Question question) {
    TAILRACE_TRY(answers_.broken());
    Status told;
    try {
        told = decide_and_tell(question);
    } catch (...) {
        told = caught_status();
    }
    if (told.ok()) return {};
    // Ranks that do not hear of this call would wait for ever.
    answers_.fail_all(told);
    ways_.end_answers(told);
    return told;
}

Status Asking::decide_and_tell(Question question) {
    TAILRACE_ASSIGN(const auto asked_to_stop, ways_.asked_to_stop());
    const auto announcement = decisions_->call(question, asked_to_stop);
    if (!announcement) return {};
    TAILRACE_TRY(answers_.hear(*announcement));
    return context_.rank_count() > 1 ? ways_.announce(*announcement) : Status();
}

void Asking::tell_of_own_stop() {
    if (!watches_signals_ || stop_told_) return;
    const auto why = own_stop_ ? own_stop_ : stop_signal_of(context_);
    if (!why) return;
    stop_told_ = true;
    ways_.tell_stop(*why);
}

void Asking::ask_to_stop(const std::string& why) {
    MutexLock lock(mutex_);
    if (!own_stop_) own_stop_ = why;
}

}  // namespace tailrace::internal
