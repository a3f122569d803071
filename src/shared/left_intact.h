// How the sentence of a failed epoch ends: what it has left.
#pragma once

#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// A file or directory that is missing was taken away by somebody, and perhaps not alone.
inline std::string_view left_intact(const Status& why) {
    return why.code() == Code::not_found
               ? "somebody has removed files or their directory, and earlier epochs may be gone with them"
               : "earlier epochs are intact";
}

}  // namespace tailrace::internal
