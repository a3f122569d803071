/* tailrace.h - saves a parallel program's state in one memory copy, and writes it to a few files in the
 * background.
 *
 * The shortest use, without MPI (with MPI, call tailrace_open_mpi of tailrace_mpi.h instead of
 * tailrace_open):
 *
 *     tailrace_options* options = tailrace_options_new();
 *     tailrace_options_set(options, "shared_dir", "checkpoints");
 *     tailrace_session* session;
 *     if (tailrace_open(options, &session) != TAILRACE_OK) { puts(tailrace_last_error()); return 1; }
 *     tailrace_register(session, "state", state, sizeof state);
 *     uint64_t step = 0;
 *     tailrace_restore(session, TAILRACE_NEWEST, &step);      // TAILRACE_NOT_FOUND on a first run
 *     while (step < last) { compute(state); if (++step % 100 == 0) tailrace_save(session, step); }
 *     tailrace_close(session);                                // waits until everything is written
 *     tailrace_options_free(options);
 *
 * Errors: every function that returns tailrace_code returns TAILRACE_OK or the kind of failure. After a
 * failure tailrace_last_error() holds a sentence: what was tried, where, and what is left intact. The
 * sentence belongs to the calling thread and stays until that thread's next call. The library never exits,
 * aborts or prints for the program. It logs through a callback (tailrace_set_log).
 *
 * Threads: a session or a reader may be used from several threads. Calls marked "collective" must be made by
 * every rank of the session's communicator, in the same order. If the MPI library provides less than
 * MPI_THREAD_MULTIPLE, save, capture, give_up, wait, wait_all, should_save, should_stop and files_save are
 * collective too, unless the nodes' agent processes carry the epochs (setting agent_carries).
 *
 * Misuse: NULL where an argument is needed gives TAILRACE_INVALID_ARGUMENT. A session, reader or options
 * object that has been closed or freed is recognised and gives TAILRACE_FAILED_STATE.
 *
 * Ownership: pointers returned as `const char*` or `const ...*` live as long as the object they come from.
 * Release what a function makes with its _free or _close function. Memory given to tailrace_register stays
 * the program's. tailrace reads it in save and capture, writes it in restore, and never otherwise.
 *
 * Growth: a struct that programs allocate ends with `reserved` fields, and later versions use some of them.
 * In a struct that the program passes they must be 0, so begin with zeros. tailrace sets them to 0 in a
 * struct that it fills.
 * docs/linking.md says which parts of the interface never change.
 *
 * This header is C11 and uses neither C++ nor MPI types.
 */
#ifndef TAILRACE_H
#define TAILRACE_H

#include <stddef.h>
#include <stdint.h>

#include "tailrace_status.h"

#if defined(__GNUC__)
#define TAILRACE_API __attribute__((visibility("default")))
#else
#define TAILRACE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version -------------------------------------------------------------------------------------- */

#define TAILRACE_VERSION_MAJOR 1
#define TAILRACE_VERSION_MINOR 0
#define TAILRACE_VERSION_PATCH 0

/* Returns the version of the library that the program runs with, such as "1.0.0". The macros give the
 * version of the header that the program was compiled with. The text lives until the process ends. */
TAILRACE_API const char* tailrace_version(void);

/* ---- failures ------------------------------------------------------------------------------------- */

/* Returns the kind of failure that a code stands for, in words such as "no space". Never NULL. The text
 * lives until the process ends. */
TAILRACE_API const char* tailrace_code_name(tailrace_code code);
/* Returns the sentence of this thread's last call if that call failed, otherwise "". Never NULL. The text
 * lives until the thread's next call. */
TAILRACE_API const char* tailrace_last_error(void);

/* ---- logging -------------------------------------------------------------------------------------- */

typedef enum tailrace_log_level {
    TAILRACE_LOG_DEBUG = 0,
    TAILRACE_LOG_INFO = 1,
    TAILRACE_LOG_WARNING = 2,
    TAILRACE_LOG_ERROR = 3,
    TAILRACE_LOG_OFF = 4
} tailrace_log_level;

/* A function of the program that gets each message. tailrace may call it from any thread, including
 * tailrace's own threads. The function must not call tailrace. `message` lives until the function returns.
 * `user` is the pointer that was given to tailrace_set_log. */
typedef void (*tailrace_log_function)(tailrace_log_level level, const char* message, void* user);

/* Sets the log callback of the whole process. NULL restores the default: warnings and errors go to
 * stderr, unless TAILRACE_LOG names another level. */
