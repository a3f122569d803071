// Lengths of time and points in time as text: "10min" to 600000 ms and back, "2026-11-24T18:00" to
// seconds since 1970. Pure, except that a point in time without a zone is one of the local zone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// Milliseconds from "0", or from a whole number with a unit: 500ms, 90s, 10min, 2h, 1d. A bare
// number other than 0 is refused, because it could mean anything.
Result<uint64_t> parse_duration_ms(std::string_view text);

// The form that parse_duration_ms takes, in the largest unit that divides it: "10min".
std::string duration_text(uint64_t milliseconds);

// "0.4 s", "45 s", "12 min", "3 h": for sentences.
std::string about_seconds(double seconds);

// Seconds since 1970 from such a number ("1795543200"), from a date and a time
// ("2026-11-24T18:00", with seconds or without, with a Z for UTC), or from a time ("18:00"), which
// is the next such time after `now_unix`.
Result<int64_t> parse_moment(std::string_view text, int64_t now_unix);

// "2026-11-24T17:00:00Z".
std::string moment_text(int64_t unix_seconds);

}  // namespace tailrace::internal
