/* should_stop_mpi DIR multiple|funneled CALLS: steps of random length until should_stop gives a reason, then
 * one last save. Rank r writes its process number to DIR/pid.r, and at the end prints the call at which it
 * stopped, those at which should_save said yes, and the reason. Rank 0 checks that all ranks agree.
 *
 * Rank `lag` of the job is some steps behind the others. Every few steps each rank needs its left
 * neighbour's. After CALLS calls without a reason the program fails. */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tailrace_mpi.h>
#include <unistd.h>

static int rank, ranks;

static void require(int condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "rank %d: %s (last error: %s)\n", rank, what, tailrace_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t next_random(uint64_t* state) { /* xorshift64* */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 2685821657736338717u;
}

static tailrace_session* open_session(const char* directory) {
    char shared[400], local[400];
    snprintf(shared, sizeof shared, "%s/shared", directory);
    snprintf(local, sizeof local, "%s/local", directory);
    const char* settings[][2] = {
        {"shared_dir", shared},       {"local_dir", local}, {"record", "no"},
        {"ranks_per_node", "2"},      {"keep_shared", "2"}, {"save_interval", "200ms"},
        {"stop_signals", "USR1 TERM"}};
    tailrace_options* options = tailrace_options_new();
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; ++i)
        require(tailrace_options_set(options, settings[i][0], settings[i][1]) == TAILRACE_OK, "a setting");
    tailrace_session* session = NULL;
    require(tailrace_open_mpi(MPI_COMM_WORLD, options, &session) == TAILRACE_OK, "opening");
    tailrace_options_free(options);
    return session;
}

int main(int argc, char** argv) {
    const int multiple = argc > 2 && strcmp(argv[2], "multiple") == 0;
    int provided;
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    require(argc == 4, "usage: should_stop_mpi DIR multiple|funneled CALLS");
    const char* seed_text = getenv("TAILRACE_SEED");
    const uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : 1;
    uint64_t random = seed * 977 + (uint64_t)rank + 1;
    const uint64_t most = strtoull(argv[3], NULL, 10);
    const int lag = (int)(seed % (uint64_t)ranks);

    uint64_t state = 0;
    tailrace_session* session = open_session(argv[1]);
    require(tailrace_register(session, "state", &state, sizeof state) == TAILRACE_OK, "registering");
    char path[400];
    snprintf(path, sizeof path, "%s/pid.%d", argv[1], rank);
    FILE* pid = fopen(path, "w");
    require(pid != NULL && fprintf(pid, "%ld\n", (long)getpid()) > 0 && fclose(pid) == 0, "writing pid");

    uint64_t step = 0, of_saves = 0;
    const char* why = NULL;
    while (why == NULL && step < most) {
        ++step;
        usleep((useconds_t)(next_random(&random) % 4000));
        if (rank == lag && next_random(&random) % 16 == 0) usleep(20000);
        if (step % 8 == 0) { /* each needs its left neighbour's eighth step */
            uint64_t theirs = step;
            if (rank > 0) MPI_Recv(&theirs, 1, MPI_UINT64_T, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank + 1 < ranks) MPI_Send(&step, 1, MPI_UINT64_T, rank + 1, 0, MPI_COMM_WORLD);
            require(theirs == step, "the neighbour's step");
        }
        state = step;
        int save = 0;
        require(tailrace_should_save(session, &save) == TAILRACE_OK, "should_save");
        require(tailrace_should_stop(session, &why) == TAILRACE_OK, "should_stop");
        if (save) of_saves = of_saves * 31 + step;
        if (save || why != NULL) require(tailrace_save(session, step) == TAILRACE_OK, "saving");
    }
    require(why != NULL, "nobody asked it to stop");
    char reason[256] = "", of_rank_0[256] = "";
    snprintf(reason, sizeof reason, "%s", why);
    memcpy(of_rank_0, reason, sizeof reason);
    uint64_t mine[2] = {step, of_saves}, least[2], greatest[2];
    MPI_Allreduce(mine, least, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(mine, greatest, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Bcast(of_rank_0, sizeof of_rank_0, MPI_CHAR, 0, MPI_COMM_WORLD);
    require(least[0] == greatest[0], "ranks stop at different calls");
    require(least[1] == greatest[1], "ranks saved at different calls");
    require(strcmp(reason, of_rank_0) == 0, "ranks stop for different reasons");
    require(tailrace_close(session) == TAILRACE_OK, "closing");
    if (rank == 0) printf("all stop at call %" PRIu64 ": %s\n", step, reason);
    MPI_Finalize();
    return 0;
}
