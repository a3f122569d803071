// Turns what was thrown into a Status. The library throws nothing on purpose. What remains is
// failed allocations and our own defects. They must not end the program. So each thread catches
// them and fails what it worked for.
#pragma once

#include <type_traits>

#include "base/status.h"

namespace tailrace::internal {

// Call it within a catch block. Returns out_of_memory, or failed_state for a defect. It needs no
// memory itself if there is none.
[[gnu::visibility("default")]] Status caught_status() noexcept;

// Runs `work`, which returns a Status, a Result or nothing (then ok), and turns what it throws into
// one.
template <class Work>
auto catching(Work&& work) noexcept {
    using Outcome = decltype(work());
    using Told = std::conditional_t<std::is_void_v<Outcome>, Status, Outcome>;
    try {
        if constexpr (std::is_void_v<Outcome>) {
            work();
            return Told();
        } else {
            return Told(work());
        }
    } catch (...) {
        return Told(caught_status());
    }
}

}  // namespace tailrace::internal