TAILRACE_API void tailrace_set_log(tailrace_log_function function, void* user);
/* Sets the log level of the whole process. Messages below this level are not logged. */
TAILRACE_API void tailrace_set_log_level(tailrace_log_level level);

/* ---- options -------------------------------------------------------------------------------------- */

/* Settings of a session. `tailrace config` (command line) and docs/settings.md list all keys. Later
 * sources win, in this order: defaults, files loaded, environment TAILRACE_<KEY>, keys set in code.
 * Only one thread at a time may use an options object. */
typedef struct tailrace_options tailrace_options;

/* Makes options without settings. Returns NULL if there is no memory. Free them with
 * tailrace_options_free. */
TAILRACE_API tailrace_options* tailrace_options_new(void);
/* Frees the options. Sessions that were opened with them keep their settings. NULL is allowed. */
TAILRACE_API void tailrace_options_free(tailrace_options* options);
/* Adds the settings of a TOML file. After a failure the options are as they were. */
TAILRACE_API tailrace_code tailrace_options_load(tailrace_options* options, const char* toml_path);
/* Sets one key. `value` is the text that a file would have for this key. An unknown key or a bad value
 * gives TAILRACE_INVALID_ARGUMENT. After a failure the options are as they were. */
TAILRACE_API tailrace_code tailrace_options_set(tailrace_options* options, const char* key,
                                                const char* value);

/* ---- session -------------------------------------------------------------------------------------- */

/* What a program saves, and the epochs that it has saved. A program owns a session from tailrace_open to
 * tailrace_close. */
typedef struct tailrace_session tailrace_session;

/* Opens a session without ranks: the process is rank 0 of 1. `options` may be freed afterwards. If
 * `options` is NULL, the settings come from the defaults, the environment, and the file that
 * TAILRACE_CONFIG names. After a failure *session is NULL. Close the session with tailrace_close. */
TAILRACE_API tailrace_code tailrace_open(const tailrace_options* options, tailrace_session** session);

/* Waits for all flushes and returns the first failure among them. If the newest epoch was kept in the
 * node-local tier (settings shared_every and queue_policy), this call flushes it too, unless
 * flush_at_close is no. The session is freed even after a failure. Collective. NULL is allowed. */
TAILRACE_API tailrace_code tailrace_close(tailrace_session* session);

/* Return this rank, counted from 0, and the number of ranks. They return -1 and 0 if there is no session. */
TAILRACE_API int tailrace_rank(const tailrace_session* session);
TAILRACE_API int tailrace_rank_count(const tailrace_session* session);
/* Returns the value of a setting as this session uses it, or NULL if there is no such key or no session.
 * The text lives until this thread next calls this function. */
TAILRACE_API const char* tailrace_setting(const tailrace_session* session, const char* key);

/* ---- what to save --------------------------------------------------------------------------------- */

/* Element types of arrays. The numbers are part of the file format. */
typedef enum tailrace_type {
    TAILRACE_BYTES = 0,
    TAILRACE_INT8 = 1,
    TAILRACE_UINT8 = 2,
    TAILRACE_INT16 = 3,
    TAILRACE_UINT16 = 4,
    TAILRACE_INT32 = 5,
    TAILRACE_UINT32 = 6,
    TAILRACE_INT64 = 7,
    TAILRACE_UINT64 = 8,
    TAILRACE_FLOAT16 = 9,
    TAILRACE_BFLOAT16 = 10,
    TAILRACE_FLOAT32 = 11,
    TAILRACE_FLOAT64 = 12,
    TAILRACE_COMPLEX64 = 13,
    TAILRACE_COMPLEX128 = 14,
    TAILRACE_BOOL = 15
} tailrace_type;

#define TAILRACE_MAX_DIMENSIONS 16

/* Declarations about a global array. All ranks must make the same declarations. Without a declaration the
 * ranks' pieces must cover every element exactly once. If they do not, the epoch is not committed. */
#define TAILRACE_ARRAY_GAPS 1u /* elements in no rank's piece are allowed; they cannot be read */
/* Several ranks' pieces may contain the same element. The value of the lowest rank counts. A rank
 * that restores exactly the piece it saved gets its own values back. */
#define TAILRACE_ARRAY_OVERLAP 2u
/* In tailrace_region_info only: the array is a list (tailrace_register_list). */
#define TAILRACE_ARRAY_LIST 4u

