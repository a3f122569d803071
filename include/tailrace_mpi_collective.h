/* tailrace_mpi_collective.h - collective reads and writes of one file by all ranks of an MPI communicator.
 * They use two-layer collective I/O, which is made for millions of small non-contiguous pieces.
 *
 *     tailrace_file* file;
 *     tailrace_file_open(MPI_COMM_WORLD, "fields.dat", TAILRACE_FILE_WRITE, MPI_INFO_NULL, &file);
 *     tailrace_file_set_view(file, 0, filetype);                     // where in the file my bytes belong
 *     tailrace_file_write_view(file, 0, field, 1, memorytype);      // collective
 *     tailrace_file_close(file);
 *
 * Without datatypes, pass lists of pieces: tailrace_file_write_pieces. docs/collective.md says when this
 * helps, and how MPI-IO, HDF5 and PnetCDF programs get it unmodified (libtailrace_mpiio.so).
 *
 * Collective: every rank of the communicator makes the same calls on a file in the same order, with its own
 * arguments. A rank without data passes empty ones. An error on one rank is an error on all of them, with
 * the same sentence (tailrace_last_error of tailrace.h). Only tailrace_file_set_view, tailrace_io_test,
 * tailrace_io_wait, tailrace_file_get_info and tailrace_file_describe are local.
 *
 * Requests of one call: a rank's list must be in non-decreasing order of offsets. A list for a write must
 * not overlap itself. Where the lists of different ranks overlap, the file gets the bytes of one of them,
 * and it is unspecified which. Bytes beyond the end of the file read as zeros and are not counted.
 *
 * Failures: after a failed write the requested bytes of the file are undefined, and all others are intact.
 * After a failed read the ranks' memory is undefined.
 *
 * Holes: a write may put back bytes between requested ones that it has just read (tailrace_sieve_writes; by
 * default only on file systems behind a network). Nobody else may write there at the same time.
 *
 * Memory: a global aggregator has three buffers of tailrace_buffer_size (default 16 MiB), and a fourth if it
 * fills holes. A local aggregator has two. These numbers do not depend on the data. The lists take about 60
 * bytes for every request of a rank, at that rank and at its local aggregator, 64 for every piece of its
 * memory, and 32 for every piece of the windows that a global aggregator is working on. All of this is kept
 * for the next call, until the file is closed.
 *
 * Threads: one thread at a time may use a file. Any level of MPI thread support will do. Below
 * MPI_THREAD_MULTIPLE the start_ functions do all of their work before they return, so they block like the
 * others.
 *
 * Ownership: memory given to a call stays the program's, and writes only read it. For start_ functions it
 * must stay as it is until the call has been waited for. Lists and datatypes may be freed at once.
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
    TAILRACE_FILE_WRITE = 1,      /* read and write; created when it is missing, kept when it is there */
    TAILRACE_FILE_CREATE_NEW = 2, /* read and write; TAILRACE_ALREADY_EXISTS when it is there */
    TAILRACE_FILE_EXISTING = 3    /* read and write; the file must exist */
} tailrace_file_mode;

/* Opens a file on a duplicate of the communicator. `path` leads to the same file on all ranks.
 * `info` may hold settings named tailrace_... (docs/collective.md); others are ignored, and it may
 * be MPI_INFO_NULL. Environment variables TAILRACE_COLLECTIVE_... give defaults. The settings must
 * be equal on all ranks. A file takes four MPI communicators. MPICH has some 2,000 of them,
 * other MPI libraries have more. */
TAILRACE_API tailrace_code tailrace_file_open(MPI_Comm communicator, const char* path,
                                              tailrace_file_mode mode, MPI_Info info, tailrace_file** file);
/* Closes the file and frees the handle, whatever is returned. Call it before MPI_Finalize. */
TAILRACE_API tailrace_code tailrace_file_close(tailrace_file* file);
/* Makes everything written before durable. It is durable when the call returns. */
TAILRACE_API tailrace_code tailrace_file_sync(tailrace_file* file);

/* Gives all settings of this file in a new MPI_Info, which the caller frees. */
TAILRACE_API tailrace_code tailrace_file_get_info(tailrace_file* file, MPI_Info* info);

