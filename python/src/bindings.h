// What the files of the extension share: how a failure of the core becomes tailrace.Error, and how
// memory that Python owns is described by address and length.
//
// The Python layer above keeps what it passes alive until the call returns. No pointer is kept
// beyond a call. Every call that copies or waits releases the GIL (GilReleased).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/manifest.h"
#include "tailrace.h"

namespace tailrace::internal::python {

namespace nb = nanobind;

// A failure on its way to Python, where it becomes tailrace.Error.
struct Failure {
    int code;
    std::string sentence;
};

// Says of the calling thread that it may still be in foreign code when Python ends (late_thread.cc).
void this_thread_may_be_late();

// Lets other threads of Python run, until it is destroyed. In place of nb::gil_scoped_release, because a
// thread of the program may be in our call when Python ends, if it is a daemon.
class GilReleased {
  public:
    GilReleased() { this_thread_may_be_late(); }

  private:
    nb::gil_scoped_release release_;
};

inline void check(const Status& status) {
    if (!status.ok()) throw Failure{static_cast<int>(status.code()), status.message()};
}
// For calls of the C interface. Call it in the thread that made the call.
inline void check(tailrace_code code) {
    if (code != TAILRACE_OK) throw Failure{code, tailrace_last_error()};
}
template <class T>
T value_of(Result<T> result) {
    check(result.status());
    return std::move(result).value();
}

// An array's piece as Python passes it: element type, global shape, offset, local shape,
// TAILRACE_ARRAY_ flags.
using PieceTuple =
    std::tuple<int, std::vector<uint64_t>, std::vector<uint64_t>, std::vector<uint64_t>, uint64_t>;
// A region to save: name, address, bytes, its piece if it belongs to a global array, and, if its
// elements are not contiguous, the bytes from an element to its neighbour in each dimension.
using RegionTuple =
    std::tuple<std::string, uintptr_t, uint64_t, std::optional<PieceTuple>, std::vector<uint64_t>>;
// Memory to fill: name of the region, address, bytes.
using TargetTuple = std::tuple<std::string, uintptr_t, uint64_t>;

inline std::optional<PieceTuple> to_tuple(const std::optional<ArrayPiece>& piece) {
    if (!piece) return std::nullopt;
    const unsigned flags = (piece->may_have_gaps ? TAILRACE_ARRAY_GAPS : 0u) |
                           (piece->may_overlap ? TAILRACE_ARRAY_OVERLAP : 0u) |
                           (piece->is_list ? TAILRACE_ARRAY_LIST : 0u);
    return PieceTuple{static_cast<int>(piece->type), piece->global_shape, piece->offset, piece->local_shape,
                      flags};
}
inline std::span<std::byte> memory_at(uintptr_t address, uint64_t bytes) {
    return {reinterpret_cast<std::byte*>(address), bytes};
}

void bind_session(nb::module_& module);
void bind_reader(nb::module_& module);
void bind_direct(nb::module_& module);
void bind_stopping(nb::module_& module);
void bind_late_thread(nb::module_& module);

}  // namespace tailrace::internal::python
