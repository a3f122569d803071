// The environment of this process.
#pragma once

#include <string_view>
#include <vector>

namespace tailrace::internal {

struct EnvironmentVariable {
    std::string_view name, value;  // where the environment has them: until somebody changes it
};

// Those whose name starts with `prefix`, in the environment's order. Not while another thread changes it.
std::vector<EnvironmentVariable> environment_variables(std::string_view prefix);

}  // namespace tailrace::internal
