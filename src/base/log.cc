#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace tailrace::internal {

namespace {

void to_stderr(LogLevel level, std::string_view message) {
    static constexpr const char* names[] = {"debug", "info", "warning", "error"};
    // One call, so that lines of several ranks do not mix.
    std::string line = fmt::format("tailrace: {}: {}\n", names[static_cast<int>(level)], message);
    std::fwrite(line.data(), 1, line.size(), stderr);
}

LogLevel level_from_environment() {
    const char* text = std::getenv("TAILRACE_LOG");
    if (text == nullptr) return LogLevel::warning;
    const std::string_view level(text);
    if (level == "debug") return LogLevel::debug;
    if (level == "info") return LogLevel::info;
    if (level == "error") return LogLevel::error;
    if (level == "off") return LogLevel::off;
    if (level != "warning")
        to_stderr(
            LogLevel::warning,
            fmt::format(
                "TAILRACE_LOG=\"{}\" is not a level (debug, info, warning, error, off); the level is warning",
                level));
    return LogLevel::warning;
}

std::atomic<LogLevel>& current_level() {
    static std::atomic<LogLevel> level{level_from_environment()};
    return level;
}

// Never destroyed, because a program may exit while background threads still log. It is a mutex of
// the system even if an executor is installed, because logging must not decide the order in which
// tasks run.
std::mutex& callback_mutex = *new std::mutex;
// Guarded by callback_mutex; null means to_stderr.
std::shared_ptr<const LogCallback>& callback = *new std::shared_ptr<const LogCallback>;

}  // namespace

void set_log_callback(LogCallback replacement) {
    std::lock_guard lock(callback_mutex);
    callback = replacement ? std::make_shared<const LogCallback>(std::move(replacement)) : nullptr;
}

void set_log_level(LogLevel level) {
    current_level().store(level);
}

bool log_enabled(LogLevel level) {
    return level != LogLevel::off && level >= current_level().load();
}

void log_message(LogLevel level, std::string_view message) {
    if (!log_enabled(level)) return;
    std::shared_ptr<const LogCallback> target;
    {
        std::lock_guard lock(callback_mutex);
        target = callback;
    }
    if (target) {
        (*target)(level, message);
    } else {
        to_stderr(level, message);
    }
}

}  // namespace tailrace::internal