/* A rank's piece of a global array, row-major (C order): element i of dimension d of the piece is element
 * offset[d] + i of the whole array. Shapes and offsets count elements. Each pointer leads to `dimensions`
 * numbers, which the call copies.
 *
 * By default the memory is exactly the piece. It may also be larger, such as a block with ghost cells
 * around the rank's own cells. In that case describe the memory with the fields below. Save then reads only
 * the piece, and restore writes only the piece:
 *
 *     memory_shape         elements of the memory in each dimension
 *     memory_offset        element of the memory at which the piece begins; NULL: the first element
 *     memory_stride_bytes  bytes from an element to the next in each dimension; NULL: row-major
 *     memory_bytes         size of the memory, which the shape must not exceed; 0: not known
 *
 * Strides can describe every second element, one member of a struct, or dimensions in another order. (A
 * Fortran array of doubles with two dimensions has the strides {8, 8 * rows}.) Strides must be positive, and
 * no two elements of the piece may share memory. The stride of a dimension with one element is ignored. If
 * strides are given, memory_shape may be NULL.
 *
 * Example: a grid of ny x nx own cells with 2 ghost cells on each side has local_shape {ny, nx},
 * memory_shape {ny + 4, nx + 4} and memory_offset {2, 2}.
 *
 * Later versions may use the reserved fields. So begin with zeros, as `tailrace_array array = {0};` or an
 * initialiser does. If a reserved field is not zero, the call gives TAILRACE_INVALID_ARGUMENT. */
typedef struct tailrace_array {
    tailrace_type type;
    int dimensions; /* 1..TAILRACE_MAX_DIMENSIONS */
    const uint64_t* global_shape;
    const uint64_t* offset;
    const uint64_t* local_shape;
    uint64_t flags; /* TAILRACE_ARRAY_..., or 0 */
    const uint64_t* memory_shape;
    const uint64_t* memory_offset;
    const uint64_t* memory_stride_bytes;
    uint64_t memory_bytes;
    uint64_t reserved[8];
} tailrace_array;

/* Registers memory under a name, as plain bytes or as a piece of a global array. The name has 1 to
 * 4096 bytes of UTF-8. Each name can be registered once on a rank, and a second time gives
 * TAILRACE_ALREADY_EXISTS. `bytes` may be 0, and `memory` may then be NULL. The memory must live until the
 * name is updated or unregistered, or the session is closed. */
TAILRACE_API tailrace_code tailrace_register(tailrace_session* session, const char* name, void* memory,
                                             uint64_t bytes);
TAILRACE_API tailrace_code tailrace_register_array(tailrace_session* session, const char* name, void* memory,
                                                   const tailrace_array* array);

/* Registers a value that is the same on all ranks, such as the time step, as plain bytes: `bytes` of them, at
 * least 1, the same number on all ranks. Any number of ranks may restore it. The ranks' values are not
 * compared. If they differ, a rank that saved one gets its own back, and a new rank gets rank 0's. In the
 * epoch the value is an array of TAILRACE_BYTES, declared with TAILRACE_ARRAY_OVERLAP, which each rank has
 * whole. To give the name another place, unregister it and register it again. */
TAILRACE_API tailrace_code tailrace_register_replicated(tailrace_session* session, const char* name,
                                                        void* memory, uint64_t bytes);

/* Memory that the program moves and resizes by itself, such as a growing buffer. For such memory
 * tailrace_register_resizable takes two functions of the program. tailrace calls both in the thread that
 * calls tailrace_save, tailrace_capture or a restore, and passes the `user` that was registered. The
 * functions must not call tailrace, and must not throw. */
/* Returns where the memory begins, and sets *bytes to its size. It may return NULL if the size is 0. */
typedef void* (*tailrace_find_function)(void* user, uint64_t* bytes);
/* Gives the memory a size of `bytes`, for a restore. It need not keep what the memory held. It returns 0, or
 * another number if this size is not possible. The restore then gives TAILRACE_OUT_OF_MEMORY. */
typedef int (*tailrace_resize_function)(void* user, uint64_t bytes);
/* Registers such memory under a name, as plain bytes. Each save takes the memory as `find` gives it at that
 * time. A restore gives the memory the size that it had in the epoch. */
TAILRACE_API tailrace_code tailrace_register_resizable(tailrace_session* session, const char* name,
                                                       tailrace_find_function find,
                                                       tailrace_resize_function resize, void* user);
