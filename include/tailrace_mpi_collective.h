/* tailrace_mpi_collective.h - collective reads and writes of one file by all ranks of an MPI communicator,
 * made for millions of small non-contiguous pieces: two-layer collective I/O.
 *
 *     tailrace_file* file;
 *     tailrace_file_open(MPI_COMM_WORLD, "fields.dat", TAILRACE_FILE_WRITE, MPI_INFO_NULL, &file);
 *     tailrace_file_set_view(file, 0, filetype);                     // where in the file my bytes belong
 *     tailrace_file_write_view(file, 0, field, 1, memorytype);      // collective
 *     tailrace_file_close(file);
 *
 * Or, without datatypes, lists of pieces: tailrace_file_write_pieces. docs/collective.md says when this
 * helps, and how unmodified MPI-IO, HDF5 and PnetCDF programs get it (libtailrace_mpiio.so).
 *
 * Collective: every rank of the communicator makes the same calls on a file in the same order, with its own
 * arguments; a rank without data passes empty ones. What is wrong on one rank is an error on all of them,
 * with the same sentence (tailrace_last_error of tailrace.h). Only tailrace_file_set_view, tailrace_io_test,
 * tailrace_io_wait, tailrace_file_get_info and tailrace_file_describe are local.
 *
 * Requests of one call: a rank's list has to be in non-decreasing order of offsets. For writes it must not
 * overlap itself; where lists of different ranks overlap, the bytes come from one of them, unspecified which.
 * Bytes beyond the end of the file read as zeros and are not counted.
 *
 * After a failed write the requested bytes of the file are undefined, all others intact; after a failed read
 * the ranks' memory is undefined. A write may put back what it has just read between requested bytes
 * (tailrace_sieve_writes; by default on file systems behind a network): nobody else should write there at
 * the same time.
 *
 * Memory: at a global aggregator three buffers of tailrace_buffer_size (default 16 MiB; a fourth where it
 * fills holes), at a local one two, whatever is moved; and lists: some 60 bytes for every request of a rank,
 * at that rank and its local aggregator, 64 for every piece of its memory, and 32 for every piece of the
 * windows that a global aggregator has in work. Kept for the next call, until the file is closed.
 *
 * Threads: one at a time per file. Any level of MPI thread support; below MPI_THREAD_MULTIPLE the start_
 * functions do all of their work before they return, and so are as blocking as the others.
 *
 * Ownership: memory given to a call stays the program's; it is only read by writes. For start_ functions it
 * must stay as it is until the call has been waited for. Lists and datatypes may be freed at once.
 *
 * Link with libtailrace_mpi. C11.
 */
#ifndef TAILRACE_MPI_COLLECTIVE_H
#define TAILRACE_MPI_COLLECTIVE_H

#include <mpi.h>

#include "tailrace.h"

/* As in tailrace_mpi.h: a program for Open MPI does not link with a tailrace for MPICH. */
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

/* Opens a file on a communicator, which is duplicated. `path` leads to the same file on all ranks. `info`:
 * settings named tailrace_... (docs/collective.md), others are ignored; it may be MPI_INFO_NULL. Environment
 * variables TAILRACE_COLLECTIVE_... give defaults. The settings must be equal on all ranks. A file takes four
 * communicators of MPI, which has some hundreds (MPICH) or more. */
TAILRACE_API tailrace_code tailrace_file_open(MPI_Comm communicator, const char* path,
                                              tailrace_file_mode mode, MPI_Info info, tailrace_file** file);
/* Closes the file. The handle is gone afterwards, whatever is returned. Before MPI_Finalize. */
TAILRACE_API tailrace_code tailrace_file_close(tailrace_file* file);
/* What was written is durable when it returns. */
TAILRACE_API tailrace_code tailrace_file_sync(tailrace_file* file);

/* All settings as they are for this file, in a new MPI_Info that is the caller's to free. */
TAILRACE_API tailrace_code tailrace_file_get_info(tailrace_file* file, MPI_Info* info);

