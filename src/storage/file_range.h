// The check that every file makes before it reads or writes: a file can have the range.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// invalid_argument if the range ends beyond the greatest offset of a file.
inline Status check_file_range(std::string_view doing, uint64_t bytes, uint64_t offset,
                               const std::string& path) {
    if (bytes <= INT64_MAX && offset <= INT64_MAX - bytes) return Status();
    return Status(
        Code::invalid_argument,
        fmt::format("{} {} bytes at offset {} of '{}': no file is that large", doing, bytes, offset, path));
}

}  // namespace tailrace::internal
