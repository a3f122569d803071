/* tailrace_mpi_collective.h - collective reads and writes of one file by all ranks of an MPI communicator.
 * They use two-layer collective I/O, which is designed for millions of small non-contiguous pieces.
 *
 *     tailrace_file* file;
 *     tailrace_file_open(MPI_COMM_WORLD, "fields.dat", TAILRACE_FILE_WRITE, MPI_INFO_NULL, &file);
 *     tailrace_file_set_view(file, 0, filetype);                     // where in the file my bytes belong
 *     tailrace_file_write_view(file, 0, field, 1, memorytype);      // collective
 *     tailrace_file_close(file);
 *
 * Without datatypes, pass lists of pieces to tailrace_file_write_pieces. docs/collective.md says when this
 * kind of I/O helps. It also says how MPI-IO, HDF5 and PnetCDF programs use it unmodified
 * (libtailrace_mpiio.so).
 *
 * Collective: every rank of the communicator makes the same calls on a file in the same order, with its own
 * arguments. A rank without data passes empty lists. An error on one rank is an error on all of them, with
 * the same sentence (tailrace_last_error of tailrace.h). Only tailrace_file_set_view, tailrace_io_test,
 * tailrace_io_wait, tailrace_file_get_info and tailrace_file_describe are local.
 *
 * Requests of one call: the offsets in a rank's list must not decrease. A list for a write must not overlap
 * itself. Where the lists of different ranks overlap, the file gets the bytes of one of these ranks, and it
 * is unspecified which one. Bytes beyond the end of the file read as zeros and are not counted.
 *
 * Failures: after a failed write the requested bytes of the file are undefined, and all others are intact.
 * After a failed read the ranks' memory is undefined.
 *
 * Holes: a write may read the bytes between the requested ones and write them back (tailrace_sieve_writes).
 * By default it does so only on network file systems. No other program may write there at the same time.
 *
 * Memory: a global aggregator has three buffers of tailrace_buffer_size (default 16 MiB), and a fourth if it
 * fills holes. A local aggregator has two. These numbers do not depend on the data. The lists take about 60
 * bytes for every request of a rank, both at that rank and at its local aggregator. They take 64 bytes for
 * every piece of the rank's memory. They take 32 bytes for every piece of the windows that a global
 * aggregator is working on. The library keeps all of this memory for the next call, until the file is closed.
 *
 * Threads: one thread at a time may use a file. Any level of MPI thread support is sufficient. Below
 * MPI_THREAD_MULTIPLE the start_ functions do all of their work before they return, so they block like the
 * others.
 *
 * Ownership: memory that is passed to a call still belongs to the program, and writes only read it. After a
 * start_ function, the program must not change or free it before it has waited for the call. It may free
 * lists and datatypes at once.
 *
 * Link with libtailrace_mpi. C11.
 */
#ifndef TAILRACE_MPI_COLLECTIVE_H
#define TAILRACE_MPI_COLLECTIVE_H

#include <mpi.h>

#include "tailrace.h"

/* As in tailrace_mpi.h: a program compiled for Open MPI does not link with a tailrace built for
 * MPICH. */
#ifdef OPEN_MPI
#define tailrace_file_open tailrace_file_open_for_open_mpi
#define tailrace_file_get_info tailrace_file_get_info_for_open_mpi
#define tailrace_file_set_view tailrace_file_set_view_for_open_mpi
#define tailrace_file_write_view tailrace_file_write_view_for_open_mpi
#define tailrace_file_read_view tailrace_file_read_view_for_open_mpi
#define tailrace_file_start_write_view tailrace_file_start_write_view_for_open_mpi
#define tailrace_file_start_read_view tailrace_file_start_read_view_for_open_mpi
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files ---------------------------------------------------------------------------------------- */

typedef struct tailrace_file tailrace_file;
typedef struct tailrace_io tailrace_io; /* a call that was started */

typedef enum tailrace_file_mode {
    TAILRACE_FILE_READ = 0,       /* the file must exist */
    TAILRACE_FILE_WRITE = 1,      /* read and write; a missing file is created, an existing one is kept */
    TAILRACE_FILE_CREATE_NEW = 2, /* read and write; TAILRACE_ALREADY_EXISTS if the file exists */
    TAILRACE_FILE_EXISTING = 3    /* read and write; the file must exist */
} tailrace_file_mode;

/* Opens a file on a duplicate of the communicator. `path` must lead to the same file on all ranks.
 * `info` may be MPI_INFO_NULL, or hold settings named tailrace_... (docs/collective.md). Other keys
 * are ignored. Environment variables TAILRACE_COLLECTIVE_... set defaults. The settings must be
 * equal on all ranks. A file takes four MPI communicators. MPICH has some 2,000 communicators, and
 * other MPI libraries have more. */
TAILRACE_API tailrace_code tailrace_file_open(MPI_Comm communicator, const char* path,
                                              tailrace_file_mode mode, MPI_Info info, tailrace_file** file);
/* Closes the file and frees the handle, even if it fails. Call it before MPI_Finalize. */
TAILRACE_API tailrace_code tailrace_file_close(tailrace_file* file);
/* Makes all earlier writes durable before it returns. */
TAILRACE_API tailrace_code tailrace_file_sync(tailrace_file* file);

/* Returns all settings of this file in a new MPI_Info, which the caller frees. */
TAILRACE_API tailrace_code tailrace_file_get_info(tailrace_file* file, MPI_Info* info);

/* ---- lists of pieces ------------------------------------------------------------------------------ */

/* Calls take arrays of these two structs, so the structs never change. A piece with more fields would get
 * another struct and another function. */
typedef struct tailrace_file_piece {
    uint64_t offset, bytes;
} tailrace_file_piece;

