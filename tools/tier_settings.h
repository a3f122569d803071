// The settings of commands that work on the node-local tier.
#pragma once

#include <string>

#include "base/status.h"
#include "config/config.h"

namespace tailrace::internal::tool {

// The settings of a session, as the library finds them; `local_dir` wins unless it is empty. No
// program says shared_dir here, because the plan records do.
Result<Config> tier_settings(const std::string& local_dir);

}  // namespace tailrace::internal::tool
