#include "base/time_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "base/text.h"

namespace tailrace::internal {

namespace {

struct Unit {
    std::string_view name;
    uint64_t milliseconds;
};

// The largest comes first, and of each length the name that duration_text writes.
constexpr std::array<Unit, 6> units = {
    {{"d", 86'400'000}, {"h", 3'600'000}, {"min", 60'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};

constexpr int64_t last_second = 253402300799;  // of the year 9999

// Takes `digits` digits from the front of `text`.
std::optional<int> take_number(std::string_view& text, size_t digits) {
    if (text.size() < digits) return std::nullopt;
    int number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + digits, number);
    if (error != std::errc() || rest != text.data() + digits || number < 0) return std::nullopt;
    text.remove_prefix(digits);
    return number;
}
bool take(std::string_view& text, char wanted) {
    if (text.empty() || text.front() != wanted) return false;
    text.remove_prefix(1);
    return true;
}

// "18:00" or "18:00:30" from the front of `text`.
bool take_time(std::string_view& text, std::tm& moment) {
    const auto hours = take_number(text, 2);
    if (!hours || *hours > 23 || !take(text, ':')) return false;
    const auto minutes = take_number(text, 2);
    if (!minutes || *minutes > 59) return false;
    std::optional<int> seconds = 0;
    if (take(text, ':')) seconds = take_number(text, 2);
    if (!seconds || *seconds > 59) return false;
    moment.tm_hour = *hours;
    moment.tm_min = *minutes;
    moment.tm_sec = *seconds;
    return true;
}

bool take_date(std::string_view& text, std::tm& moment) {
    const auto year = take_number(text, 4);
    if (!year || !take(text, '-')) return false;
    const auto month = take_number(text, 2);
    if (!month || *month < 1 || *month > 12 || !take(text, '-')) return false;
    const auto day = take_number(text, 2);
    if (!day || *day < 1 || *day > 31) return false;
    moment.tm_year = *year - 1900;
    moment.tm_mon = *month - 1;
    moment.tm_mday = *day;
    return true;
}

// mktime and timegm make 1 March of 30 February.
std::optional<int64_t> seconds_of(std::tm moment, bool utc) {
    const std::tm asked = moment;
    moment.tm_isdst = -1;
    const std::time_t seconds = utc ? ::timegm(&moment) : ::mktime(&moment);
    if (seconds < 0 || moment.tm_mday != asked.tm_mday || moment.tm_mon != asked.tm_mon) return std::nullopt;
    return seconds;
}

std::optional<int64_t> next_time_of_day(std::tm time, int64_t now_unix) {
    const auto now = static_cast<std::time_t>(now_unix);
    std::tm day{};
    if (::localtime_r(&now, &day) == nullptr) return std::nullopt;
    for (int later = 0; later < 2; ++later) {
        std::tm moment = day;
        moment.tm_mday += later;
        moment.tm_hour = time.tm_hour;
        moment.tm_min = time.tm_min;
        moment.tm_sec = time.tm_sec;
        moment.tm_isdst = -1;
        const std::time_t seconds = ::mktime(&moment);
        if (seconds > now) return seconds;
    }
    return std::nullopt;
}

}  // namespace

Result<uint64_t> parse_duration_ms(std::string_view text) {
    uint64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    const std::string_view name(rest, static_cast<size_t>(end - rest));
    if (error == std::errc() && name.empty() && number == 0) return uint64_t{0};
    if (error == std::errc())
        for (const Unit& unit : units)
            if (name == unit.name && number <= static_cast<uint64_t>(INT64_MAX) / unit.milliseconds)
                return number * unit.milliseconds;
    return Status(Code::invalid_argument,
                  fmt::format("\"{}\" is not a length of time: write 0, or a whole number with a unit, such "
                              "as 500ms, 90s, 10min, 2h, 1d",
                              shortened(text)));
}

std::string duration_text(uint64_t milliseconds) {
    if (milliseconds != 0)
        for (const Unit& unit : units)
            if (milliseconds % unit.milliseconds == 0)
                return fmt::format("{}{}", milliseconds / unit.milliseconds, unit.name);
    return "0";
}

std::string about_seconds(double seconds) {
    if (seconds < 10) return fmt::format("{:.1f} s", std::max(0.0, seconds));
    if (seconds < 120) return fmt::format("{:.0f} s", seconds);
    if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
    return fmt::format("{:.0f} h", seconds / 3600);
}

Result<int64_t> parse_moment(std::string_view text, int64_t now_unix) {
    int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && rest == end && number >= 0 && number <= last_second && text.size() > 8)
        return number;

    std::tm moment{};
    std::string_view left = text;
    if (take_time(left, moment) && left.empty()) {
        if (const auto found = next_time_of_day(moment, now_unix)) return *found;
    }
    left = text;
    moment = {};
    if (take_date(left, moment) && (take(left, 'T') || take(left, ' ')) && take_time(left, moment)) {
        const bool utc = take(left, 'Z');
        if (left.empty())
            if (const auto found = seconds_of(moment, utc)) return *found;
    }
    return Status(Code::invalid_argument,
                  fmt::format("\"{}\" is not a point in time: write a date and a time, such as "
                              "2026-11-24T18:00 (local, or with a Z for UTC), a time such as 18:00, or "
                              "seconds since 1970",
                              shortened(text)));
}

std::string moment_text(int64_t unix_seconds) {
    if (unix_seconds < 0 || unix_seconds > last_second) return "after the year 9999";
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

}  // namespace tailrace::internal
