// Turns the failure of an MPI call into a Status.
#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <string_view>

#include "base/status.h"

namespace tailrace::internal {

inline Status mpi_status(int code, std::string_view attempted) {
    std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
    return Status(Code::transport, fmt::format("{}: MPI says: {}", attempted,
                                               std::string_view(text.data(), static_cast<size_t>(length))));
}

// Returns from the function if an MPI call fails. The other arguments make the sentence, as for
// fmt::format.
#define TAILRACE_MPI_TRY(call, ...)                                \
    do {                                                           \
        if (const int mpi_code = (call); mpi_code != MPI_SUCCESS)  \
            return mpi_status(mpi_code, fmt::format(__VA_ARGS__)); \
    } while (false)

}  // namespace tailrace::internal