/* ---- lists of pieces ------------------------------------------------------------------------------ */

/* Calls take arrays of these two structs, so they stay as they are: a piece that could say more would be
 * another struct, and another function. */
typedef struct tailrace_file_piece {
    uint64_t offset, bytes;
} tailrace_file_piece;

typedef struct tailrace_memory_piece {
    void* address; /* only read by writes */
    uint64_t bytes;
} tailrace_memory_piece;

/* The memory's pieces, one after the other, are the data of the file's pieces, one after the other; the two
 * lists have equal sums. */
TAILRACE_API tailrace_code tailrace_file_write_pieces(tailrace_file* file, size_t file_count,
                                                      const tailrace_file_piece* file_pieces,
                                                      size_t memory_count,
                                                      const tailrace_memory_piece* memory_pieces);
/* The same from the file to memory. *bytes, where it is not NULL: how many were read; fewer than asked for
 * only where the file ends. */
TAILRACE_API tailrace_code tailrace_file_read_pieces(tailrace_file* file, size_t file_count,
                                                     const tailrace_file_piece* file_pieces,
                                                     size_t memory_count,
                                                     const tailrace_memory_piece* memory_pieces,
                                                     uint64_t* bytes);

/* ---- file views ----------------------------------------------------------------------------------- */

/* Which bytes of the file this rank sees: those of `filetype`, laid out again and again from byte
 * `displacement` on. Local. The type is taken apart when it is first needed, once; it need not be committed.
 * A new file has the view of all its bytes (MPI_BYTE at 0). */
TAILRACE_API tailrace_code tailrace_file_set_view(tailrace_file* file, uint64_t displacement,
                                                  MPI_Datatype filetype);

/* `count` elements of `memorytype` at `buffer`, to or from the view's bytes from the position-th on. */
TAILRACE_API tailrace_code tailrace_file_write_view(tailrace_file* file, uint64_t position,
                                                    const void* buffer, uint64_t count,
                                                    MPI_Datatype memorytype);
TAILRACE_API tailrace_code tailrace_file_read_view(tailrace_file* file, uint64_t position, void* buffer,
                                                   uint64_t count, MPI_Datatype memorytype, uint64_t* bytes);

/* ---- in the background ---------------------------------------------------------------------------- */

/* As the functions above; the work is done by a thread of the library, in the order in which calls were
 * started. Every one that was started without an error has to be waited for, before the file is closed. */
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
/* *done: 1 when it is over, else 0. */
TAILRACE_API tailrace_code tailrace_io_test(tailrace_io* io, int* done);
/* Waits, says how the call went, and frees the handle. `bytes` as for reads; may be NULL. */
TAILRACE_API tailrace_code tailrace_io_wait(tailrace_io* io, uint64_t* bytes);

/* ---- what it came to ------------------------------------------------------------------------------ */

/* Of all ranks together, since the file was opened. Times are those of the slowest rank. */
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
    uint64_t local_aggregators, global_aggregators; /* of the last call that had any */
    uint64_t memory_bytes;                          /* the most buffers that one rank took */
    double total_seconds, gather_seconds, copy_seconds, exchange_seconds, scatter_seconds, file_seconds;
    /* Of requests_after_local and requests_after_global, those that only the borders between one aggregator's
     * windows have made. */
    uint64_t cuts_after_local, cuts_after_global;
    uint64_t reserved[6]; /* for later versions; 0 */
} tailrace_file_statistics;

/* Collective: the sums of all ranks' requests. */
TAILRACE_API tailrace_code tailrace_file_get_statistics(tailrace_file* file,
                                                        tailrace_file_statistics* statistics);
/* The same as one line of text, and why the last call went the way it did. Local, but waits until what was
 * started has ended; valid until the next call on the file. NULL when the file is not open. */
TAILRACE_API const char* tailrace_file_describe(tailrace_file* file,
                                                const tailrace_file_statistics* statistics);

#ifdef __cplusplus
}
#endif

#endif
