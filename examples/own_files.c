/* own_files.c - a program that writes its checkpoint files by itself, and goes on from the last ones.
 *
 *     ./own_files DIRECTORY [STEPS]     or with MPI (compiled with -DOWN_FILES_MPI): mpirun -n 4 ...
 *
 * Every rank keeps a random walk, and writes it to two files with fwrite and fprintf, as it would with HDF5
 * or NetCDF. tailrace says where; the files of all ranks become one epoch in K files. Kill it whenever you
 * like and start it again, on as many ranks. `tailrace extract DIRECTORY newest --files -o files` brings the
 * files out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef OWN_FILES_MPI
#include <mpi.h>
#include <tailrace_mpi.h>
#else
#include <tailrace.h>
#endif

#define WALKERS 10000

static double position[WALKERS];

static void stop(const char* what) {
    fprintf(stderr, "own_files: %s: %s\n", what, tailrace_last_error());
#ifdef OWN_FILES_MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    exit(1);
}

static void check(tailrace_code code, const char* what) {
    if (code != TAILRACE_OK) stop(what);
}

/* Bits that follow from the walker and the step alone, so that no state but the positions is needed. */
static double random_step(uint64_t walker, uint64_t step) {
    uint64_t bits = (walker * 1000003 + step + 1) * 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    return (double)(int64_t)(bits ^ (bits >> 27)) / 9.3e18;
}

/* ---- the program's own files: what it would do without tailrace, at the paths that it is given ---- */

static int write_positions(const char* path) {
    FILE* file = fopen(path, "wb");
    if (file == NULL) return 0;
    const int whole = fwrite(position, sizeof *position, WALKERS, file) == WALKERS;
    return fclose(file) == 0 && whole;
}

static int read_positions(const char* path) {
    FILE* file = fopen(path, "rb");
    if (file == NULL) return 0;
    const int whole = fread(position, sizeof *position, WALKERS, file) == WALKERS;
    return fclose(file) == 0 && whole;
}

static int write_notes(const char* path, int rank, uint64_t step) {
    FILE* file = fopen(path, "w");
    if (file == NULL) return 0;
    const int whole = fprintf(file, "rank %d after %" PRIu64 " steps\n", rank, step) > 0;
    return fclose(file) == 0 && whole;
}

/* ---- saving and restoring them -------------------------------------------------------------------- */

static void save(tailrace_session* session, int rank, uint64_t step) {
    char positions[TAILRACE_MAX_PATH_BYTES], notes[TAILRACE_MAX_PATH_BYTES], name[64];
    snprintf(name, sizeof name, "notes/%d.txt", rank);
    check(tailrace_files_begin(session), "beginning the files");
    check(tailrace_files_route(session, "positions.bin", positions, sizeof positions), "routing a file");
    check(tailrace_files_route(session, name, notes, sizeof notes), "routing a file");
    const int whole = write_positions(positions) && write_notes(notes, rank, step);
    /* If it fails, on any rank, nothing of this epoch is kept; the program goes on. */
    if (tailrace_files_save(session, step, whole) != TAILRACE_OK)
        fprintf(stderr, "own_files: %s\n", tailrace_last_error());
}

/* The step to go on from; 0 on a first run. */
static uint64_t restore(tailrace_session* session) {
    uint64_t step = 0;
    const tailrace_code found = tailrace_files_restore(session, TAILRACE_NEWEST, 0, &step);
    if (found == TAILRACE_NOT_FOUND) return 0;
    check(found, "restoring");
    char path[TAILRACE_MAX_PATH_BYTES];
    check(tailrace_files_find(session, (uint32_t)tailrace_rank(session), "positions.bin", path, sizeof path),
          "looking for the positions");
    if (!read_positions(path)) stop("reading the positions");
    check(tailrace_files_release(session), "releasing the files");
    return step;
}

int main(int argc, char** argv) {
    int rank = 0;
#ifdef OWN_FILES_MPI
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    if (argc < 2) {
        if (rank == 0) fprintf(stderr, "usage: own_files DIRECTORY [STEPS]\n");
        return 2;
    }
    const uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;

    tailrace_options* options = tailrace_options_new();
    tailrace_session* session;
    check(tailrace_options_set(options, "shared_dir", argv[1]), "setting the directory");
#ifdef OWN_FILES_MPI
    check(tailrace_open_mpi(MPI_COMM_WORLD, options, &session), "opening the session");
#else
    check(tailrace_open(options, &session), "opening the session");
#endif
    tailrace_options_free(options);

    uint64_t step = restore(session);
    if (rank == 0 && step > 0) printf("going on from step %" PRIu64 "\n", step);
    while (step < steps) {
        for (uint64_t i = 0; i < WALKERS; ++i) position[i] += random_step((uint64_t)rank * WALKERS + i, step);
        ++step;
        if (step % 100 == 0) save(session, rank, step);
    }
    check(tailrace_close(session), "closing the session"); /* waits for the flushes */

    double sum = 0, all = 0;
    for (size_t i = 0; i < WALKERS; ++i) sum += position[i] * position[i];
#ifdef OWN_FILES_MPI
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Finalize();
#else
    all = sum;
#endif
    if (rank == 0) printf("after %" PRIu64 " steps the squares sum up to %.17g\n", step, all);
    return 0;
}
