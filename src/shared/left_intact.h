// The end of the sentence that reports a failed epoch: what the failure has left.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// If a file or directory is missing, somebody has removed it, and perhaps others with it.
inline std::string_view left_intact(const Status& why) {
    return why.code() == Code::not_found
               ? "somebody has removed files or their directory, and earlier epochs may be gone with them"
               : "earlier epochs are intact";
}

// The failure with that end.
inline Status with_left_intact(const Status& why) {
    return Status(why.code(), fmt::format("{}; {}", why.message(), left_intact(why)));
}

}  // namespace tailrace::internal
