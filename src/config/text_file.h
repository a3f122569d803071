// The text of a configuration file.
#pragma once

#include <string>

#include "base/status.h"

namespace tailrace::internal {

// At most 1 MiB, from a file whose text can be read more than once.
Result<std::string> read_text_file(const std::string& path);

}  // namespace tailrace::internal
