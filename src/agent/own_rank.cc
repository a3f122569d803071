#include "agent/own_rank.h"

#include "base/caught.h"

namespace tailrace::internal {

Status hear_news(const AgentMessage& news, RankEpochs& epochs, RankAnswers& answers) {
    if (const auto* flushing = std::get_if<EpochFlushing>(&news)) epochs.flushing(flushing->key);
    if (const auto* safe = std::get_if<EpochProtected>(&news)) epochs.protected_from(safe->key, safe->losses);
    if (const auto* ended = std::get_if<EpochEnded>(&news)) epochs.ended(*ended);
    if (const auto* announced = std::get_if<Announced>(&news)) return answers.hear(announced->announcement);
    if (const auto* ended = std::get_if<AnswersEnded>(&news)) answers.fail_all(ended->why);
    return {};
}

// Each step catches by itself, because each may fail for the same reason again.
void LocalRank::background_ended(const Status& why) noexcept {
    (void)catching([&] { epochs_.fail_all(why, true); });
    (void)catching([&] { answers_.fail_all(why); });
}

}  // namespace tailrace::internal
