/* tailrace.h - save a parallel program's state in one memory copy; it flows into few files in the background.
 *
 * The shortest use, without MPI (with it, call tailrace_open_mpi of tailrace_mpi.h instead of tailrace_open):
 *
 *     tailrace_options* options = tailrace_options_new();
 *     tailrace_options_set(options, "shared_dir", "checkpoints");
 *     tailrace_session* session;
 *     if (tailrace_open(options, &session) != TAILRACE_OK) { puts(tailrace_last_error()); return 1; }
 *     tailrace_register(session, "state", state, sizeof state);
 *     uint64_t step = 0;
 *     tailrace_restore(session, TAILRACE_NEWEST, &step);      // TAILRACE_NOT_FOUND on a first run
 *     while (step < last) { compute(state); if (++step % 100 == 0) tailrace_save(session, step); }
 *     tailrace_close(session);                                // waits for what is still on its way
 *     tailrace_options_free(options);
 *
 * Errors: every function that returns tailrace_code returns TAILRACE_OK or the kind of failure, and then
 * tailrace_last_error() holds, for the calling thread until its next call, a sentence: what was tried, where,
 * and what is left intact. The library never exits, aborts or prints for the program; it logs through a
 * callback (tailrace_set_log).
 *
 * Threads: a session may be used from several threads; calls marked "collective" must be made by every rank
 * of the session's communicator, in the same order. Where the MPI library provides less than
 * MPI_THREAD_MULTIPLE, save, wait and wait_all are collective too.
 *
 * Misuse: NULL where something is needed is TAILRACE_INVALID_ARGUMENT; a session, reader or options object
 * that has been closed or freed is recognised and is TAILRACE_FAILED_STATE.
 *
 * Ownership: pointers returned as `const char*` or `const ...*` live as long as the object they come from;
 * what a function makes, its _free or _close function releases. Memory given to tailrace_register stays the
 * program's; tailrace reads it during save and writes it during restore, at no other time.
 *
 * Growth: a struct that programs allocate ends with `reserved` fields, and later versions use some of them.
 * In one that goes in they must be 0, so begin with zeros; in one that comes out they are 0. docs/linking.md
 * says what stays as it is.
 *
 * C11. No C++ or MPI types.
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

#define TAILRACE_VERSION_MAJOR 0
#define TAILRACE_VERSION_MINOR 2
#define TAILRACE_VERSION_PATCH 0

/* Of the library that the program runs with: "0.2.0". The macros are of the header it was compiled with. */
TAILRACE_API const char* tailrace_version(void);

/* ---- failures ------------------------------------------------------------------------------------- */

/* What kind of failure a code is, in words: "no space". Never NULL. */
TAILRACE_API const char* tailrace_code_name(tailrace_code code);
/* What this thread's last call has failed with: a sentence that stays until its next call. Never NULL; ""
 * when the call did not fail. */
TAILRACE_API const char* tailrace_last_error(void);

/* ---- logging -------------------------------------------------------------------------------------- */

typedef enum tailrace_log_level {
    TAILRACE_LOG_DEBUG = 0,
    TAILRACE_LOG_INFO = 1,
    TAILRACE_LOG_WARNING = 2,
    TAILRACE_LOG_ERROR = 3,
    TAILRACE_LOG_OFF = 4
} tailrace_log_level;

/* May be called from any thread, also from tailrace's own; must not call tailrace. */
typedef void (*tailrace_log_function)(tailrace_log_level level, const char* message, void* user);

/* Process-wide. NULL restores the default: warnings and errors to stderr, or what TAILRACE_LOG says. */
TAILRACE_API void tailrace_set_log(tailrace_log_function function, void* user);
/* Process-wide: messages below this level are not logged. */
TAILRACE_API void tailrace_set_log_level(tailrace_log_level level);

/* ---- options -------------------------------------------------------------------------------------- */

/* Settings of a session. `tailrace config` (command line) and docs/settings.md list all keys. Later sources
 * win: defaults, files loaded, environment TAILRACE_<KEY>, keys set in code. Not for several threads at once.
 */
typedef struct tailrace_options tailrace_options;