/* Registers a list, such as particles. Each rank may have any number of items. The whole list is the items
 * of rank 0, then those of rank 1, and so on. An item is `width` elements of `type`: 3 of TAILRACE_FLOAT64
 * for a position, or sizeof(struct particle) of TAILRACE_BYTES for a struct. `find` and `resize` work as
 * above. They count bytes, and the bytes must be a whole number of items. All ranks register the list, even
 * a rank without items.
 *
 * On the same number of ranks as at the save, a restore gives each rank its own items back. On another number
 * of ranks each rank gets an even share, in the order of the whole list. The program then
 * moves items to the ranks where it wants them, as it does after a time step. A reader of the epoch sees the
 * whole as an array (tailrace_reader_array, tailrace_reader_read_box) of one dimension, or of two if `width`
 * is not 1. */
TAILRACE_API tailrace_code tailrace_register_list(tailrace_session* session, const char* name,
                                                  tailrace_type type, uint64_t width,
                                                  tailrace_find_function find,
                                                  tailrace_resize_function resize, void* user);
/* Returns the rank, 0 to rank_count - 1, that gets item `index` of a list of `items` items. It must give each
 * item the same rank wherever it is called. It must not call tailrace, and must not throw. */
typedef int (*tailrace_owner_function)(void* user, uint64_t index, uint64_t items, int rank_count);
/* Says which items of a registered list each rank gets when another number of ranks restores it, in place of
 * an even share. A rank gets its items in the order of the whole list. tailrace calls `owner` in the thread
 * that restores, for every item and on every rank, with the `user` of this call. Items that lie together and
 * have one owner are read together, so long runs are fast. A rank that does not exist gives
 * TAILRACE_INVALID_ARGUMENT. NULL: even shares again. A name that is not registered gives
 * TAILRACE_NOT_FOUND, and one that is not a list TAILRACE_INVALID_ARGUMENT. */
TAILRACE_API tailrace_code tailrace_set_list_owner(tailrace_session* session, const char* name,
                                                   tailrace_owner_function owner, void* user);
/* Give a registered name a new place and size. They may be called at any time between saves. A name that
 * is not registered gives TAILRACE_NOT_FOUND. Resizable memory and lists follow the program by themselves,
 * so for them these calls give TAILRACE_INVALID_ARGUMENT. */
TAILRACE_API tailrace_code tailrace_update(tailrace_session* session, const char* name, void* memory,
                                           uint64_t bytes);
TAILRACE_API tailrace_code tailrace_update_array(tailrace_session* session, const char* name, void* memory,
                                                 const tailrace_array* array);
/* Unregisters a name. Later epochs do not contain it. A name that is not registered gives
 * TAILRACE_NOT_FOUND. */
TAILRACE_API tailrace_code tailrace_unregister(tailrace_session* session, const char* name);

/* ---- saving --------------------------------------------------------------------------------------- */

/* Saves what is registered as `epoch`, a number such as a time step. The number must grow from save to
 * save and be the same on all ranks. The call returns when the copy in the node-local tier is complete and
 * checksummed. The program may then change its memory, and the rest happens in the background. The call is
 * not collective: ranks may make it at different times. A save that fails uses its number up, because
 * other ranks may have captured their part. The number stays free only if there is one rank and nothing
 * was saved (TAILRACE_INVALID_ARGUMENT). */
TAILRACE_API tailrace_code tailrace_save(tailrace_session* session, uint64_t epoch);

/* Saves in two steps, for a program that decides after the copy whether it wants the epoch.
 * tailrace_capture copies what is registered, as tailrace_save does, but tells no other rank. The program may
 * then change its memory. The epoch does not exist yet. tailrace_save with the same number takes this copy,
 * and tailrace_give_up drops it. Another tailrace_capture, a save of another number, and tailrace_close drop
 * it too. If the capture fails, there is no copy, and the program may try the number again. A rank without
 * a copy must call tailrace_give_up, because tailrace_save would take its memory as it is at that time,
 * beside the other ranks' earlier copies. Like a save, a capture may remove the oldest epoch from the
 * node-local tier (setting keep_local). If the program dies after every rank has captured the epoch, the
 * epoch counts as saved. */
TAILRACE_API tailrace_code tailrace_capture(tailrace_session* session, uint64_t epoch);
/* Takes the place of tailrace_save on a rank that has nothing to save as `epoch`, or does not want the
 * epoch. The epoch fails on all ranks with the sentence `why`. Without this call the other ranks would wait
 * for this rank. The number is used up. tailrace_capture and tailrace_give_up are collective if
 * tailrace_save is. */
TAILRACE_API tailrace_code tailrace_give_up(tailrace_session* session, uint64_t epoch, const char* why);

/* How far an epoch has come. Later versions may add states. So use tailrace_wait to wait for the end of an
 * epoch, and compare states for equality only. */
