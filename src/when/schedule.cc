#include "when/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

constexpr std::chrono::milliseconds time_ahead(250);
constexpr uint64_t most_calls_ahead = 64;

}  // namespace

// ---- every rank ---------------------------------------------------------------------------------

Status Answers::hear(const Announcement& announcement) {
    if (announcement.question != question_ || announcement.first != decided_ + 1 ||
        announcement.last < announcement.first || decided_ == UINT64_MAX)
        return Status(Code::transport,
                      fmt::format("rank 0 has announced the answers at calls {} to {}, but those up to call "
                                  "{} are known",
                                  announcement.first, announcement.last, decided_));
    decided_ = announcement.last;
    if (!announcement.yes) return {};
    why_ = announcement.why;
    if (question_ == Question::stop) {
        stop_from_ = announcement.last;
        decided_ = UINT64_MAX;
    } else {
        yes_at_.insert(announcement.last);
    }
    return {};
}

std::optional<Answer> Answers::at(uint64_t call) {
    if (call > decided_) return std::nullopt;
    if (stop_from_) return call >= *stop_from_ ? Answer{true, why_} : Answer{};
    yes_at_.erase(yes_at_.begin(), yes_at_.lower_bound(call));
    const bool yes = yes_at_.erase(call) > 0;
    return yes ? Answer{true, why_} : Answer{};
}

// ---- rank 0 -------------------------------------------------------------------------------------

// The slowest call is forgotten slowly: after a hundred quicker ones, an eighth of it is left.
uint64_t Announcer::ahead() const {
    if (slowest_.count() <= 0) return 1;
    const auto calls = static_cast<uint64_t>(time_ahead / slowest_);
    return std::clamp<uint64_t>(calls, 1, most_calls_ahead);
}

std::optional<Announcement> Announcer::call(SteadyClock::time_point now,
                                            const std::optional<std::string>& why, bool never) {
    const bool wish = why && wishes_count();
    ++calls_;
    if (last_call_) slowest_ = std::max(now - *last_call_, slowest_ - slowest_ / 50);
    last_call_ = now;
    if (stopped_ || decided_ == UINT64_MAX) return std::nullopt;
    INVARIANT(decided_ + 1 >= calls_);

    Announcement announcement{question_, decided_ + 1, decided_ + 1};
    if (wish) {
        announcement.yes = true;
        announcement.why = why->substr(0, most_reason_bytes);
        yes_at_ = announcement.last;
        stopped_ = question_ == Question::stop;
    } else if (never) {
        announcement.last = UINT64_MAX;
    } else {
        // Half of what is decided is left: nothing is due.
        const uint64_t left = decided_ + 1 - calls_, reach = alone_ ? 0 : ahead();
        if (!alone_ && left > (reach + 1) / 2) return std::nullopt;
        announcement.last = calls_ + reach;
    }
    decided_ = announcement.last;
    return announcement;
}

}  // namespace tailrace::internal
