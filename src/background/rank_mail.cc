#include "background/rank_mail.h"

#include <algorithm>

#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

// While the program waits for news, mail is read at least this often.
constexpr auto longest_sleep = 100ms;

}  // namespace

Result<std::optional<std::vector<std::byte>>> TransportChannel::poll() {
    TAILRACE_ASSIGN(auto message, context_.transport->poll());
    if (!message) return std::optional<std::vector<std::byte>>();
    return std::optional(std::move(message->bytes));
}

Status RankMail::post(const AgentMessage& message, const std::string& purpose) {
    return use([&] { return channel_.post(encode(message)); }, purpose);
}

Status RankMail::use(const std::function<Status()>& work, const std::string& purpose) {
    ++wanted_;
    channel_.wake();
    MutexLock lock(mutex_);
    if (--wanted_ == 0) posted_.notify_all();
    auto posted = work();
    if (!posted.ok()) leave_background(posted.with_context(purpose));
    read_locked();
    return posted;
}

void RankMail::leave(const Status& why) {
    MutexLock lock(mutex_);
    leave_background(why);
}

// Does this only once, because every later call of the channel would fail in the same way.
void RankMail::leave_background(const Status& why) {
    if (left_) return;
    left_ = true;
    reader_.left(why);
}

void RankMail::read() {
    if (ended_) return;
    if (!mutex_.try_lock()) return;
    MutexLock lock(mutex_, std::adopt_lock);
    read_locked();
}

void RankMail::read_locked() {
    while (true) {
        auto message = channel_.poll();
        if (!message.ok()) return leave_background(message.status());
        if (!*message) return;
        const auto news = decode_agent_message(**message);
        if (!news.ok()) return leave_background(news.status());
        const Status heard = reader_.hear(*news);
        if (!heard.ok()) return leave_background(heard);
    }
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
        channel_.wait(nap);
    }
}

}  // namespace tailrace::internal