typedef enum tailrace_state {
    TAILRACE_STATE_UNKNOWN = 0,    /* this session does not know the epoch */
    TAILRACE_STATE_CAPTURED = 1,   /* in the node-local tier, waiting */
    TAILRACE_STATE_FLUSHING = 2,   /* on its way to the shared directory */
    TAILRACE_STATE_COMMITTED = 3,  /* durable in the shared directory, in a few files */
    TAILRACE_STATE_KEPT_LOCAL = 4, /* stays in the node-local tier, as configured or because flushes queue */
    TAILRACE_STATE_FAILED = 5,     /* not in the shared directory; `why` says more */
    /* Captured, and also safe from the loss of nodes (setting redundancy); losses_survived says how many. */
    TAILRACE_STATE_PROTECTED = 6
} tailrace_state;

typedef struct tailrace_epoch_info {
    uint64_t epoch;
    uint32_t run; /* number of the session that saved it, counted from 1 in this directory */
    tailrace_state state;
    tailrace_code why_code;  /* TAILRACE_OK unless the epoch has failed */
    char why[1024];          /* failed: the sentence, cut to fit; kept local: the reason; else "" */
    uint64_t captured_bytes; /* of this rank */
    double blocked_seconds;  /* how long the save blocked this rank */
    double flush_seconds;    /* from the flush's start to the commit, as known on this rank */
    int in_local, in_shared; /* 1: a restore can take it from there (tailrace_list only) */
    /* How many nodes of each set may be lost, with everything that they have captured, before the captured
     * epoch can no longer be restored. It does not depend on `state`. 0: none, or not known yet. It is set
     * only for epochs of this session. */
    uint64_t losses_survived;
    uint64_t reserved[7]; /* for later versions; 0 */
} tailrace_epoch_info;

/* Writes what this rank knows of an epoch to *info. The state of an epoch that this session has not saved
 * is TAILRACE_STATE_UNKNOWN. Never blocks. */
TAILRACE_API tailrace_code tailrace_epoch_state(tailrace_session* session, uint64_t epoch,
                                                tailrace_epoch_info* info);

/* Wait until the epoch, or every epoch of the session, has ended. They return its result, which is
 * TAILRACE_OK if the epoch was committed or kept local. tailrace_wait_all returns the first failure. If the
 * ranks' pieces of an array do not fit together (elements in no piece, undeclared overlaps, different types
 * or global shapes), the result is TAILRACE_INVALID_ARGUMENT. Nothing of such an epoch is kept, and earlier
 * epochs stay. `seconds` < 0 means no time limit. If the time runs out first, the call gives
 * TAILRACE_TIMEOUT and the work goes on. An epoch that this session has not saved gives
 * TAILRACE_NOT_FOUND. */
TAILRACE_API tailrace_code tailrace_wait(tailrace_session* session, uint64_t epoch, double seconds);
TAILRACE_API tailrace_code tailrace_wait_all(tailrace_session* session, double seconds);

/* ---- when to save, when to stop ------------------------------------------------------------------- */

/* These functions give all ranks the same answer at the same call: the n-th call of a function has one
 * answer, whenever a rank makes that call. Every rank must call them, for example after each step. The calls
 * of each function are counted separately. Rank 0 decides some calls ahead and tells the other ranks. A rank
 * waits only for rank 0, and only if it is ahead of rank 0 by more than that. If it has waited for ten
 * minutes, the call gives TAILRACE_TIMEOUT. Such a call does not count, so the program may make it again.
 *
 * A decision of rank 0 takes effect at the second call after it at the latest. If the program makes more than
 * four calls a second, it takes effect after about a quarter of a second. If steps take less than a
 * millisecond, ask at every tenth or hundredth step.
 *
 * These functions are not collective, and any thread may call them. If the MPI library provides less than
 * MPI_THREAD_MULTIPLE, they are collective: each rank sends one small message to all ranks, and one
 * reduction follows.
 *
 *     while (step < last) {
 *         compute(state); ++step;
 *         int save; const char* why;
 *         if (tailrace_should_stop(session, &why) != TAILRACE_OK) break;
 *         if (tailrace_should_save(session, &save) != TAILRACE_OK) break;
 *         if (save || why != NULL) tailrace_save(session, step);
 *         if (why != NULL) break;
 *     } */

/* Sets *yes to 1 if it is time to save, otherwise to 0. It is time to save in these cases:
 *
 *     setting save_interval  the interval has passed since the last save
 *     setting save_every     the call is the save_every-th since the last such call
 *     setting mtbf           tailrace computes the best interval from the mean time between failures
 *                            and from the cost of the saves so far, and this interval has passed
 *     end of the job         once before it, if the program does not call tailrace_should_stop
 *
 * docs/settings.md describes these settings. Without any of them it is never time to save. */