/* ---- lists of pieces ------------------------------------------------------------------------------ */

/* Calls take arrays of these two structs, so the structs never change. A piece with more to say
 * would get another struct and another function. */
typedef struct tailrace_file_piece {
    uint64_t offset, bytes;
} tailrace_file_piece;

typedef struct tailrace_memory_piece {
    void* address; /* only read by writes */
    uint64_t bytes;
} tailrace_memory_piece;

/* The data of the file's pieces, in order, are the memory's pieces, in order. The two lists must
 * have equal sums of bytes. */
TAILRACE_API tailrace_code tailrace_file_write_pieces(tailrace_file* file, size_t file_count,
                                                      const tailrace_file_piece* file_pieces,
                                                      size_t memory_count,
                                                      const tailrace_memory_piece* memory_pieces);
/* Does the same from the file to memory. *bytes is the number of bytes read, which is less than
 * asked for only where the file ends. `bytes` may be NULL. */
TAILRACE_API tailrace_code tailrace_file_read_pieces(tailrace_file* file, size_t file_count,
                                                     const tailrace_file_piece* file_pieces,
                                                     size_t memory_count,
                                                     const tailrace_memory_piece* memory_pieces,
                                                     uint64_t* bytes);

/* ---- file views ----------------------------------------------------------------------------------- */

/* Sets the bytes of the file that this rank sees: those of `filetype`, repeated from byte
 * `displacement` on. Local. The type need not be committed; it is taken apart once, when it is
 * first needed. The view of a new file is all its bytes (MPI_BYTE at 0). */
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
 * which calls were started. Every call that was started without an error must be waited for before
 * the file is closed. */
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
/* Sets *done to 1 if the call has ended, else to 0. */
TAILRACE_API tailrace_code tailrace_io_test(tailrace_io* io, int* done);
/* Waits for the call, returns its result, and frees the handle. `bytes` is as for reads and may be
 * NULL. */
TAILRACE_API tailrace_code tailrace_io_wait(tailrace_io* io, uint64_t* bytes);

/* ---- what it came to ------------------------------------------------------------------------------ */

/* Sums over all ranks since the file was opened. Times are those of the slowest rank. */
typedef struct tailrace_file_statistics {
    uint64_t calls, direct_calls, two_phase_calls, two_layer_calls;
    uint64_t bytes;
    uint64_t requests;              /* as the ranks gave them */
    uint64_t requests_after_local;  /* as global aggregators received them */
    uint64_t requests_after_global; /* as they went to the file */
    uint64_t file_operations;
    uint64_t overlapping_bytes; /* asked for by more than one rank */
    uint64_t messages;          /* between ranks */
    uint64_t messages_of_one;   /* the most that one rank, an aggregator, has sent */
    uint64_t collectives;       /* steps that all ranks wait for */
    uint64_t steps; /* messages one after the other, in the longest chain of each call; summed over calls */
    uint64_t receives; /* the most peers that told one global aggregator of requests; summed over calls */
    uint64_t rounds;
    uint64_t local_aggregators, global_aggregators; /* in the last call that had any */
    uint64_t memory_bytes;                          /* the most buffers that one rank took */
    double total_seconds, gather_seconds, copy_seconds, exchange_seconds, scatter_seconds, file_seconds;
    /* Those of requests_after_local and requests_after_global that exist only because of the
     * borders between one aggregator's windows. */
    uint64_t cuts_after_local, cuts_after_global;
    uint64_t reserved[6]; /* for later versions; 0 */
} tailrace_file_statistics;

/* Sums up all ranks' requests. Collective. */
TAILRACE_API tailrace_code tailrace_file_get_statistics(tailrace_file* file,
                                                        tailrace_file_statistics* statistics);
/* Describes the statistics in one line of text, with the reason why the last call went the way it
 * did. Local, but waits until started calls have ended. The text is valid until the next call on
 * the file. NULL if the file is not open. */
TAILRACE_API const char* tailrace_file_describe(tailrace_file* file,
                                                const tailrace_file_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
