// Log: the only way in which the library speaks. Messages go to a callback that the program may
// replace. The default writes warnings and errors to stderr.
// TAILRACE_LOG=debug|info|warning|error|off sets the level at start.
//
// Thread-safe. Any thread may call the callback. It must not call tailrace, and gets messages
// without a line end.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <string_view>

namespace tailrace::internal {

enum class LogLevel : int { debug = 0, info = 1, warning = 2, error = 3, off = 4 };

using LogCallback = std::function<void(LogLevel, std::string_view message)>;

// Replaces the callback. An empty one restores the default. The level stays.
void set_log_callback(LogCallback callback);
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_message(LogLevel level, std::string_view message);

// A message for which there is no memory is dropped, because logging must not make anything fail.
template <class... Arguments>
void log(LogLevel level, fmt::format_string<Arguments...> format, Arguments&&... arguments) noexcept {
    if (!log_enabled(level)) return;
    try {
        log_message(level, fmt::format(format, std::forward<Arguments>(arguments)...));
    } catch (...) {
    }
}

}  // namespace tailrace::internal
