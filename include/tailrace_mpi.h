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

/* Opens a session on a duplicate of `communicator`, so tailrace never sees or disturbs the program's own
 * messages. The settings must be equal on all ranks. If they are not, the error names the first setting that
 * differs. Collective over `communicator`. Otherwise as tailrace_open: `options` may be NULL, or be freed
 * afterwards, and after a failure *session is NULL.
 *
 * Ask for MPI_THREAD_MULTIPLE in MPI_Init_thread. With less, tailrace sends nothing in the background. Every
 * node then writes its own part, and save, wait and other calls that tailrace.h names become collective.
 * This is not so if the nodes' agent processes carry the epochs (setting agent_carries).
 *
 * Close the session before MPI_Finalize. MPI_Finalize closes a session that is still open and waits for its
 * flushes. It can report failures only in the log. */
TAILRACE_API tailrace_code tailrace_open_mpi(MPI_Comm communicator, const tailrace_options* options,
                                             tailrace_session** session);
/* Does the same for a communicator of Fortran's module mpi or of mpif.h, for bindings to other languages. The
 * module tailrace (docs/fortran.md) uses it. */
TAILRACE_API tailrace_code tailrace_open_mpi_f(MPI_Fint communicator, const tailrace_options* options,
                                               tailrace_session** session);

#ifdef __cplusplus
}
#endif

#endif
