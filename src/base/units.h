// Sizes as text: "64MiB" to 67108864 and back. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

inline constexpr uint64_t KiB = uint64_t{1} << 10;
inline constexpr uint64_t MiB = uint64_t{1} << 20;
inline constexpr uint64_t GiB = uint64_t{1} << 30;

// Accepts digits with an optional unit B, K, KiB, KB, M, MiB, MB, G, GiB, GB, T, TiB, TB (any
// case). Units with "i" and bare letters are powers of 1024; units with only "B" are powers of
// 1000. Overflow, signs and fractions are refused.
Result<uint64_t> parse_bytes(std::string_view text);

// "1.5 GiB", "64 MiB", "17 B": at most four significant digits.
std::string format_bytes(uint64_t bytes);

inline constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

}  // namespace tailrace::internal