/* New options, without settings. NULL when out of memory. */
TAILRACE_API tailrace_options* tailrace_options_new(void);
/* Frees the options. Sessions that were opened with them keep what they have. NULL is allowed. */
TAILRACE_API void tailrace_options_free(tailrace_options* options);
/* Adds the settings of a file. After a failure the options are as they were. */
TAILRACE_API tailrace_code tailrace_options_load(tailrace_options* options, const char* toml_path);
/* Sets one key, from the text that a file would have for it. After a failure the options are as they were. */
TAILRACE_API tailrace_code tailrace_options_set(tailrace_options* options, const char* key,
                                                const char* value);

/* ---- session -------------------------------------------------------------------------------------- */

typedef struct tailrace_session tailrace_session;

/* Opens a session without ranks (rank 0 of 1). `options` may be freed afterwards; NULL means defaults,
 * environment, and the file named by TAILRACE_CONFIG. On failure *session is NULL. */
TAILRACE_API tailrace_code tailrace_open(const tailrace_options* options, tailrace_session** session);

/* Waits for all flushes, reports the first that failed, and frees the session in any case. Collective.
 * NULL is allowed. */
TAILRACE_API tailrace_code tailrace_close(tailrace_session* session);

/* This rank, from 0, and how many there are. -1 and 0 for no session. */
TAILRACE_API int tailrace_rank(const tailrace_session* session);
TAILRACE_API int tailrace_rank_count(const tailrace_session* session);
/* The value of a setting as this session uses it; NULL for an unknown key. Lives until the next call in this
 * thread. */
TAILRACE_API const char* tailrace_setting(const tailrace_session* session, const char* key);

/* ---- what to save --------------------------------------------------------------------------------- */

/* Element types of arrays. Numbers are part of the file format. */
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

/* What is declared of a global array, by all ranks alike. Without a declaration the ranks' pieces cover every
 * element exactly once, and an epoch where they do not is not committed. */
#define TAILRACE_ARRAY_GAPS 1u /* some elements may be in no rank's piece; nobody can read those */
/* An element may be in several ranks' pieces. That of the lowest rank counts; only a rank that restores the
 * very piece that it saved gets its own back. */
#define TAILRACE_ARRAY_OVERLAP 2u

/* A rank's piece of a global array, row-major (C order): element i of dimension d of the piece is element
 * offset[d] + i of the whole. The arrays have `dimensions` entries and are copied.
 *
 * Without more the memory is exactly the piece. Where it is more, such as a block with ghost cells around
 * what is the rank's own, save reads the piece's elements alone and restore writes these alone:
 *
 *     memory_shape         elements of the memory in each dimension
 *     memory_offset        where the piece begins in it; NULL: at its beginning
 *     memory_stride_bytes  from an element to its neighbour in each dimension; NULL: row-major
 *     memory_bytes         of the memory; the shape must not reach beyond. 0: not said
 *
 * Strides serve for every other element, for one member of a struct, or for dimensions in another order
 * (those of Fortran are this one's backwards: {8, 8 * rows}). They are positive, and by them no two elements
 * of the piece share memory. Those of a dimension with one element mean nothing. With strides memory_shape
 * may be NULL.
 *
 * For a grid of ny x nx own cells with 2 ghost cells on each side: local_shape {ny, nx}, memory_shape
 * {ny + 4, nx + 4}, memory_offset {2, 2}.
 *
 * The struct grows in later versions. So begin with zeros, as `tailrace_array array = {0};` or an initialiser
 * does: where what is reserved is not zero, the call is TAILRACE_INVALID_ARGUMENT. */
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

/* Registers memory under a name (unique in the rank, 1 to 4096 bytes of UTF-8), as plain bytes or as a piece
 * of a global array. `bytes` may be 0, then `memory` may be NULL. A name that is registered already:
 * TAILRACE_ALREADY_EXISTS. */
TAILRACE_API tailrace_code tailrace_register(tailrace_session* session, const char* name, void* memory,
                                             uint64_t bytes);
TAILRACE_API tailrace_code tailrace_register_array(tailrace_session* session, const char* name, void* memory,
                                                   const tailrace_array* array);
/* The new place and size of something registered; at any time between saves. */
TAILRACE_API tailrace_code tailrace_update(tailrace_session* session, const char* name, void* memory,
                                           uint64_t bytes);
TAILRACE_API tailrace_code tailrace_update_array(tailrace_session* session, const char* name, void* memory,
                                                 const tailrace_array* array);
