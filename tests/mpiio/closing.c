/* A file system that reports a failure when a file is closed: every rank of the program hears of it.
 *
 * closing FILE
 *
 * close() of this program stands in front of the C library's for the libraries too. Where tailrace is there
 * it fails once for FILE, on rank 0, which is the descriptor that tailrace has: it closes before the MPI
 * library does.
 */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char* failing = NULL;
static int failures = 0;

int close(int descriptor) {
    char link[64], target[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (failing != NULL && readlink(link, target, sizeof target - 1) > 0 && strcmp(target, failing) == 0) {
        failing = NULL;
        ++failures;
        syscall(SYS_close, descriptor);
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_close, descriptor);
}

int main(int argc, char** argv) {
    int rank, ranks, wrong = 0, any = 0, all_failures = 0;
    char path[PATH_MAX];
    const char* library = getenv("TAILRACE_MPIIO");
    const int fails = library != NULL && strcmp(library, "on") == 0;
    int data[10] = {1, 2, 3};
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) !=
        MPI_SUCCESS)
        wrong = 1;
    if (MPI_File_write_at_all(file, (MPI_Offset)(rank * sizeof data), data, 10, MPI_INT, MPI_STATUS_IGNORE) !=
        MPI_SUCCESS)
        wrong = 1;
    if (rank == 0 && realpath(argv[1], path) != NULL && fails) failing = path;
    const int code = MPI_File_close(&file);
    MPI_Allreduce(&failures, &all_failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (all_failures > 0 && code == MPI_SUCCESS) {
        fprintf(stderr, "rank %d: the file was not closed well, and nobody said so\n", rank);
        wrong = 1;
    }
    if (fails && all_failures == 0) {
        fprintf(stderr, "nothing has failed\n");
        wrong = 1;
    }
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
