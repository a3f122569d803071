/* tailrace_mpi.h - tailrace on an MPI communicator. The rest of the interface is in tailrace.h.
 *
 * Link with libtailrace_mpi, built against the MPI library that the program uses.
 */
#ifndef TAILRACE_MPI_H
#define TAILRACE_MPI_H

#include <mpi.h>

#include "tailrace.h"

/* The communicators of the MPICH family and of Open MPI are different types. A program compiled for
 * one family would crash in a tailrace built for the other. So the functions have different names
 * for each, and such a program does not link. */
#ifdef OPEN_MPI
#define tailrace_open_mpi tailrace_open_mpi_for_open_mpi
#define tailrace_open_mpi_f tailrace_open_mpi_f_for_open_mpi
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- session -------------------------------------------------------------------------------------- */

/* Opens a session on a duplicate of `communicator`, so the program's own traffic is never seen or disturbed.
 * Collective over `communicator`. The settings must be equal on all ranks. If they are not, the error names
 * the first one that differs.
 *
 * Ask for MPI_THREAD_MULTIPLE in MPI_Init_thread. With less, nothing is sent in the background: every node
 * writes its own part, and save, wait and wait_all become collective, unless the nodes' agent processes carry
 * the epochs (setting agent_carries).
 *
 * Close the session before MPI_Finalize. A session still open is closed by MPI_Finalize, which waits for its
 * flushes and can report failures in the log only. */
TAILRACE_API tailrace_code tailrace_open_mpi(MPI_Comm communicator, const tailrace_options* options,
                                             tailrace_session** session);
/* The same for a communicator as Fortran's modules mpi and mpif.h have it. For bindings to other languages;
 * the module tailrace (docs/fortran.md) uses it. */
TAILRACE_API tailrace_code tailrace_open_mpi_f(MPI_Fint communicator, const tailrace_options* options,
                                               tailrace_session** session);

#ifdef __cplusplus
}
#endif

#endif
