/* veloc.h - the interface of VELOC, with tailrace beneath: programs that were written for VELOC are compiled
 * or linked with this one unchanged. docs/veloc.md says how, and what differs.
 *
 * Link with libveloc-client, built against the MPI library that the program uses.
 *
 * Every function returns VELOC_SUCCESS or VELOC_FAILURE, unless it says otherwise. After a failure one line
 * on stderr says what was tried and what to do. No function ends the program. One thread at a time may call.
 *
 * The memory of regions stays the program's, and must be there until it is unprotected or VELOC_Finalize is
 * called. Only the calls that copy or recover regions touch it. Texts are copied.
 *
 * A checkpoint has a name and a version. Each name has a tailrace session of its own, with the shared
 * directory <persistent>/<name>, and a version is an epoch there. (A process alone has
 * <persistent>/<name>/<id>.) The session is opened by the first call that needs it: Restart_test,
 * Restart_begin or Checkpoint_begin of that name. That call is collective, and so is a Checkpoint_begin whose
 * version is not above that of the one before. If MPI runs below MPI_THREAD_MULTIPLE, all calls that begin,
 * capture, end or wait for checkpoints are collective, and so is Checkpoint_finished. */
#ifndef TAILRACE_COMPAT_VELOC_H
#define TAILRACE_COMPAT_VELOC_H

#include <mpi.h>
#include <stddef.h>

#include "veloc/defs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- begin and end -------------------------------------------------------------------------------- */

/* Reads the configuration (docs/veloc.md lists its keys) and duplicates the communicator. Collective. */
int VELOC_Init(MPI_Comm comm, const char* cfg_file);
/* For a process alone, without MPI calls. `id` tells its checkpoints from those of other processes. */
int VELOC_Init_single(unsigned int id, const char* cfg_file);
/* Waits for everything that is under way, whatever `drain` is, and closes the sessions. Collective. */
int VELOC_Finalize(int drain);

/* ---- what to save --------------------------------------------------------------------------------- */

/* Memory of count * base_size bytes. An id that is protected already gets the new place and size. */
int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size);
int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
/* The same in a group. A checkpoint takes the group of its own name, if that has regions; otherwise the group
 * of the functions above, which is called "default". */
int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name);
int VELOC_Region_unprotect(int id, const char* name);
int VELOC_Region_clear(const char* name);

/* ---- saving --------------------------------------------------------------------------------------- */

/* Checkpoint_wait, Checkpoint_begin, Checkpoint_mem and Checkpoint_end(1). */
int VELOC_Checkpoint(const char* name, int version);
int VELOC_Checkpoint_begin(const char* name, int version);
/* Copies the group's regions, or some of them (VELOC_CKPT_...). The memory may change afterwards. A second
 * copy takes the place of the first. */
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_selective(int mode, int* ids, int no_ids);
/* Hands the copy over. With mode = sync it waits until the version is durable. With success 0 the version is
 * dropped, on all ranks. */
int VELOC_Checkpoint_end(int success);
/* Waits for all versions of this rank, and says whether all since the last wait are durable. */
int VELOC_Checkpoint_wait(void);
/* VELOC_SUCCESS if nothing is under way, otherwise VELOC_FAILURE. Does not wait. */
int VELOC_Checkpoint_finished(void);
/* Writes to `routed`, which has room for VELOC_MAX_NAME bytes, where a file is. Between Checkpoint_begin and
 * Checkpoint_end it is the file that the program writes, in place of Checkpoint_mem, and closes:
 * Checkpoint_end takes it. Between Restart_begin and Restart_end it is the file that has come back. A rank
 * has one file in a version, whatever `original` is. */
int VELOC_Route_file(const char* original, char* routed);
/* Does nothing: scratch_versions says how many versions stay on the nodes. */
int VELOC_Cleanup(const char* name);

/* ---- restoring ------------------------------------------------------------------------------------ */

/* The newest version that all ranks can restore, and with version > 0 none above it. Negative if there is
 * none. Collective. */
int VELOC_Restart_test(const char* name, int version);
/* Restart_begin, Recover_mem and Restart_end(1). */
int VELOC_Restart(const char* name, int version);
/* Opens exactly this version. Collective. */
int VELOC_Restart_begin(const char* name, int version);
/* The bytes of this id in the version that is open; 0 if it has none, VELOC_FAILURE if an int cannot hold
 * them. */
int VELOC_Recover_size(int id);
/* Fills the regions of this version, or some of them (VELOC_RECOVER_...). Each must be protected, in whatever
 * group the checkpoint of this name takes, and must not be smaller than what was saved. */
int VELOC_Recover_mem(void);
int VELOC_Recover_selective(int mode, int* ids, int no_ids);
int VELOC_Restart_end(int success);

#ifdef __cplusplus
}
#endif

#endif
