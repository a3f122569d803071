// MPI_Finalize of a Fortran program closes open sessions first, as that of C does (src/c_api/mpi_api.cc).
// MPI's bindings may call PMPI_Finalize, which does not come by there. Then an attribute of MPI_COMM_SELF
// would close the sessions. MPICH has released its locks by then, so calls in two threads break it.
#include "c_api/mpi_finalize.h"

#include <dlfcn.h>
#include <mpi.h>

namespace {

void close_and_go_on(const char* name, MPI_Fint* error) {
    tailrace::internal::close_before_finalize();
    if (auto* next = dlsym(RTLD_NEXT, name); next != nullptr) {
        reinterpret_cast<void (*)(MPI_Fint*)>(next)(error);
        return;
    }
    const int code = PMPI_Finalize();
    if (error != nullptr) *error = code;
}

}  // namespace

extern "C" {

// Of the module mpi and of mpif.h.
TAILRACE_API void mpi_finalize_(MPI_Fint* error) {
    close_and_go_on("mpi_finalize_", error);
}

// Of the module mpi_f08. Its argument is optional, so it may be null.
TAILRACE_API void mpi_finalize_f08_(MPI_Fint* error) {
    close_and_go_on("mpi_finalize_f08_", error);
}

}  // extern "C"
