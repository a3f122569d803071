// tailrace_open_mpi: a session on an MPI communicator. Everything else of the C interface is in the
// core.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "base/caught.h"
#include "c_api/cancellation.h"
#include "c_api/mpi_finalize.h"
#include "c_api/open_session.h"
#include "tailrace_mpi.h"
#include "threads/mutex.h"
#include "transport/mpi_library.h"
#include "transport/mpi_transport.h"

using namespace tailrace::internal;

namespace {

// MPI calls on a wrong communicator end the program, so mistakes are found before.
Status check(MPI_Comm communicator) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized == 0 || finalized != 0)
        return Status(Code::failed_state,
                      finalized != 0
                          ? "opening a session: MPI_Finalize was called already; close sessions before it"
                          : "opening a session: call MPI_Init_thread first");
    if (communicator == MPI_COMM_NULL)
        return Status(Code::invalid_argument,
                      "opening a session on MPI_COMM_NULL: this rank is not part of the communicator");
    int inter = 0;
    MPI_Comm_test_inter(communicator, &inter);
    if (inter != 0)
        return Status(Code::invalid_argument,
                      "opening a session on an intercommunicator: merge it first (MPI_Intercomm_merge)");
    return Status();
}

// Sessions in the order in which they were opened.
Mutex opened_mutex;
std::vector<std::weak_ptr<tailrace_session>> opened GUARDED_BY(opened_mutex);

// For an MPI_Finalize that does not come by the one below, such as that of a Fortran program without the
// module tailrace: it may call PMPI_Finalize. It deletes the attributes of MPI_COMM_SELF before anything else
// ends.
void close_with_self() REQUIRES(opened_mutex) {
    static int key = MPI_KEYVAL_INVALID;
    if (key != MPI_KEYVAL_INVALID) return;
    const auto close = [](MPI_Comm, int, void*, void*) {
        close_before_finalize();
        return MPI_SUCCESS;
    };
    if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close, &key, nullptr) == MPI_SUCCESS)
        MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

void remember(const tailrace_session* session) {
    MutexLock lock(opened_mutex);
    std::erase_if(opened, [](const auto& watched) { return watched.expired(); });
    opened.push_back(watch_session(session));
    close_with_self();
}

}  // namespace

void tailrace::internal::close_before_finalize() {
    std::vector<std::weak_ptr<tailrace_session>> sessions;
    {
        MutexLock lock(opened_mutex);
        sessions.swap(opened);
    }
    for (const auto& session : sessions) close_if_open(session, "MPI_Finalize");
}

tailrace_code tailrace_open_mpi(MPI_Comm communicator, const tailrace_options* options,
                                tailrace_session** session) try {
    const CancellationDelayed delayed;
    if (session != nullptr) *session = nullptr;
    if (Status status = check(communicator); !status.ok()) return set_last_error(status);
    // From here on other ranks wait. open_session tells them of mistakes on this one, such as a
    // NULL.
    if (const auto alone = suspected_singleton(communicator); !alone.empty()) log_warning(alone);
    auto transport = make_mpi_transport(communicator, {.warn = log_warning});
    if (!transport.ok()) return set_last_error(transport.status());
    const auto code = open_session(options, std::move(transport).value(), session);
    if (code != TAILRACE_OK) return code;
    // All ranks have the session now, so no rank may fail any more.
    if (const Status remembered = catching([&] { remember(*session); }); !remembered.ok())
        (void)catching([] {
            log_warning(
                "there is no memory for the list of open sessions: close this session before MPI_Finalize, "
                "which may not do it");
        });
    return code;
} catch (...) {
    return set_last_error(caught_status());
}

tailrace_code tailrace_open_mpi_f(MPI_Fint communicator, const tailrace_options* options,
                                  tailrace_session** session) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    // Without MPI nothing may be converted, and opening says that MPI is missing.
    const bool usable = initialized != 0 && finalized == 0;
    return tailrace_open_mpi(usable ? MPI_Comm_f2c(communicator) : MPI_COMM_NULL, options, session);
}

// Replaces the MPI library's MPI_Finalize, which runs when this one calls it. This is the last
// moment at which background threads may use MPI. (Attributes of MPI_COMM_SELF, which are deleted
// first, come too late: MPICH has released its locks by then.)
extern "C" TAILRACE_API int MPI_Finalize() {
    close_before_finalize();
    // A profiler that follows us has a function of its own.
    if (auto* next = dlsym(RTLD_NEXT, "MPI_Finalize"); next != nullptr)
        return reinterpret_cast<int (*)()>(next)();
    return PMPI_Finalize();
}
