#include "session/rank_mail.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

// While the program waits for news, mail is read at least this often.
constexpr auto longest_sleep = 100ms;

}  // namespace

Status RankMail::post(const AgentMessage& message, const std::string& purpose) {
    ++wanted_;
    context_.transport->wake();
    MutexLock lock(mutex_);
    if (--wanted_ == 0) posted_.notify_all();
    auto posted = context_.transport->post(context_.representative(), encode(message));
    if (!posted.ok()) leave_background(posted.with_context(purpose));
    read_locked();
    return posted;
}

void RankMail::leave(const Status& why) {
    MutexLock lock(mutex_);
    leave_background(why);
}

// Does this only once, because every later call of the transport would fail in the same way.
void RankMail::leave_background(const Status& why) {
    if (left_) return;
    left_ = true;
    epochs_.fail_all(why, false);
    answers_.fail_all(why);
    const auto reason = why.with_context(fmt::format("rank {}", context_.rank()));
    auto posted =
        context_.transport->post(context_.representative(), encode(AgentMessage(BackgroundEnded{reason})));
    if (!posted.ok())
        log(LogLevel::warning, "the node's agent could not be told that rank {} has left the background: {}",
            context_.rank(), posted.message());
}

void RankMail::read() {
    if (ended_) return;
    if (!mutex_.try_lock()) return;
    MutexLock lock(mutex_, std::adopt_lock);
    read_locked();
}

void RankMail::read_locked() {
    while (true) {
        auto message = context_.transport->poll();
        if (!message.ok()) return leave_background(message.status());
        if (!*message) return;
        auto news = decode_agent_message((*message)->bytes);
        if (!news.ok()) return leave_background(news.status());
        if (const auto* flushing = std::get_if<EpochFlushing>(&*news)) epochs_.flushing(flushing->key);
        if (const auto* ended = std::get_if<EpochEnded>(&*news)) epochs_.ended(*ended);
        if (const auto* announced = std::get_if<Announced>(&*news)) {
            const Status heard = answers_.hear(announced->announcement);
            if (!heard.ok()) return leave_background(heard);
        }
        if (const auto* answers = std::get_if<AnswersEnded>(&*news)) answers_.fail_all(answers->why);
        if (const auto* background = std::get_if<BackgroundEnded>(&*news)) {
            epochs_.fail_all(background->why, true);
            answers_.fail_all(background->why);
        }
    }
}

bool RankMail::wait_until(const std::function<bool(const RankEpochs::Entries&)>& done,
                          std::optional<std::chrono::steady_clock::time_point> deadline) {
    return wait_for([&] { return epochs_.wait_until(done, SteadyClock::now()); }, deadline);
}

bool RankMail::wait_for(const std::function<bool()>& done,
                        std::optional<std::chrono::steady_clock::time_point> deadline) {
    while (true) {
        MutexLock lock(mutex_);
        while (wanted_ != 0) posted_.wait(lock);
        read_locked();
        const auto now = SteadyClock::now();
        if (done()) return true;
        if (deadline && now >= *deadline) return false;
        auto nap = std::chrono::microseconds(longest_sleep);
        if (deadline)
            nap = std::min(nap, std::chrono::duration_cast<std::chrono::microseconds>(*deadline - now) + 1us);
        context_.transport->wait(nap, false);
    }
}

}  // namespace tailrace::internal
