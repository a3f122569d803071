// The end of the sentence that reports a failed epoch: what the failure has left.
#pragma once

#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// If a file or directory is missing, somebody has removed it, and perhaps others with it.
inline std::string_view left_intact(const Status& why) {
    return why.code() == Code::not_found
               ? "somebody has removed files or their directory, and earlier epochs may be gone with them"
               : "earlier epochs are intact";
}

}  // namespace tailrace::internal
