// A team of threads that run one function at once: OpenMP's where it is there, else the standard library's.
// ThreadSanitizer does not see OpenMP's barriers, and Clang's OpenMP is a package of its own; so the tool
// does without where it is missing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace tailrace::internal::tool {

// Whether the system gives so many threads at once, with the stacks that OpenMP is told to give them.
// OpenMP's library ends the program where it does not.
Status check_team(uint32_t threads);

// What OMP_STACKSIZE asks for: a number with B, K, M or G, or of KiB; 0 for nothing and what is none.
size_t team_stack_bytes(const char* text);

// Calls body(0) .. body(threads - 1), each on a thread of its own, and returns when all have. A failure means
// that the system gave fewer threads; then not every call was made. `body` must not throw.
Status run_team(uint32_t threads, const std::function<void(uint32_t)>& body);

// "OpenMP 201511" or "std::thread": for results.
std::string team_name();

}  // namespace tailrace::internal::tool