/* Takes a name away: later epochs are without it. TAILRACE_NOT_FOUND when it was not registered. */
TAILRACE_API tailrace_code tailrace_unregister(tailrace_session* session, const char* name);

/* ---- saving --------------------------------------------------------------------------------------- */

/* Saves what is registered as `epoch`, a number that grows from save to save and is the same on all ranks
 * (a time step, say). Returns when the copy in the node-local tier is complete and checksummed; the memory
 * is the program's again, and the rest happens in the background. Not collective: ranks may call it at
 * different times. A save that fails uses its number up, since other ranks may have captured theirs; only
 * where there is one rank, and nothing was saved (TAILRACE_INVALID_ARGUMENT), the number stays free. */
TAILRACE_API tailrace_code tailrace_save(tailrace_session* session, uint64_t epoch);

typedef enum tailrace_state {
    TAILRACE_STATE_UNKNOWN = 0,
    TAILRACE_STATE_CAPTURED = 1,   /* in the node-local tier, waiting */
    TAILRACE_STATE_FLUSHING = 2,   /* on its way to the shared directory */
    TAILRACE_STATE_COMMITTED = 3,  /* durable in the shared directory: K files */
    TAILRACE_STATE_KEPT_LOCAL = 4, /* stays in the node-local tier, as configured or because flushes queue */
    TAILRACE_STATE_FAILED = 5      /* not in the shared directory; see `why` */
} tailrace_state;

typedef struct tailrace_epoch_info {
    uint64_t epoch;
    uint32_t run; /* which session saved it, counted from 1 in this directory */
    tailrace_state state;
    tailrace_code why_code;  /* TAILRACE_OK unless failed */
    char why[1024];          /* the sentence, cut to fit; of kept local, what kept it there */
    uint64_t captured_bytes; /* of this rank */
    double blocked_seconds;  /* how long save kept this rank */
    double flush_seconds;    /* from the flush's start to the commit, as known on this rank */
    int in_local, in_shared; /* where a restore could take it from (tailrace_list only) */
    uint64_t reserved[8];    /* for later versions; 0 */
} tailrace_epoch_info;

/* What is known of an epoch on this rank, in *info. Never blocks. */
TAILRACE_API tailrace_code tailrace_epoch_state(tailrace_session* session, uint64_t epoch,
                                                tailrace_epoch_info* info);

/* Waits until the epoch, or every epoch of the session, has come to its end, and returns that: OK when
 * committed or kept local. TAILRACE_INVALID_ARGUMENT also when the ranks' pieces of an array do not fit
 * together (elements in no piece, undeclared overlaps, types or global shapes that differ): nothing of this
 * epoch is kept, earlier ones are. `seconds` < 0 waits for ever; TAILRACE_TIMEOUT when the time is over
 * first. */
TAILRACE_API tailrace_code tailrace_wait(tailrace_session* session, uint64_t epoch, double seconds);
TAILRACE_API tailrace_code tailrace_wait_all(tailrace_session* session, double seconds);

/* ---- restoring ------------------------------------------------------------------------------------ */

#define TAILRACE_NEWEST UINT64_MAX

/* The newest epoch is the one the program came to last: when a run has restored an older epoch, or has begun
 * anew, and has completed an epoch of its own, what earlier runs saved beyond that is left behind. It can be
 * restored by its number, and comes last. */

/* Epochs that can be restored, newest first, those left behind last. *epochs is freed with
 * tailrace_list_free. Collective. */
TAILRACE_API tailrace_code tailrace_list(tailrace_session* session, tailrace_epoch_info** epochs,
                                         size_t* count);
/* Frees what tailrace_list has returned. NULL is allowed. */
TAILRACE_API void tailrace_list_free(tailrace_epoch_info* epochs);

/* Fills everything registered from `epoch` or TAILRACE_NEWEST: the newest epoch that every rank could read
 * and verify. Arrays are assembled for the piece registered now, whatever the number of ranks was when they
 * were saved; plain regions come from the same rank number, and their size must be the registered one.
 * *restored (may be NULL) is the epoch. Collective. TAILRACE_NOT_FOUND when there is none at all: a first
 * run. TAILRACE_INVALID_ARGUMENT when `epoch` is not there while others are, or when something registered is
 * not in the epoch, or has another size or type there. After any failure but TAILRACE_NOT_FOUND the
 * registered memory is undefined. */
