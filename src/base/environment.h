// The environment of this process.
#pragma once

#include <string_view>
#include <vector>

namespace tailrace::internal {

struct EnvironmentVariable {
    std::string_view name, value;  // views of the environment, valid until somebody changes it
};

// The variables whose names start with `prefix`, in the environment's order. No other thread may
// change the environment meanwhile.
std::vector<EnvironmentVariable> environment_variables(std::string_view prefix);

}  // namespace tailrace::internal
