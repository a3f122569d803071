/* beside_files.c - measures how long saves block a program, beside a file per process.
 *
 *     mpicc -shared -fPIC beside_files.c -o beside_files.so $(pkg-config --cflags tailrace_mpi)
 *     mpiexec -n 4 env LD_PRELOAD=$PWD/beside_files.so BESIDE_FILES=DIRECTORY ./simulation
 *
 * The library takes the place of tailrace_save in a program that is linked to libtailrace.so. It calls the
 * real one, and waits until the epoch is in the shared directory. Then each rank writes a file into
 * DIRECTORY, by one fwrite of as many bytes as it has saved, and syncs it. Rank 0 prints a line for each
 * save:
 *
 *     beside: EPOCH BYTES SAVE WRITE SYNC
 *
 * BYTES are those of all ranks. The other numbers are seconds of the slowest rank: of tailrace_save, of
 * opening and writing the file, and of all that with the sync. Both ways begin behind a barrier. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tailrace.h>
#include <unistd.h>

static void fail(const char* what) {
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Writes the file of this rank. seconds[0] is the time until it is written, seconds[1] until it is synced. */
static void write_file(const char* directory, int rank, uint64_t epoch, uint64_t bytes, double seconds[2]) {
    static char *memory, path[4096];
    static uint64_t room;
    if (room < bytes) {
        memory = realloc(memory, bytes);
        if (memory == NULL) fail("memory for a file");
        memset(memory, 1, room = bytes);
    }
    if (path[0] != 0) unlink(path); /* of the save before */
    snprintf(path, sizeof path, "%s/%d.%" PRIu64, directory, rank, epoch);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    FILE* file = fopen(path, "wb");
    if (file == NULL || fwrite(memory, 1, bytes, file) != bytes || fflush(file) != 0) fail(path);
    seconds[0] = MPI_Wtime() - begin;
    if (fsync(fileno(file)) != 0 || fclose(file) != 0) fail(path);
    seconds[1] = MPI_Wtime() - begin;
}

tailrace_code tailrace_save(tailrace_session* session, uint64_t epoch) {
    tailrace_code (*save)(tailrace_session*, uint64_t) = NULL;
    *(void**)&save = dlsym(RTLD_NEXT, "tailrace_save");
    const char* directory = getenv("BESIDE_FILES");
    if (save == NULL || directory == NULL) fail("tailrace_save and BESIDE_FILES");
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds[3] = {-MPI_Wtime()};
    tailrace_code code = save(session, epoch);
    seconds[0] += MPI_Wtime();
    if (code == TAILRACE_OK) code = tailrace_wait_all(session, -1);
    tailrace_epoch_info info;
    if (code == TAILRACE_OK) code = tailrace_epoch_state(session, epoch, &info);
    if (code != TAILRACE_OK) return code;
    write_file(directory, tailrace_rank(session), epoch, info.captured_bytes, seconds + 1);
    double slowest[3];
    uint64_t bytes = 0;
    MPI_Reduce(seconds, slowest, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&info.captured_bytes, &bytes, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (tailrace_rank(session) == 0)
        fprintf(stderr, "beside: %" PRIu64 " %" PRIu64 " %.6f %.6f %.6f\n", epoch, bytes, slowest[0],
                slowest[1], slowest[2]);
    return TAILRACE_OK;
}
