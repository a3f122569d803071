// The name of the directory, in the shared one, in which a session with purpose = outputs keeps its epochs.
#pragma once

#include <string>
#include <string_view>

namespace tailrace::internal {

// JOB.outputs
inline std::string outputs_directory(std::string_view job) {
    return std::string(job) + ".outputs";
}

}  // namespace tailrace::internal
