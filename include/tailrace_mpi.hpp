// tailrace_mpi.hpp - sessions of the C++ interface over an MPI communicator. Link with
// libtailrace_mpi.
//
//     tailrace::Session session = tailrace::open_mpi(MPI_COMM_WORLD, {{"shared_dir", "checkpoints"}});
//
// Ask for MPI_THREAD_MULTIPLE in MPI_Init_thread. tailrace_mpi.h says what changes with less. Close or
// destroy the session before MPI_Finalize.
#ifndef TAILRACE_MPI_HPP
#define TAILRACE_MPI_HPP

#include "tailrace.hpp"

#if __cplusplus >= 201703L  // else tailrace.hpp says what is missing

#include "tailrace_mpi.h"

namespace tailrace {
inline namespace v0 {

namespace detail {

inline Session open_mpi(MPI_Comm communicator, const tailrace_options* options) {
    tailrace_session* session = nullptr;
    check(tailrace_open_mpi(communicator, options, &session));
    return Session(session);
}

}  // namespace detail

// Collective over `communicator`.
inline Session open_mpi(MPI_Comm communicator, const Options& options) {
    return detail::open_mpi(communicator, options.get());
}
// Opens a session with the defaults, the environment, and the file that TAILRACE_CONFIG names.
inline Session open_mpi(MPI_Comm communicator) {
    return detail::open_mpi(communicator, nullptr);
}

}  // namespace v0
}  // namespace tailrace

#endif  // C++17

#endif
