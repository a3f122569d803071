#include "base/log.h"

#include <string>

#include "c_api/call.h"

static_assert(static_cast<int>(tailrace::LogLevel::debug) == TAILRACE_LOG_DEBUG);
static_assert(static_cast<int>(tailrace::LogLevel::info) == TAILRACE_LOG_INFO);
static_assert(static_cast<int>(tailrace::LogLevel::warning) == TAILRACE_LOG_WARNING);
static_assert(static_cast<int>(tailrace::LogLevel::error) == TAILRACE_LOG_ERROR);
static_assert(static_cast<int>(tailrace::LogLevel::off) == TAILRACE_LOG_OFF);

void tailrace_set_log(tailrace_log_function function, void* user) {
    // Without memory for the new one, the old one stays.
    tailrace::call_for(0, [&] {
        tailrace::LogCallback callback;
        if (function != nullptr) {
            callback = [function, user](tailrace::LogLevel level, std::string_view message) {
                function(static_cast<tailrace_log_level>(level), std::string(message).c_str(), user);
            };
        }
        tailrace::set_log_callback(std::move(callback));
        return 0;
    });
}

void tailrace_set_log_level(tailrace_log_level level) {
    const int number = tailrace::number_of(level);
    if (number < TAILRACE_LOG_DEBUG || number > TAILRACE_LOG_OFF) return;
    tailrace::set_log_level(static_cast<tailrace::LogLevel>(number));
}
