// The time of day as files and records hold it: milliseconds since 1970.
#pragma once

#include <chrono>
#include <cstdint>

#include "threads/executor.h"

namespace tailrace::internal {

// 0 for times before 1970.
inline uint64_t unix_ms(std::chrono::system_clock::time_point time) {
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
    return since < 0 ? 0 : static_cast<uint64_t>(since);
}

inline uint64_t unix_ms_now() {
    return unix_ms(time_of_day());
}

}  // namespace tailrace::internal
