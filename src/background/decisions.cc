#include "background/decisions.h"

#include <algorithm>

#include "agent/flush_setup.h"
#include "base/log.h"
#include "base/time_text.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

namespace {

double seconds(SteadyClock::duration time) {
    return std::chrono::duration<double>(time).count();
}
double seconds(uint64_t milliseconds) {
    return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace

Decisions::Decisions(const JobContext& context, const RankEpochs& epochs, bool alone)
    : context_(context),
      epochs_(epochs),
      rules_{seconds(context.config.save_interval_ms), seconds(context.config.mtbf_ms),
             seconds(context.config.stop_before_ms)},
      opened_(SteadyClock::now()),
      announcers_{Announcer(Question::save, alone), Announcer(Question::stop, alone)},
      halts_(*context.shared, context.config.shared_dir) {
    // A time of day would have its meaning from now; complete_config has made a number of it.
    if (const auto end = parse_moment(context.config.job_end, 0); end.ok()) end_unix_ = *end;
    if (context.config.job_minutes > 0) end_ = opened_ + std::chrono::minutes(context.config.job_minutes);
}

Situation Decisions::situation(Question question, SteadyClock::time_point now) const {
    const auto last = std::max({opened_, epochs_.last_save().value_or(opened_), last_yes_.value_or(opened_)});
    Situation situation;
    situation.since_save_seconds = seconds(now - last);
    situation.costs = epochs_.costs();
    situation.between_calls_seconds = seconds(announcer(question).between_calls());
    if (end_) situation.left_seconds = seconds(*end_ - now);
    if (end_unix_) {
        const double left = static_cast<double>(*end_unix_) - seconds(unix_ms_now());
        situation.left_seconds = std::min(left, situation.left_seconds.value_or(left));
    }
    return situation;
}

std::optional<std::string> Decisions::why(Question question, SteadyClock::time_point now,
                                          const std::optional<std::string>& asked_to_stop) {
    if (question == Question::save) return why_save(rules_, situation(question, now), stop_is_asked_);
    const auto halt = halts_.ask(background_priority(context_.config));
    const uint64_t saves = epochs_.costs().saves;
    if (counts_anew(halt_, halt)) saves_before_halt_ = saves;
    halt_ = halt;
    const uint64_t since_halt = saves - saves_before_halt_;
    const auto now_unix = static_cast<int64_t>(unix_ms_now() / 1000);
    const auto here = situation(question, now);
    obeys_halt_ = !asked_to_stop && halt && due_condition(rules_, here, *halt, since_halt, now_unix);
    return why_stop(rules_, here, asked_to_stop, halt, since_halt, now_unix);
}

std::optional<Announcement> Decisions::call(Question question,
                                            const std::optional<std::string>& asked_to_stop) {
    const auto now = SteadyClock::now();
    if (question == Question::stop) stop_is_asked_ = true;
    auto& announcer = announcers_[static_cast<size_t>(question)];
    std::optional<std::string> reason;
    if (announcer.wishes_count()) reason = why(question, now, asked_to_stop);
    const bool never =
        question == Question::save && !may_wish_to_save(rules_, end_ || end_unix_, stop_is_asked_);
    const auto announcement = announcer.call(now, reason, never);
    if (announcement && announcement->yes) {
        log(LogLevel::info, "{} at call {}: {}",
            question == Question::save ? "should_save says yes" : "should_stop says yes", announcement->last,
            announcement->why);
        if (question == Question::save)
            save_at_ = announcement->last;
        else if (obeys_halt_)
            halts_.obeyed(*halt_);
    }
    if (save_at_ && question == Question::save && announcer.calls() >= *save_at_) {
        last_yes_ = now;
        save_at_.reset();
    }
    return announcement;
}

}  // namespace tailrace::internal