TAILRACE_API tailrace_code tailrace_should_save(tailrace_session* session, int* yes);
/* Sets *why to the reason to stop, a text such as "signal TERM at rank 3", or to NULL if there is none. The
 * reason is the same on all ranks. The text lives as long as the session. Once there is a reason, all later
 * calls give it too.
 *
 * There are three kinds of reasons. Any rank may have got a signal of stop_signals since the session was
 * opened. The end of the job may be so near that there is just time for a last save (job_end, job_minutes,
 * SLURM_JOB_END_TIME, stop_before). Or somebody may have called `tailrace halt`. Rank 0 looks for such an
 * order about once a second, and removes it when the program gets the reason.
 *
 * tailrace_close flushes the last save whatever shared_every says, and waits for this flush. */
TAILRACE_API tailrace_code tailrace_should_stop(tailrace_session* session, const char** why);

/* ---- restoring ------------------------------------------------------------------------------------ */

#define TAILRACE_NEWEST UINT64_MAX

/* The newest epoch is the one that the program reached last. A run may restore an older epoch, or
 * begin anew. Once it has completed an epoch of its own, the later epochs of earlier runs are left
 * behind. They come last in lists, and can be restored by their number. */

/* Lists the epochs that can be restored: newest first, those left behind last. Free *epochs with
 * tailrace_list_free. Collective. */
TAILRACE_API tailrace_code tailrace_list(tailrace_session* session, tailrace_epoch_info** epochs,
                                         size_t* count);
/* Frees an array that tailrace_list has returned. NULL is allowed. */
TAILRACE_API void tailrace_list_free(tailrace_epoch_info* epochs);

/* Fills everything registered from `epoch`, or with TAILRACE_NEWEST from the newest epoch that every rank
 * can read and verify. *restored is set to the epoch; `restored` may be NULL. Collective.
 *
 * Arrays are assembled for the piece that is registered now, whatever the number of ranks was when they
 * were saved. Plain regions come from the same rank number, and must have the registered size, unless they
 * are resizable.
 *
 * TAILRACE_NOT_FOUND means that there is no epoch at all: a first run. TAILRACE_INVALID_ARGUMENT means that
 * `epoch` is missing while others are there, or that a registered name is missing from the epoch or has
 * another size or type in it. After any failure but TAILRACE_NOT_FOUND the registered memory is undefined. */
TAILRACE_API tailrace_code tailrace_restore(tailrace_session* session, uint64_t epoch, uint64_t* restored);
/* Does the same for some of the registered names only. At least one is needed. */
TAILRACE_API tailrace_code tailrace_restore_some(tailrace_session* session, uint64_t epoch,
                                                 const char* const* names, size_t name_count,
                                                 uint64_t* restored);

/* ---- files of the program ------------------------------------------------------------------------- */

/* A program that writes checkpoint files by itself, with any library, saves them as follows: it asks for a
 * path for each of its files, writes there, and saves. The files of all ranks then travel as an epoch, with
 * their names and rights. Registered memory travels beside them.
 *
 *     char path[TAILRACE_MAX_PATH_BYTES];
 *     tailrace_files_begin(session);
 *     tailrace_files_route(session, "fields.h5", path, sizeof path);
 *     int whole = write_fields(path);                        // and close the file
 *     tailrace_files_save(session, step, whole);
 *
 * After a restart:
 *
 *     if (tailrace_files_restore(session, TAILRACE_NEWEST, 0, &step) == TAILRACE_OK) {
 *         tailrace_files_find(session, TAILRACE_ANY_RANK, "fields.h5", path, sizeof path);
 *         read_fields(path);
 *         tailrace_files_release(session);
 *     }                                                      // else: only TAILRACE_NOT_FOUND is a first run
 *
 * The paths lead into the node-local tier. A file's name is a path below the directory that tailrace gives,
 * such as "fields.h5" or "fields/u.h5". It must not be absolute, nor have components that are empty, "." or
 * "..". It belongs to its rank: several ranks may use the same, except with the setting files_as = original.
 * An epoch has the files that were routed for it, so each epoch may have others, and a rank may have none.
 *
 * Of a file its bytes are saved, and who may read, write and execute it (the bits 0777), and nothing else.
 * Links are neither followed nor saved.
 *
 * These calls may be made from several threads; one waits for the other. (tailrace_file_open and its
 * relatives in tailrace_mpi_collective.h are another thing: one file of many ranks.) */

