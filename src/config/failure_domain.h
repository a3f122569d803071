// Failure domains (setting failure_domain): what is lost together with a node, such as a rack.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

// Whether the setting has one of its forms: empty, "file:PATH" or "command:CMD".
Status check_failure_domain(std::string_view setting);

// The failure domain of this machine, whose name is `host`. Empty setting: the host name. file: the
// word behind the host name on its line; lines that begin with # do not count. command: the first line
// that it prints. It is killed if it has not ended after `longest`, because all ranks wait for it.
Result<std::string> find_failure_domain(const std::string& setting, const std::string& host,
                                        std::chrono::seconds longest = std::chrono::seconds(30));

}  // namespace tailrace::internal
