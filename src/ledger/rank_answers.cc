#include "ledger/rank_answers.h"

#include <fmt/format.h>

namespace tailrace::internal {

Status RankAnswers::hear(const Announcement& announcement) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(answers_[static_cast<size_t>(announcement.question)].hear(announcement));
    changed_.notify_all();
    return {};
}

void RankAnswers::fail_all(const Status& why) {
    MutexLock lock(mutex_);
    if (broken_.ok()) broken_ = why;
    changed_.notify_all();
}

Status RankAnswers::broken() const {
    MutexLock lock(mutex_);
    return broken_;
}

Result<std::optional<Answer>> RankAnswers::look_up(Question question, uint64_t call) {
    auto answer = answers_[static_cast<size_t>(question)].at(call);
    if (!answer) {
        TAILRACE_TRY(broken_);
        return std::optional<Answer>();
    }
    if (question == Question::save && save_every_ > 0 && call % save_every_ == 0 && !answer->yes)
        answer = Answer{true, fmt::format("call {}, and save_every is {}", call, save_every_)};
    return answer;
}

Result<std::optional<Answer>> RankAnswers::find(Question question, uint64_t call) {
    MutexLock lock(mutex_);
    return look_up(question, call);
}

Result<std::optional<Answer>> RankAnswers::wait(Question question, uint64_t call,
                                                SteadyClock::time_point deadline) {
    MutexLock lock(mutex_);
    while (true) {
        auto answer = look_up(question, call);
        if (!answer.ok() || *answer || !changed_.wait_before(lock, deadline)) return answer;
    }
}

}  // namespace tailrace::internal
