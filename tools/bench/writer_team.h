// A team of threads that run one function at once. It uses OpenMP if that is available, else the
// standard library's threads. ThreadSanitizer does not see OpenMP's barriers, and Clang's OpenMP is
// a separate package. So the tool works without it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace tailrace::internal::tool {

// Checks that the system can start this many threads at once, with the stacks that OpenMP is told
// to give them. OpenMP's library ends the program if they cannot be started.
Status check_team(uint32_t threads);

// The stack size that OMP_STACKSIZE asks for: a number with B, K, M or G, or a number of KiB. 0 if
// the text is null or not such a number.
size_t team_stack_bytes(const char* text);

// Calls body(0) .. body(threads - 1), each on a thread of its own, and returns when all have
// returned. A failure means that the system gave fewer threads. Then some calls were not made.
// `body` must not throw.
Status run_team(uint32_t threads, const std::function<void(uint32_t)>& body);

// "OpenMP 201511" or "std::thread": for results.
std::string team_name();

}  // namespace tailrace::internal::tool
