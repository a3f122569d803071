// A test program that includes this ends where an invariant of the library is broken. By default that fails a
// session in order, which a test that expects failures could not tell from others.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/invariant.h"

namespace tailrace::internal::testing_support {

[[maybe_unused]] inline const bool invariants_end_the_test = [] {
    on_broken_invariant([](const std::string& sentence) {
        std::fprintf(stderr, "%s\n", sentence.c_str());
        std::abort();
    });
    return true;
}();

}  // namespace tailrace::internal::testing_support
