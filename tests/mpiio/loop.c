/* An MPI-IO program that knows nothing of tailrace, in the manner of IOR: loops of collective writes and
 * reads with and without views, by offset and by file pointer, beside independent ones. What it writes
 * follows from its place alone, so two runs leave the same file. Ends with 1 when something it reads back is
 * wrong.
 *
 * loop FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks, wrong;

static void expect(int claim, const char* what) {
    if (claim) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    wrong = 1;
}

static void check(int code, const char* what) {
    expect(code == MPI_SUCCESS, what);
}

static int value(int where, int i) {
    return where * 100003 + i * 7 + 1;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    enum { block = 50, loops = 20 };
    int data[block], back[block], got = 0;
    MPI_File file;
    MPI_Status status;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "tailrace_ranks_per_node", "2");
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file), "open");
    MPI_Info_free(&info);

    /* 1. Without a view, by offset. */
    for (int loop = 0; loop < loops; ++loop) {
        const MPI_Offset at = ((MPI_Offset)loop * ranks + rank) * (MPI_Offset)sizeof data;
        for (int i = 0; i < block; ++i) data[i] = value(loop * ranks + rank, i);
        check(MPI_File_write_at_all(file, at, data, block, MPI_INT, &status), "write_at_all");
        MPI_Get_count(&status, MPI_INT, &got);
        expect(got == block, "the count of write_at_all");
    }
    const MPI_Offset second = (MPI_Offset)loops * ranks * (MPI_Offset)sizeof data;

    /* 2. With a view of every ranks-th int, by file pointer; a rank's own independent write in between. */
    MPI_Datatype every, columns;
    MPI_Type_vector(block, 1, ranks, MPI_INT, &every);
    MPI_Type_create_resized(every, 0, (MPI_Aint)sizeof(int) * block * ranks, &columns);
    MPI_Type_commit(&columns);
    check(MPI_File_set_view(file, second + rank * (MPI_Offset)sizeof(int), MPI_INT, columns, "native",
                            MPI_INFO_NULL),
          "set_view");
    for (int loop = 0; loop < loops; ++loop) {
        MPI_Offset position = 0;
        for (int i = 0; i < block; ++i) data[i] = value(loop, i * ranks + rank);
        if (loop == 7) {
            check(MPI_File_write(file, data, block, MPI_INT, &status), "write");
        } else {
            check(MPI_File_write_all(file, data, block, MPI_INT, &status), "write_all");
        }
        MPI_File_get_position(file, &position);
        expect(position == (MPI_Offset)(loop + 1) * block, "the file pointer");
    }
    check(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, 5 * block + 3, MPI_SEEK_SET);
    check(MPI_File_read_all(file, back, block, MPI_INT, &status), "read_all");
    for (int i = 0; i < block; ++i) {
        const int at = i + 3;
        expect(back[i] == value(5 + at / block, at % block * ranks + rank), "what read_all read");
    }
    /* 3. Beyond the end: fewer come (ROMIO counts what was asked for all the same). */
    check(MPI_File_read_at_all(file, (MPI_Offset)loops * block - 10, back, block, MPI_INT, &status),
          "read_at_all");
    MPI_Get_count(&status, MPI_INT, &got);
    expect(got == 10 || got == block, "the count at the end of the file");

    /* 4. Started: without MPI_THREAD_MULTIPLE that is the MPI library's, beside the calls that are not. */
    MPI_Request request;
    check(MPI_File_iread_at_all(file, 0, back, block, MPI_INT, &request), "iread_at_all");
    check(MPI_Wait(&request, &status), "wait");
    expect(back[block - 1] == value(0, (block - 1) * ranks + rank), "what iread_at_all read");

    /* 5. No view. */
    check(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "set_view");
    check(MPI_File_read_at_all(file, rank * (MPI_Offset)sizeof data, back, block, MPI_INT, &status),
          "read_at_all");
    expect(back[block - 1] == value(rank, block - 1), "what was read without a view");
    check(MPI_File_close(&file), "close");
    MPI_Type_free(&every);
    MPI_Type_free(&columns);
    int any = 0;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
