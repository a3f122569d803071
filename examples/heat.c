/* heat.c - heat spreading over a square plate, and how a program in plain C saves a decomposed array.
 *
 *     mpicc -DHEAT_MPI heat.c -o heat $(pkg-config --cflags --libs tailrace_mpi)
 *     mpiexec -n 4 ./heat DIRECTORY [STEPS [SIZE]]      (one process: cc heat.c, tailrace)
 *
 * Every rank owns some rows of the plate. The plate is saved as one global array, so a run may be killed and
 * go on with another number of ranks: each gets the rows it owns now. The result does not depend on it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HEAT_MPI
#include <tailrace_mpi.h>
#else
#include <tailrace.h>
#endif

static int rank = 0, ranks = 1;

static void stop(const char* what) {
    fprintf(stderr, "heat: rank %d: %s: %s\n", rank, what, tailrace_last_error());
#ifdef HEAT_MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    exit(1);
}

static void check(tailrace_code code, const char* what) {
    if (code != TAILRACE_OK) stop(what);
}

/* Rows 0 and rows + 1 of a rank are copies of its neighbours' edge rows, or the plate's border. */
static void exchange_edges(double* u, size_t rows, size_t size) {
#ifdef HEAT_MPI
    const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL,
              below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    const int n = (int)size;
    MPI_Sendrecv(u + size, n, MPI_DOUBLE, above, 0, u + (rows + 1) * size, n, MPI_DOUBLE, below, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(u + rows * size, n, MPI_DOUBLE, below, 1, u, n, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
#else
    (void)u, (void)rows, (void)size;
#endif
}

/* 0 if it is no number, or too large a one. */
static uint64_t number(const char* text) {
    char* end;
    const unsigned long long value = strtoull(text, &end, 10);
    return text[0] < '0' || text[0] > '9' || *end != '\0' || value > 1000000000 ? 0 : value;
}

int main(int argc, char** argv) {
    const uint64_t steps = argc > 2 ? number(argv[2]) : 2000;
    const size_t size = argc > 3 ? number(argv[3]) : 512;
    if ((argc > 1 && argv[1][0] == '-') || argc > 4 || steps == 0 || size == 0 || size > 1000000)
        return fprintf(stderr, "usage: heat [DIRECTORY [STEPS [SIZE]]]\n"), 2;
#ifdef HEAT_MPI
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    const char* directory = argc > 1 ? argv[1] : "heat-checkpoints";
    const size_t first = size * (size_t)rank / (size_t)ranks;
    const size_t rows = size * ((size_t)rank + 1) / (size_t)ranks - first;
    double* u = calloc((rows + 2) * size, sizeof *u);
    double* next = calloc((rows + 2) * size, sizeof *next);
    if (u == NULL || next == NULL) return 1;
    for (size_t j = 0; rank == 0 && j < size; ++j) u[j] = next[j] = 100; /* the border above is hot */

    tailrace_options* options = tailrace_options_new();
    tailrace_session* session;
    check(tailrace_options_set(options, "shared_dir", directory), "setting the directory");
    check(tailrace_options_set(options, "stop_signals", "TERM USR1"), "setting the signals");
#ifdef HEAT_MPI
    check(tailrace_open_mpi(MPI_COMM_WORLD, options, &session), "opening the session");
#else
    check(tailrace_open(options, &session), "opening the session");
#endif
    tailrace_options_free(options);

    /* This rank's rows are rows first .. first + rows of the plate. The copies of neighbours' rows around
     * them are not saved: the first exchange brings them back. */
    const uint64_t whole[2] = {size, size}, offset[2] = {first, 0}, mine[2] = {rows, size};
    const uint64_t with_copies[2] = {rows + 2, size}, below_a_copy[2] = {1, 0};
    const tailrace_array plate = {.type = TAILRACE_FLOAT64,
                                  .dimensions = 2,
                                  .global_shape = whole,
                                  .offset = offset,
                                  .local_shape = mine,
                                  .memory_shape = with_copies,
                                  .memory_offset = below_a_copy};
    check(tailrace_register_array(session, "plate", u, &plate), "registering the plate");

    uint64_t step = 0;
    tailrace_code found = tailrace_restore(session, TAILRACE_NEWEST, &step);
    if (found != TAILRACE_OK && found != TAILRACE_NOT_FOUND) stop("restoring");
    if (rank == 0 && found == TAILRACE_OK) printf("going on from step %" PRIu64 "\n", step);

    const char* why = NULL; /* to stop before the end; all ranks get it at the same step */
    while (step < steps && why == NULL) {
        exchange_edges(u, rows, size);
        for (size_t i = 1; i <= rows; ++i) {
            for (size_t j = 1; j + 1 < size; ++j) {
                const double* at = u + i * size + j;
                const double around = at[-1] + at[1] + *(at - size) + at[size];
                next[i * size + j] = *at + 0.2 * (around - 4 * *at);
            }
        }
        memcpy(u + size, next + size, rows * size * sizeof *u);
        ++step;
        check(tailrace_should_stop(session, &why), "asking whether to stop");
        if (step % 200 == 0 || why != NULL) check(tailrace_save(session, step), "saving"); /* one copy */
    }
    if (rank == 0 && why != NULL) printf("stopping after step %" PRIu64 ": %s\n", step, why);
    check(tailrace_close(session), "closing the session"); /* waits for the flushes */

    /* The sum of all bits: equal for every number of ranks, and different for every wrong digit. */
    uint64_t bits = 0, sum = 0;
    for (size_t i = size; i < (rows + 1) * size; ++i) {
        uint64_t word;
        memcpy(&word, &u[i], sizeof word);
        sum += word * (2 * (first * size + i) + 1);
    }
#ifdef HEAT_MPI
    MPI_Reduce(&sum, &bits, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Finalize();
#else
    bits = sum;
#endif
    if (rank == 0) printf("after %" PRIu64 " steps the plate's bits sum up to %016" PRIx64 "\n", step, bits);
    free(u);
    free(next);
    return 0;
}