#define TAILRACE_MAX_PATH_BYTES 4096 /* with the zero at the end; no path that is given is longer */

/* Begins this rank's files for one save. TAILRACE_FAILED_STATE if files were begun and not saved yet. Not
 * collective. */
TAILRACE_API tailrace_code tailrace_files_begin(tailrace_session* session);
/* Writes to `path`, which has room for `path_bytes` bytes, where the program is to write its file `name`. The
 * directory is there, and the file is not. The same name gives the same path until the save.
 * TAILRACE_INVALID_ARGUMENT if the name is not possible, or if the path needs more room. */
TAILRACE_API tailrace_code tailrace_files_route(tailrace_session* session, const char* name, char* path,
                                                uint64_t path_bytes);
/* Does what tailrace_save does, and saves the files that were routed, too. It is collective if tailrace_save
 * is, and other ranks may call either. Close the files before, and do not touch them until it returns. After
 * that they are gone, also after a failure: begin anew for the next epoch.
 *
 * If `whole` is 0, the program could not write its files. The call then gives TAILRACE_ABORTED, and nothing
 * of the epoch is kept: tailrace_wait gives its failure on all ranks. This also happens if this rank's files
 * cannot be saved, for example because one was routed and not written (TAILRACE_INVALID_ARGUMENT). Earlier
 * epochs stay. A file that lies in the directory and was not routed is not saved, and the log says so.
 *
 * Until the save returns, the node-local tier has room for the files and their copy. */
TAILRACE_API tailrace_code tailrace_files_save(tailrace_session* session, uint64_t epoch, int whole);

#define TAILRACE_FILES_OF_ALL_RANKS 1u /* every rank may ask for every rank's files */
#define TAILRACE_ANY_RANK UINT32_MAX

/* Does what tailrace_restore does, and also brings this rank's files of the epoch back into the node-local
 * tier, with their rights. An epoch in which a rank's own files are damaged is not taken. `flags` is 0 or
 * TAILRACE_FILES_OF_ALL_RANKS: then all ranks together first read and check every byte. Without it, other
 * ranks' files can be out of reach, on other nodes. `epoch` and `flags` are the same on all ranks. `restored`
 * may be NULL. Collective.
 *
 * The files are there until tailrace_files_release, the next tailrace_files_restore, or tailrace_close. Until
 * then the program may do with them what it likes. */
TAILRACE_API tailrace_code tailrace_files_restore(tailrace_session* session, uint64_t epoch, unsigned flags,
                                                  uint64_t* restored);
/* Writes to `path`, which has room for `path_bytes` bytes, where the restored file `name` of a rank is.
 * `rank` is one of the ranks that saved the epoch. TAILRACE_ANY_RANK is this rank if it has saved such a
 * file, otherwise the only rank that has; TAILRACE_INVALID_ARGUMENT if several have. TAILRACE_NOT_FOUND if
 * there is no such file. Another rank's file is brought back when it is first asked for. Not collective. */
TAILRACE_API tailrace_code tailrace_files_find(tailrace_session* session, uint32_t rank, const char* name,
                                               char* path, uint64_t path_bytes);

typedef struct tailrace_files_info {
    const char* name; /* lives as long as the restored files */
    uint64_t bytes;
    uint32_t rank;        /* that saved it */
    uint32_t rights;      /* of these: 0777 */
    uint64_t reserved[8]; /* for later versions; 0 */
} tailrace_files_info;

/* The files that a rank saved in the epoch that was restored: their number, and each by its index (from 0),
 * in the order in which they were routed. Not collective. */
TAILRACE_API tailrace_code tailrace_files_count(tailrace_session* session, uint32_t rank, size_t* count);
TAILRACE_API tailrace_code tailrace_files_at(tailrace_session* session, uint32_t rank, size_t index,
                                             tailrace_files_info* info);
/* Removes the files that were restored from the node-local tier. The epoch stays. Not collective. */
TAILRACE_API tailrace_code tailrace_files_release(tailrace_session* session);

/* ---- readers -------------------------------------------------------------------------------------- */

/* A reader of an epoch. Use it to learn sizes before you provide memory, or to read what other
 * ranks saved. */
typedef struct tailrace_reader tailrace_reader;

#define TAILRACE_VERIFY 1u /* read and check every byte first, all ranks together */

