// What every function of the C interface does around its work: it lets no exception out, and keeps
// the outcome for tailrace_last_error() of the calling thread.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <type_traits>

#include "base/caught.h"
#include "base/status.h"
#include "c_api/cancellation.h"
#include "tailrace.h"

namespace tailrace::internal {

// Like set_last_error (c_api/open_session.h), for failures in which even the sentence may not fit
// into memory. `sentence` must be a literal.
tailrace_code set_last_error_literal(Code code, const char* sentence) noexcept;
tailrace_code keep_outcome(const Status& status) noexcept;

template <class Work>
tailrace_code call(Work&& work) noexcept {
    const CancellationDelayed delayed;
    try {
        return keep_outcome(catching(work));
    } catch (...) {
        return set_last_error_literal(Code::out_of_memory, "there is no memory for the call");
    }
}

// For functions that do not return a code. They return `fallback` if something was thrown.
template <class Value, class Work>
Value call_for(Value fallback, Work&& work) noexcept {
    const CancellationDelayed delayed;
    try {
        return work();
    } catch (...) {
        return fallback;
    }
}

// The number in an enumerator that comes from a C program, where it may be any number. Reading it
// as an enumeration of C++ would be undefined.
template <class Enumeration>
int number_of(const Enumeration& enumerator) {
    int number = 0;
    static_assert(sizeof number == sizeof enumerator);
    std::memcpy(&number, &enumerator, sizeof number);
    return number;
}

// "argument `name` is NULL" or ok.
inline Status not_null(const void* argument, const char* name) {
    if (argument != nullptr) return {};
    return Status(Code::invalid_argument,
                  std::string("the argument \"") + name + "\" is NULL; nothing was done");
}

}  // namespace tailrace::internal