TAILRACE_API tailrace_code tailrace_restore(tailrace_session* session, uint64_t epoch, uint64_t* restored);
/* The same for some of the registered names only; at least one. */
TAILRACE_API tailrace_code tailrace_restore_some(tailrace_session* session, uint64_t epoch,
                                                 const char* const* names, size_t name_count,
                                                 uint64_t* restored);

/* ---- readers -------------------------------------------------------------------------------------- */

/* A reader, for programs that learn sizes before they provide memory, or read what other ranks saved. */
typedef struct tailrace_reader tailrace_reader;

#define TAILRACE_VERIFY 1u /* read and check every byte first, all ranks together */

/* Opens `epoch` or TAILRACE_NEWEST. `before` (else TAILRACE_NEWEST) limits the newest to epochs below it, to
 * go on to an older one after a failure. Where a newer epoch is known to be damaged, TAILRACE_NEWEST opens
 * the next older one, as tailrace_restore does: tailrace_reader_passed_over tells. What is damaged
 * in one tier only is read from the other, also when that is found later. Collective. Close the reader before
 * the session; one that is still open then reads nothing any more, but must be closed all the same. */
TAILRACE_API tailrace_code tailrace_reader_open(tailrace_session* session, uint64_t epoch, uint64_t before,
                                                unsigned flags, tailrace_reader** reader);
/* Opens an epoch of a shared directory without a session. `job` may be NULL when the directory holds only
 * one job's files. TAILRACE_NEWEST opens the newest epoch that is complete. One that is newer and damaged,
 * or has lost a file since it was committed, is passed over: the log has a warning, and
 * tailrace_reader_passed_over tells. Who must not go on from an older epoch asks for one by its number, or
 * asks that. Heads are checked here, data when they are read. Not collective. */
TAILRACE_API tailrace_code tailrace_reader_open_directory(const char* shared_dir, const char* job,
                                                          uint64_t epoch, tailrace_reader** reader);
/* Opens the epoch that a shared file belongs to: `path` alone when the epoch is that one file, which may then
 * have any name; else all files of the epoch, of which each has the name it was written with. Not
 * collective. */
TAILRACE_API tailrace_code tailrace_reader_open_file(const char* path, tailrace_reader** reader);
/* Closes the reader. What it has returned is gone with it. NULL is allowed. */
TAILRACE_API void tailrace_reader_close(tailrace_reader* reader);

/* The epoch that was opened, and how many ranks there were when it was saved. TAILRACE_NEWEST and 0 for no
 * reader. */
TAILRACE_API uint64_t tailrace_reader_epoch(const tailrace_reader* reader);
TAILRACE_API uint32_t tailrace_reader_rank_count(const tailrace_reader* reader);
/* The epochs that this one was opened in place of, since they are damaged, with their reasons: "epoch 9 of
 * run 2: ...". "" when there are none, or no reader. Never NULL; it stays until the reader is closed. What a
 * run that was killed has left unfinished was never an epoch and is not named. */
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
    uint64_t flags;       /* TAILRACE_ARRAY_... as the array was saved with */
    uint64_t reserved[8]; /* for later versions; 0 */
} tailrace_region_info;

/* What a rank saved: how many regions, and each of them by its index below that, or by its name. */
TAILRACE_API tailrace_code tailrace_reader_region_count(tailrace_reader* reader, uint32_t rank,
                                                        size_t* count);
TAILRACE_API tailrace_code tailrace_reader_region_at(tailrace_reader* reader, uint32_t rank, size_t index,
                                                     tailrace_region_info* info);
TAILRACE_API tailrace_code tailrace_reader_region(tailrace_reader* reader, uint32_t rank, const char* name,
                                                  tailrace_region_info* info);
/* Reads a whole region; `bytes` must be its size. */
TAILRACE_API tailrace_code tailrace_reader_read(tailrace_reader* reader, uint32_t rank, const char* name,
                                                void* memory, uint64_t bytes);
/* Reads a box of a global array (row-major), put together from all ranks' pieces. */
TAILRACE_API tailrace_code tailrace_reader_read_box(tailrace_reader* reader, const char* name, int dimensions,
                                                    const uint64_t* offset, const uint64_t* shape,
                                                    void* memory, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
