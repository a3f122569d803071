/* Collective calls that are always the MPI library's, beside one that is not: the statistics have to say how
 * many, and why. And a file without a collective call. It leaves the same file without tailrace.
 *
 * left FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "expect.h"

enum { block = 30 };
static const MPI_Offset bytes = block * (MPI_Offset)sizeof(int);

static void ends_well(int code, const char* what) {
    expect(code == MPI_SUCCESS, what);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int data[block], back[block];
    for (int i = 0; i < block; ++i) data[i] = rank * 1000 + i;
    MPI_File file;
    MPI_Status status;
    ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file),
              "open");

    /* 1. One that tailrace takes. */
    ends_well(MPI_File_write_at_all(file, rank * bytes, data, block, MPI_INT, &status), "write_at_all");

    /* 2. Split: two. */
    ends_well(MPI_File_write_at_all_begin(file, (ranks + rank) * bytes, data, block, MPI_INT), "begin");
    ends_well(MPI_File_write_at_all_end(file, data, &status), "end");
    /* An aggregator of Open MPI's own may still be writing what another rank has got rid of. */
    ends_well(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, rank * bytes, MPI_SEEK_SET);
    memset(back, 0, sizeof back);
    ends_well(MPI_File_read_all_begin(file, back, block, MPI_INT), "begin of a read");
    ends_well(MPI_File_read_all_end(file, back, &status), "end of a read");
    expect(memcmp(data, back, sizeof data) == 0, "what was read in two halves");

    /* 3. Nonblocking, without MPI_THREAD_MULTIPLE: one. */
    MPI_Request request;
    ends_well(MPI_File_iwrite_at_all(file, (2 * ranks + rank) * bytes, data, block, MPI_INT, &request),
              "iwrite_at_all");
    ends_well(MPI_Wait(&request, &status), "wait");

    /* 4. In atomic mode: one. */
    ends_well(MPI_File_set_atomicity(file, 1), "set_atomicity");
    ends_well(MPI_File_write_at_all(file, (3 * ranks + rank) * bytes, data, block, MPI_INT, &status),
              "write_at_all in atomic mode");
    ends_well(MPI_File_set_atomicity(file, 0), "set_atomicity, off");

    ends_well(MPI_File_close(&file), "close");

    /* 5. Nothing but calls of one rank. */
    ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    ends_well(MPI_File_write_at(file, (4 * ranks + rank) * bytes, data, block, MPI_INT, &status), "write_at");
    ends_well(MPI_File_close(&file), "close");

    /* 6. Nothing but a split call. */
    ends_well(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    ends_well(MPI_File_write_at_all_begin(file, (5 * ranks + rank) * bytes, data, block, MPI_INT), "begin");
    ends_well(MPI_File_write_at_all_end(file, data, &status), "end");
    ends_well(MPI_File_close(&file), "close");

    int any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
