/* A program that knows nothing of tailrace and starts its collective transfers: several under way at once, by
 * offset and by file pointer, and ranks that start at different times. Ends with 1 when a count, a file
 * pointer or something it reads back is wrong.
 *
 * nonblocking FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { block = 60, loops = 12, after_pointer = 5 };
static int rank, ranks, wrong;

static void expect(int claim, const char* what) {
    if (claim) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    wrong = 1;
}

static int value(int loop, int i) {
    return (loop * ranks + rank) * 100003 + i * 7 + 1;
}

static void expect_counts(const MPI_Status* statuses, int count, const char* what) {
    for (int i = 0; i < count; ++i) {
        int got = 0;
        MPI_Get_count(&statuses[i], MPI_INT, &got);
        expect(got == block, what);
    }
}

int main(int argc, char** argv) {
    int provided = 0, any = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    expect(provided == MPI_THREAD_MULTIPLE, "this MPI library does not have MPI_THREAD_MULTIPLE");
    static int data[loops][block], back[loops][block];
    MPI_Request requests[loops];
    MPI_Status statuses[loops];
    MPI_File file;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "tailrace_ranks_per_node", "2");
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
    MPI_Info_free(&info);
    for (int loop = 0; loop < loops; ++loop)
        for (int i = 0; i < block; ++i) data[loop][i] = value(loop, i);

    /* 1. By offset. A start waits for nobody: the others start when rank 0 has told them that it has. */
    int token = 0;
    if (rank > 0) MPI_Recv(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int loop = 0; loop < after_pointer; ++loop)
        MPI_File_iwrite_at_all(file, ((MPI_Offset)loop * ranks + rank) * (MPI_Offset)sizeof data[0],
                               data[loop], block, MPI_INT, &requests[loop]);
    for (int other = 1; rank == 0 && other < ranks; ++other)
        MPI_Send(&token, 1, MPI_INT, other, 1, MPI_COMM_WORLD);

    /* 2. By file pointer, through a view of every ranks-th block, with those of 1. still under way. */
    MPI_Datatype blocks;
    MPI_Type_contiguous(block, MPI_INT, &blocks);
    MPI_Type_create_resized(blocks, 0, (MPI_Aint)sizeof data[0] * ranks, &blocks);
    MPI_Type_commit(&blocks);
    MPI_Waitall(after_pointer, requests, statuses);
    expect_counts(statuses, after_pointer, "the count of iwrite_at_all");
    MPI_File_set_view(file, rank * (MPI_Offset)sizeof data[0], MPI_INT, blocks, "native", MPI_INFO_NULL);
    MPI_File_seek(file, (MPI_Offset)after_pointer * block, MPI_SEEK_SET);
    for (int loop = after_pointer; loop < loops; ++loop) {
        MPI_Offset position = 0;
        MPI_File_iwrite_all(file, data[loop], block, MPI_INT, &requests[loop]);
        MPI_File_get_position(file, &position);
        expect(position == (MPI_Offset)(loop + 1) * block, "the file pointer");
    }
    MPI_Waitall(loops - after_pointer, requests + after_pointer, statuses + after_pointer);
    expect_counts(statuses + after_pointer, loops - after_pointer, "the count of iwrite_all");

    /* 3. Back, one by one and looked at now and then. */
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    for (int loop = 0; loop < loops / 2; ++loop)
        MPI_File_iread_all(file, back[loop], block, MPI_INT, &requests[loop]);
    for (int loop = loops / 2; loop < loops; ++loop)
        MPI_File_iread_at_all(file, (MPI_Offset)loop * block, back[loop], block, MPI_INT, &requests[loop]);
    for (int loop = loops - 1; loop >= 0; --loop) {
        int done = 0;
        while (!done) MPI_Test(&requests[loop], &done, &statuses[loop]);
    }
    expect_counts(statuses, loops, "the count of iread_all");
    expect(memcmp(data, back, sizeof data) == 0, "what was read");
    MPI_File_close(&file);
    MPI_Type_free(&blocks);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
