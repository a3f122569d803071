#include "when/stop_signals.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

constexpr size_t most_signals = 65;

// What a handler uses. It is written before the handler is installed, and never becomes invalid.
struct Before {
    std::atomic<void (*)(int)> plain{nullptr};
    std::atomic<void (*)(int, siginfo_t*, void*)> with_info{nullptr};
};
std::array<std::atomic<uint64_t>, most_signals> counts;
std::array<Before, most_signals> before;
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<void (*)(int)>::is_always_lock_free);

extern "C" void on_stop_signal(int number, siginfo_t* info, void* context) {
    const int error = errno;
    const auto index = static_cast<size_t>(number);
    if (index < most_signals) {
        counts[index].fetch_add(1, std::memory_order_relaxed);
        if (const auto handler = before[index].with_info.load()) {
            handler(number, info, context);
        } else if (const auto simple = before[index].plain.load()) {
            simple(number);
        }
    }
    errno = error;
}

struct Installed {
    struct sigaction previous {};
    size_t users = 0;
    bool left_behind = false;  // ours could not be taken out, because somebody has replaced it
    bool warned = false;
};

struct Handlers {
    Mutex mutex;
    std::array<Installed, most_signals> installed GUARDED_BY(mutex);
};
// Never destroyed, because sessions may be open when the program ends.
Handlers& handlers() {
    static Handlers& all = *new Handlers;
    return all;
}

bool is_ours(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_stop_signal;
}

Status failed(int number) {
    return errno_status(errno, fmt::format("catching signal {}", number));
}

Status install(int number, Installed& installed) {
    const auto index = static_cast<size_t>(number);
    struct sigaction current {};
    if (::sigaction(number, nullptr, &current) != 0) return failed(number);
    if (is_ours(current)) return {};  // still there from an earlier session
    const bool has_info = (current.sa_flags & SA_SIGINFO) != 0;
    const bool calls = has_info || (current.sa_handler != SIG_DFL && current.sa_handler != SIG_IGN);
    // The handler that has replaced ours may call it. If ours were put on top of that one, the two would
    // call each other for ever.
    if (calls && installed.left_behind) {
        if (!std::exchange(installed.warned, true))
            log(LogLevel::warning,
                "stop_signals: the program has replaced the handler of signal {}; the signal is noticed only "
                "if the new one calls the handler before it",
                number);
        return {};
    }
    installed.left_behind = false;
    before[index].with_info = calls && has_info ? current.sa_sigaction : nullptr;
    before[index].plain = calls && !has_info ? current.sa_handler : nullptr;
    struct sigaction ours {};
    ours.sa_sigaction = on_stop_signal;
    ours.sa_mask = current.sa_mask;
    // System calls of the program go on after the signal, unless its own handler interrupts them.
    ours.sa_flags = SA_SIGINFO | (calls ? current.sa_flags & (SA_RESTART | SA_ONSTACK | SA_NODEFER)
                                        : SA_RESTART | SA_ONSTACK);
    if (::sigaction(number, &ours, &installed.previous) != 0) return failed(number);
    return {};
}

}  // namespace

Result<StopSignals> StopSignals::watch(const std::vector<int>& numbers) {
    StopSignals signals;
    MutexLock lock(handlers().mutex);
    for (const int number : numbers) {
        if (number < 1 || static_cast<size_t>(number) >= most_signals)
            return Status(Code::invalid_argument, fmt::format("{} is not the number of a signal", number));
        auto& installed = handlers().installed[static_cast<size_t>(number)];
        if (installed.users == 0) {
            const Status done = install(number, installed);
            if (!done.ok()) {
                lock.unlock();  // the destructor of `signals` takes it
                return done;
            }
        }
        ++installed.users;
        signals.watched_.push_back({number, counts[static_cast<size_t>(number)].load()});
    }
    return signals;
}

StopSignals::~StopSignals() {
    if (watched_.empty()) return;
    MutexLock lock(handlers().mutex);
    for (const auto& [number, since] : watched_) {
        auto& installed = handlers().installed[static_cast<size_t>(number)];
        if (--installed.users > 0) continue;
        struct sigaction current {};
        if (::sigaction(number, nullptr, &current) == 0 && is_ours(current)) {
            (void)::sigaction(number, &installed.previous, nullptr);
            installed.left_behind = false;
        } else {
            installed.left_behind = true;
        }
    }
}

std::optional<int> StopSignals::got() const {
    for (const auto& [number, since] : watched_)
        if (counts[static_cast<size_t>(number)].load(std::memory_order_relaxed) != since) return number;
    return std::nullopt;
}

}  // namespace tailrace::internal