/* Opens `epoch`, or with TAILRACE_NEWEST the newest epoch below `before`. Pass TAILRACE_NEWEST as `before`
 * for no limit, and an epoch to go on to an older one after a failure. Collective.
 *
 * If a newer epoch is known to be damaged, TAILRACE_NEWEST opens the next older one, as tailrace_restore
 * does, and tailrace_reader_passed_over names it. If data are damaged in one tier only, they are read from
 * the other, also when the damage is found later.
 *
 * Close the reader before the session. A reader that is still open when the session is closed cannot read
 * any more, but must be closed all the same. */
TAILRACE_API tailrace_code tailrace_reader_open(tailrace_session* session, uint64_t epoch, uint64_t before,
                                                unsigned flags, tailrace_reader** reader);
/* Opens an epoch of a shared directory without a session. `job` may be NULL if the directory holds only one
 * job's files. Checks the heads of the files now, and their data when they are read. Not collective.
 *
 * TAILRACE_NEWEST opens the newest complete epoch. A newer one that is damaged, or has lost a file since its
 * commit, is passed over. Then the log has a warning, and tailrace_reader_passed_over names the epoch. A
 * program that must not go on from an older epoch asks that function, or opens an epoch by its number. */
TAILRACE_API tailrace_code tailrace_reader_open_directory(const char* shared_dir, const char* job,
                                                          uint64_t epoch, tailrace_reader** reader);
/* Opens the epoch that a shared file belongs to. If the epoch is one file, only `path` is opened,
 * and it may have any name. Otherwise all files of the epoch are opened, and each must have the
 * name it was written with. Not collective. */
TAILRACE_API tailrace_code tailrace_reader_open_file(const char* path, tailrace_reader** reader);
/* Closes the reader and frees everything it has returned. NULL is allowed. */
TAILRACE_API void tailrace_reader_close(tailrace_reader* reader);

/* The epoch that was opened, and the number of ranks that saved it. They are TAILRACE_NEWEST and 0
 * if there is no reader. */
TAILRACE_API uint64_t tailrace_reader_epoch(const tailrace_reader* reader);
TAILRACE_API uint32_t tailrace_reader_rank_count(const tailrace_reader* reader);
/* The damaged epochs that this one was opened in place of, with their reasons: "epoch 9 of run 2:
 * ...". The text is "" if there are none, or no reader. It is never NULL and lives until the reader
 * is closed. Unfinished files of a run that was killed were never an epoch and are not named. */
TAILRACE_API const char* tailrace_reader_passed_over(const tailrace_reader* reader);

typedef struct tailrace_region_info {
    const char* name;
    uint64_t bytes;
    int is_array;
    tailrace_type type; /* arrays: the piece this rank saved */
    int dimensions;
    uint64_t global_shape[TAILRACE_MAX_DIMENSIONS];
    uint64_t offset[TAILRACE_MAX_DIMENSIONS];
    uint64_t local_shape[TAILRACE_MAX_DIMENSIONS];
    uint64_t flags;       /* TAILRACE_ARRAY_... as the array was saved with; of a list, the shapes and the
                             offset of a rank's piece count the rank's own items from 0 */
    uint64_t reserved[8]; /* for later versions; 0 */
} tailrace_region_info;

/* What a rank saved: the number of its regions, and each region by its index (from 0) or by its
 * name. */
TAILRACE_API tailrace_code tailrace_reader_region_count(tailrace_reader* reader, uint32_t rank,
                                                        size_t* count);
TAILRACE_API tailrace_code tailrace_reader_region_at(tailrace_reader* reader, uint32_t rank, size_t index,
                                                     tailrace_region_info* info);
TAILRACE_API tailrace_code tailrace_reader_region(tailrace_reader* reader, uint32_t rank, const char* name,
                                                  tailrace_region_info* info);
/* A global array as all ranks together saved it: offset is 0, and local_shape is global_shape. Of a list the
 * first extent is the number of items. bytes is the size of the whole. TAILRACE_INVALID_ARGUMENT if it is
 * too large for 64 bits, or if the ranks' pieces do not fit together. */
TAILRACE_API tailrace_code tailrace_reader_array(tailrace_reader* reader, const char* name,
                                                 tailrace_region_info* info);
/* Reads a whole region. `bytes` must be its size. After a failed read the memory is undefined. */
TAILRACE_API tailrace_code tailrace_reader_read(tailrace_reader* reader, uint32_t rank, const char* name,
                                                void* memory, uint64_t bytes);
/* Reads a box of a global array (row-major), assembled from all ranks' pieces. Fails as reading a region. */
TAILRACE_API tailrace_code tailrace_reader_read_box(tailrace_reader* reader, const char* name, int dimensions,
                                                    const uint64_t* offset, const uint64_t* shape,
                                                    void* memory, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
