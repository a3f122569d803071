// One libFuzzer target: built once for each claim, TAILRACE_FUZZ_CHECK being the function.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "claims.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    auto broken = tailrace::internal::TAILRACE_FUZZ_CHECK({reinterpret_cast<const std::byte*>(data), bytes});
    if (broken.empty()) return 0;
    std::fprintf(stderr, "broken claim: %s\n", broken.c_str());
    std::abort();
}
