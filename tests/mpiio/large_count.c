/* A program that knows nothing of tailrace and uses the calls with large counts (MPI 4), all that are
 * collective. Ends with 1 when a count or something it reads back is wrong.
 *
 * Its view is made with small counts: MPICH 4.0 ends the program when it is given another.
 *
 * large_count FILE
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { block = 70, loops = 8 };
static int rank, ranks, wrong;

static void expect(int claim, const char* what) {
    if (claim) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    wrong = 1;
}

static void expect_count(const MPI_Status* status, const char* what) {
    MPI_Count got = 0;
    MPI_Get_count_c(status, MPI_INT, &got);
    expect(got == block, what);
}

int main(int argc, char** argv) {
    int provided = 0, any = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    static int data[loops][block], back[loops][block];
    for (int loop = 0; loop < loops; ++loop)
        for (int i = 0; i < block; ++i) data[loop][i] = (loop * ranks + rank) * 100003 + i * 7 + 1;
    MPI_File file;
    MPI_Status status;
    MPI_Request request;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "tailrace_ranks_per_node", "2");
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file);
    MPI_Info_free(&info);

    /* Every ranks-th int. */
    MPI_Datatype strided, view;
    MPI_Type_vector(block, 1, ranks, MPI_INT, &strided);
    MPI_Type_create_resized(strided, 0, (MPI_Aint)sizeof(int) * block * ranks, &view);
    MPI_Type_commit(&view);
    MPI_File_set_view(file, rank * (MPI_Offset)sizeof(int), MPI_INT, view, "native", MPI_INFO_NULL);

    MPI_File_write_all_c(file, data[0], block, MPI_INT, &status);
    expect_count(&status, "the count of write_all_c");
    MPI_File_iwrite_all_c(file, data[1], block, MPI_INT, &request);
    MPI_Wait(&request, &status);
    expect_count(&status, "the count of iwrite_all_c");
    for (int loop = 2; loop < loops; ++loop) {
        const MPI_Offset at = (MPI_Offset)loop * block;
        if (loop % 2 == 0) {
            MPI_File_write_at_all_c(file, at, data[loop], block, MPI_INT, &status);
        } else {
            MPI_File_iwrite_at_all_c(file, at, data[loop], block, MPI_INT, &request);
            MPI_Wait(&request, &status);
        }
        expect_count(&status, "the count of a write by offset");
    }
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    MPI_File_read_all_c(file, back[0], block, MPI_INT, &status);
    expect_count(&status, "the count of read_all_c");
    MPI_File_iread_all_c(file, back[1], block, MPI_INT, &request);
    MPI_Wait(&request, &status);
    expect_count(&status, "the count of iread_all_c");
    for (int loop = 2; loop < loops; ++loop) {
        const MPI_Offset at = (MPI_Offset)loop * block;
        if (loop % 2 == 0) {
            MPI_File_read_at_all_c(file, at, back[loop], block, MPI_INT, &status);
        } else {
            MPI_File_iread_at_all_c(file, at, back[loop], block, MPI_INT, &request);
            MPI_Wait(&request, &status);
        }
        expect_count(&status, "the count of a read by offset");
    }
    expect(memcmp(data, back, sizeof data) == 0, "what was read");
    MPI_File_close(&file);
    MPI_Type_free(&view);
    MPI_Type_free(&strided);
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
