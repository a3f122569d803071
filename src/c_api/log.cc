#include "base/log.h"

#include <string>

#include "c_api/call.h"

using namespace tailrace::internal;

static_assert(static_cast<int>(LogLevel::debug) == TAILRACE_LOG_DEBUG);
static_assert(static_cast<int>(LogLevel::info) == TAILRACE_LOG_INFO);
static_assert(static_cast<int>(LogLevel::warning) == TAILRACE_LOG_WARNING);
static_assert(static_cast<int>(LogLevel::error) == TAILRACE_LOG_ERROR);
static_assert(static_cast<int>(LogLevel::off) == TAILRACE_LOG_OFF);

void tailrace_set_log(tailrace_log_function function, void* user) {
    // If there is no memory for the new one, the old one stays.
    call_for(0, [&] {
        LogCallback callback;
        if (function != nullptr) {
            callback = [function, user](LogLevel level, std::string_view message) {
                function(static_cast<tailrace_log_level>(level), std::string(message).c_str(), user);
            };
        }
        set_log_callback(std::move(callback));
        return 0;
    });
}

void tailrace_set_log_level(tailrace_log_level level) {
    const int number = number_of(level);
    if (number < TAILRACE_LOG_DEBUG || number > TAILRACE_LOG_OFF) return;
    set_log_level(static_cast<LogLevel>(number));
}
