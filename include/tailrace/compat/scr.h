/* scr.h - the interface of SCR, with tailrace beneath: programs that were written for SCR are compiled or
 * linked with this one unchanged. docs/scr.md says how, and what differs.
 *
 * Link with libscr, built against the MPI library that the program uses.
 *
 * Every function that returns int returns SCR_SUCCESS, or another number after a failure. Then one line on
 * stderr says what was tried and what to do. No function ends the program, not even a call in the wrong
 * place: such a call fails. All ranks of MPI_COMM_WORLD must make the same calls in the same order, but for
 * SCR_Route_file, SCR_Config, SCR_Configf and SCR_Get_version. One thread at a time may call.
 *
 * A dataset has a name and consists of files. It is an epoch of one tailrace session, whose shared directory
 * is .scr/tailrace below SCR_PREFIX. */
#ifndef TAILRACE_COMPAT_SCR_H
#define TAILRACE_COMPAT_SCR_H

#ifdef __cplusplus
extern "C" {
#endif

/* The version of SCR's interface that this is. */
#define SCR_MAJOR_VERSION "3"
#define SCR_MINOR_VERSION "1"
#define SCR_PATCH_VERSION "0"
#define SCR_VERSION "v3.1.0"

#define SCR_SUCCESS (0)
/* The room, with the zero at its end, that a program has for a name or a path. */
#define SCR_MAX_FILENAME 1024

/* What a dataset is for. A program may restart from a checkpoint. An output is kept for its user. */
#define SCR_FLAG_NONE (0 << 0)
#define SCR_FLAG_CHECKPOINT (1 << 0)
#define SCR_FLAG_OUTPUT (1 << 1)

/* ---- begin and end -------------------------------------------------------------------------------- */

/* Reads the configuration and opens the session. Call it after MPI_Init. */
int SCR_Init(void);
/* Waits for everything that is under way, and closes the session. Call it before MPI_Finalize. */
int SCR_Finalize(void);
/* SCR_VERSION. The text lives until the process ends. */
char* SCR_Get_version(void);

/* ---- configuration -------------------------------------------------------------------------------- */

/* "KEY=VALUE" sets a key, "KEY=" takes it back, and "KEY" asks for its value. "KEY=VALUE PART=VALUE ..." sets
 * parts of a value, and "KEY=VALUE PART" asks for one. Setting is allowed before SCR_Init, and gives NULL.
 * Asking gives a copy of the value, which the caller frees, or NULL if there is none. */
const char* SCR_Config(const char* config);
const char* SCR_Configf(const char* format, ...);

/* ---- files ---------------------------------------------------------------------------------------- */

/* Writes to `file`, which has room for SCR_MAX_FILENAME bytes, the path under which the program opens its
 * file `name`. In a dataset that has begun it is the path to write, and the file is part of the dataset. In a
 * restart it is the path to read. Outside of both it is `name` itself. */
int SCR_Route_file(const char* name, char* file);

/* ---- restarting ----------------------------------------------------------------------------------- */

/* Sets *flag to 1 and fills `name` if there is a checkpoint to restart from: the newest one that is complete
 * and whose files are there, on all ranks. `name` has room for SCR_MAX_FILENAME bytes, and may be NULL. */
int SCR_Have_restart(int* flag, char* name);
/* Begins to read the checkpoint that SCR_Have_restart has named. */
int SCR_Start_restart(char* name);
/* Ends it. Fails if `valid` is 0 on any rank. The next SCR_Have_restart then names an older checkpoint. */
int SCR_Complete_restart(int valid);

/* ---- checkpoints and output ----------------------------------------------------------------------- */

/* Sets *flag to 1 if it is time for a checkpoint. */
int SCR_Need_checkpoint(int* flag);
/* A checkpoint named scr.dataset.N. */
int SCR_Start_checkpoint(void);
int SCR_Complete_checkpoint(int valid);
/* A dataset of this name, with SCR_FLAG_.... A dataset that has the name already is replaced. */
int SCR_Start_output(const char* name, int flags);
/* Ends the dataset. It is complete if `valid` is not 0 and all files can be saved, on all ranks. Otherwise it
 * is dropped, and the call fails on all ranks. */
int SCR_Complete_output(int valid);

/* ---- datasets ------------------------------------------------------------------------------------- */

/* The program goes on from this checkpoint, which it may have read by itself: SCR_Have_restart names it, and
 * after it older ones. */
int SCR_Current(const char* name);
/* Forgets a dataset. Its files stay. */
int SCR_Drop(const char* name);
/* Forgets a dataset and removes the files that the program has written for it. */
int SCR_Delete(const char* name);

/* Sets *flag to 1 if the program should stop. */
int SCR_Should_exit(int* flag);

#ifdef __cplusplus
}
#endif

#endif
