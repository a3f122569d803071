/* carried_mpi.c - a program that called plain MPI_Init and whose epochs agent processes carry.
 *
 *     mpirun -n R carried_mpi DIRECTORY apart|restore|session EPOCHS [SECOND_LOCAL_DIR [LOCAL_DIR]]
 *
 * apart     Ranks save one after the other: a rank saves when a file says that the one before it has
 *           returned from its save. No rank makes a call of MPI meanwhile. So a save that needs another
 *           rank never returns. Then every epoch is committed.
 * restore   The newest epoch is EPOCHS, and every byte of it is right.
 * session   Saves EPOCHS epochs as fast as it can, with the memory of the process in sight.
 *
 * Nodes have two ranks. With SECOND_LOCAL_DIR the second half of the ranks has another node-local
 * directory, and so another agent. Rank 0 prints what saves have cost. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "tailrace_mpi.h"

enum { state_bytes = 3 * 1000 * 1000 + 4 };

static int rank, ranks;
static char state[state_bytes];

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static tailrace_session* open_session(int argc, char** argv) {
    tailrace_options* options = new_options();
    set_path(options, "shared_dir", argv[1], "shared");
    if (argc > 4 && rank >= ranks / 2)
        set_text(options, "local_dir", argv[4]);
    else if (argc > 5)
        set_text(options, "local_dir", argv[5]);
    else
        set_path(options, "local_dir", argv[1], "local");
    set_text(options, "buffer_bytes", "256KiB");
    set_text(options, "ranks_per_node", "2");
    set_text(options, "record", "no");
    set_number(options, "buffers", 4);
    set_number(options, "files", 1);
    set_number(options, "keep_shared", 3);
    tailrace_session* session = NULL;
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
    tailrace_options_free(options);
    REQUIRE_OK(tailrace_register(session, "state", state, state_bytes));
    return session;
}

static uint64_t seed_of(uint64_t epoch) {
    return epoch * 1009 + (uint64_t)rank;
}

/* Waits for the file of the rank before, saves, and leaves one for the next. */
static double save_in_turn(tailrace_session* session, const char* directory, uint64_t epoch) {
    char path[4096];
    snprintf(path, sizeof path, "%s/saved.%llu.%d", directory, (unsigned long long)epoch, rank - 1);
    while (rank > 0 && access(path, F_OK) != 0) nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
    const double begin = seconds_now();
    REQUIRE_OK(tailrace_save(session, epoch));
    const double blocked = seconds_now() - begin;
    snprintf(path, sizeof path, "%s/saved.%llu.%d", directory, (unsigned long long)epoch, rank);
    const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    REQUIRE(file >= 0, "%s: %s", path, strerror(errno));
    close(file);
    return blocked;
}

static void apart(tailrace_session* session, const char* directory, uint64_t epochs) {
    double most = 0;
    for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        content_fill(state, state_bytes, seed_of(epoch));
        const double blocked = save_in_turn(session, directory, epoch);
        if (blocked > most) most = blocked;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    REQUIRE_OK(tailrace_wait_all(session, -1));
    for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        tailrace_epoch_info info;
        REQUIRE_OK(tailrace_epoch_state(session, epoch, &info));
        REQUIRE(info.state == TAILRACE_STATE_COMMITTED, "epoch %llu is in state %d: %s",
                (unsigned long long)epoch, (int)info.state, info.why);
    }
    if (rank == 0) printf("blocked at most %.6f s\n", most);
}

static long resident_kib(void) {
    long size = 0, resident = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
    if (file != NULL) fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void many(tailrace_session* session, uint64_t epochs) {
    long after_some = 0;
    for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        REQUIRE_OK(tailrace_save(session, epoch));
        if (epoch == epochs / 4) after_some = resident_kib();
    }
    REQUIRE_OK(tailrace_wait_all(session, -1));
    const long end = resident_kib();
    REQUIRE(end < after_some + 4096, "the program has grown from %ld to %ld KiB", after_some, end);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    REQUIRE(argc >= 4, "usage: carried_mpi DIRECTORY apart|restore|session EPOCHS [LOCAL_DIR]");
    const uint64_t epochs = strtoull(argv[3], NULL, 10);
    tailrace_session* session = open_session(argc, argv);
    if (strcmp(argv[2], "apart") == 0) apart(session, argv[1], epochs);
    if (strcmp(argv[2], "session") == 0) many(session, epochs);
    if (strcmp(argv[2], "restore") == 0) {
        uint64_t restored = 0;
        REQUIRE_OK(tailrace_restore(session, TAILRACE_NEWEST, &restored));
        REQUIRE(restored == epochs, "epoch %llu was restored", (unsigned long long)restored);
        REQUIRE(content_wrong_byte(state, state_bytes, seed_of(epochs)) < 0, "a byte is wrong");
    }
    REQUIRE_OK(tailrace_close(session));
    MPI_Finalize();
    return 0;
}