typedef struct tailrace_memory_piece {
    void* address; /* only read by writes */
    uint64_t bytes;
} tailrace_memory_piece;

/* Writes the memory's pieces, one after another, into the file's pieces, one after another. The two lists
 * must have equal sums of bytes. */
TAILRACE_API tailrace_code tailrace_file_write_pieces(tailrace_file* file, size_t file_count,
                                                      const tailrace_file_piece* file_pieces,
                                                      size_t memory_count,
                                                      const tailrace_memory_piece* memory_pieces);
/* Does the same from the file to memory. *bytes is the number of bytes read. It is less than the requested
 * number only if the file ends before. `bytes` may be NULL. */
TAILRACE_API tailrace_code tailrace_file_read_pieces(tailrace_file* file, size_t file_count,
                                                     const tailrace_file_piece* file_pieces,
                                                     size_t memory_count,
                                                     const tailrace_memory_piece* memory_pieces,
                                                     uint64_t* bytes);

/* ---- file views ----------------------------------------------------------------------------------- */

/* Sets the bytes of the file that this rank sees: those of `filetype`, repeated from byte
 * `displacement` on. Local. The type need not be committed. The library takes it apart once, when it
 * first needs it. A new file's view is all its bytes (MPI_BYTE at 0). */
TAILRACE_API tailrace_code tailrace_file_set_view(tailrace_file* file, uint64_t displacement,
                                                  MPI_Datatype filetype);

/* Writes or reads `count` elements of `memorytype` at `buffer`. In the file they begin at byte
 * `position` of the view's bytes. */
TAILRACE_API tailrace_code tailrace_file_write_view(tailrace_file* file, uint64_t position,
                                                    const void* buffer, uint64_t count,
                                                    MPI_Datatype memorytype);
TAILRACE_API tailrace_code tailrace_file_read_view(tailrace_file* file, uint64_t position, void* buffer,
                                                   uint64_t count, MPI_Datatype memorytype, uint64_t* bytes);

/* ---- in the background ---------------------------------------------------------------------------- */

/* Start the calls above in the background. A thread of the library does the work, in the order in
 * which the program has started the calls. The program must wait for every call that it has started
 * without an error before it closes the file. */
TAILRACE_API tailrace_code tailrace_file_start_write_pieces(tailrace_file* file, size_t file_count,
                                                            const tailrace_file_piece* file_pieces,
                                                            size_t memory_count,
                                                            const tailrace_memory_piece* memory_pieces,
                                                            tailrace_io** io);
TAILRACE_API tailrace_code tailrace_file_start_read_pieces(tailrace_file* file, size_t file_count,
                                                           const tailrace_file_piece* file_pieces,
                                                           size_t memory_count,
                                                           const tailrace_memory_piece* memory_pieces,
                                                           tailrace_io** io);
TAILRACE_API tailrace_code tailrace_file_start_write_view(tailrace_file* file, uint64_t position,
                                                          const void* buffer, uint64_t count,
                                                          MPI_Datatype memorytype, tailrace_io** io);
TAILRACE_API tailrace_code tailrace_file_start_read_view(tailrace_file* file, uint64_t position, void* buffer,
                                                         uint64_t count, MPI_Datatype memorytype,
                                                         tailrace_io** io);
/* Sets *done to 1 if the call has ended, and otherwise to 0. */
TAILRACE_API tailrace_code tailrace_io_test(tailrace_io* io, int* done);
/* Waits for the call, returns its result, and frees the handle. `bytes` has the same meaning as for
 * reads and may be NULL. */
TAILRACE_API tailrace_code tailrace_io_wait(tailrace_io* io, uint64_t* bytes);

/* ---- statistics ----------------------------------------------------------------------------------- */

/* Sums over all ranks since the file was opened. Times are those of the slowest rank. */
typedef struct tailrace_file_statistics {
    uint64_t calls, direct_calls, two_phase_calls, two_layer_calls;
    uint64_t bytes;
    uint64_t requests;              /* as the ranks gave them */
    uint64_t requests_after_local;  /* as global aggregators received them */
    uint64_t requests_after_global; /* as they went to the file */
    uint64_t file_operations;
    uint64_t overlapping_bytes; /* that more than one rank has requested */
    uint64_t messages;          /* between ranks */
    uint64_t messages_of_one;   /* the most messages that one rank, an aggregator, has sent */
    uint64_t collectives;       /* steps that all ranks wait for */
    uint64_t steps;    /* the longest chain of consecutive messages in each call; summed over calls */
    uint64_t receives; /* the most peers that sent requests to one global aggregator; summed over calls */
    uint64_t rounds;
    uint64_t local_aggregators, global_aggregators; /* in the last call that had any */
    uint64_t memory_bytes;                          /* the most memory for buffers on one rank */
    double total_seconds, gather_seconds, copy_seconds, exchange_seconds, scatter_seconds, file_seconds;
    /* The requests in requests_after_local and requests_after_global that exist only because of the
     * boundaries between one aggregator's windows. */
    uint64_t cuts_after_local, cuts_after_global;
    uint64_t reserved[6]; /* for later versions; 0 */
} tailrace_file_statistics;

/* Adds up the statistics of all ranks. Collective. */
TAILRACE_API tailrace_code tailrace_file_get_statistics(tailrace_file* file,
                                                        tailrace_file_statistics* statistics);
/* Describes the statistics in one line of text. It also gives the reason for the way that the last call
 * took. Local, but waits until started calls have ended. The text is valid until the next call on the
 * file. Returns NULL if the file is not open. */
TAILRACE_API const char* tailrace_file_describe(tailrace_file* file,
                                                const tailrace_file_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
