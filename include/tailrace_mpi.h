/* tailrace_mpi.h - tailrace over an MPI communicator. The rest of the interface is in tailrace.h.
 *
 * Link with libtailrace_mpi, built against the MPI library the program uses.
 */
#ifndef TAILRACE_MPI_H
#define TAILRACE_MPI_H

#include <mpi.h>

#include "tailrace.h"

/* MPI libraries of the MPICH family and Open MPI have different communicators: a program compiled for one
 * would crash in a tailrace built for the other. So the function has another name for each, and such a
 * program does not link. */
#ifdef OPEN_MPI
#define tailrace_open_mpi tailrace_open_mpi_for_open_mpi
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- session -------------------------------------------------------------------------------------- */

/* Opens a session on a communicator, which is duplicated: the program's own traffic is never seen or
 * disturbed. Collective over `communicator`. Ask for MPI_THREAD_MULTIPLE in MPI_Init_thread, or nothing is
 * sent in the background, every node writes its own part, and save, wait and wait_all become collective.
 * Close the session before MPI_Finalize, which otherwise closes it, waits for its flushes, and can tell of
 * failures in the log only. The settings must be equal on all ranks; if not, the error names
 * the first that differs. */
TAILRACE_API tailrace_code tailrace_open_mpi(MPI_Comm communicator, const tailrace_options* options,
                                             tailrace_session** session);

#ifdef __cplusplus
}
#endif

#endif
