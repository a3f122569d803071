// What was thrown, as a Status. The library throws nothing on purpose; what is left is memory that cannot be
// had, and defects of our own. Nothing of that may end the program: each thread catches, and fails what it
// worked for.
#pragma once

#include <exception>

#include "base/status.h"

namespace tailrace {

// Within a catch block. out_of_memory, or failed_state for a defect. Needs no memory itself when there is
// none.
Status caught_status() noexcept;

// Runs `work`, which returns a Status or a Result, and turns what it throws into one.
template <class Work>
auto catching(Work&& work) noexcept -> decltype(work()) {
    try {
        return work();
    } catch (...) {
        return caught_status();
    }
}

}  // namespace tailrace
