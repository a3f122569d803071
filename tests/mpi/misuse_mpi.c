/* misuse_mpi.c - what a session over MPI refuses, and what it allows beside the plain case.
 *
 *     mpirun -n R misuse_mpi MODE DIRECTORY
 *
 *     differ    settings that differ between ranks: refused on every rank, with the key's name
 *     disagree  ranks that save different epochs: a clear failure for each of them, and no hang
 *     part      two sessions at once on two halves of the world
 *     busy      a second session on a directory that has one
 *     alone     one rank's wrong arguments in a collective call: every rank's failure, and no hang
 *     forgotten a session that is open at MPI_Finalize: its flushes are waited for, the next one finds them
 *     launcher  a process that MPI calls alone, started as one of several: a warning
 *     order     sessions on no communicator, and outside MPI_Init and MPI_Finalize
 *
 * Fails by MPI_Abort with a sentence; needs at least 2 ranks, except for `launcher` and `order`.
 */
#include "content.h"
#include "tailrace_mpi.h"

static int rank, rank_count;

static tailrace_options* options_in(const char* directory, const char* name) {
    tailrace_options* options = new_options();
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    set_path(options, "shared_dir", path, "shared");
    set_path(options, "local_dir", path, "local");
    set_number(options, "ranks_per_node", 1);
    set_text(options, "buffer_bytes", "256KiB");
    return options;
}

static void require_in_error(const char* word) {
    REQUIRE(strstr(tailrace_last_error(), word) != NULL, "the sentence should name \"%s\"", word);
}

static void differ(const char* directory) {
    tailrace_options* options = options_in(directory, "differ");
    set_number(options, "files", rank == rank_count - 1 ? 3 : 2);
    tailrace_session* session = (tailrace_session*)&rank;
    REQUIRE(tailrace_open_mpi(MPI_COMM_WORLD, options, &session) == TAILRACE_INVALID_ARGUMENT,
            "ranks want different numbers of files");
    REQUIRE(session == NULL, "there is no session after a failure");
    require_in_error("files");
    /* One rank alone is wrong; the others hear of it. */
    set_number(options, "files", 2);
    if (rank == 0) set_text(options, "buffer_bytes", "1000");
    REQUIRE(tailrace_open_mpi(MPI_COMM_WORLD, options, &session) == TAILRACE_INVALID_ARGUMENT,
            "rank 0 wants odd buffers");
    require_in_error("buffer_bytes");
    /* Also where it gives no place for the session. */
    set_text(options, "buffer_bytes", "256KiB");
    REQUIRE(
        tailrace_open_mpi(MPI_COMM_WORLD, options, rank == 1 ? NULL : &session) == TAILRACE_INVALID_ARGUMENT,
        "rank 1 has no place for the session");
    require_in_error("session");
    /* Equal settings work, in the same program and directory. */
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
    REQUIRE_OK(tailrace_close(session));
    tailrace_options_free(options);
}

static void disagree(const char* directory) {
    static char memory[100 * 1000];
    tailrace_options* options = options_in(directory, "disagree");
    set_number(options, "files", 1);
    tailrace_session* session = NULL;
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
    REQUIRE_OK(tailrace_register(session, "state", memory, sizeof memory));
    REQUIRE_OK(tailrace_save(session, 1));
    const uint64_t mine = rank == 0 ? 2 : 3;
    const tailrace_code saved = tailrace_save(session, mine);
    const tailrace_code waited = saved == TAILRACE_OK ? tailrace_wait(session, mine, 60) : saved;
    REQUIRE(waited != TAILRACE_OK && waited != TAILRACE_TIMEOUT, "epoch 2 or 3 cannot come about");
    REQUIRE(strlen(tailrace_last_error()) > 20, "there should be a sentence");
    REQUIRE(strstr(tailrace_last_error(), "epoch") != NULL, "it should name the epoch");
    REQUIRE_OK(tailrace_wait(session, 1, 60)); /* what was before stays */
    tailrace_epoch_info info;
    REQUIRE_OK(tailrace_epoch_state(session, 1, &info));
    REQUIRE(info.state == TAILRACE_STATE_COMMITTED, "epoch 1 is %d", (int)info.state);
    REQUIRE(tailrace_close(session) != TAILRACE_OK, "close reports what failed");

    /* The next session restores what was committed. */
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
    REQUIRE_OK(tailrace_register(session, "state", memory, sizeof memory));
    uint64_t restored = 0;
    REQUIRE_OK(tailrace_restore(session, TAILRACE_NEWEST, &restored));
    REQUIRE(restored == 1, "it is %llu", (unsigned long long)restored);
    REQUIRE_OK(tailrace_close(session));
    tailrace_options_free(options);
}

static void part(const char* directory) {
    const int half = rank % 2;
    MPI_Comm communicator;
    MPI_Comm_split(MPI_COMM_WORLD, half, -rank, &communicator); /* in another order than the world */
    int rank_in_half = 0, half_size = 0;
    MPI_Comm_rank(communicator, &rank_in_half);
    MPI_Comm_size(communicator, &half_size);

    tailrace_options* options = options_in(directory, half ? "odd" : "even");
    set_number(options, "files", half ? 2 : 1);
    tailrace_session* session = NULL;
    REQUIRE_OK(tailrace_open_mpi(communicator, options, &session));
    MPI_Comm_free(&communicator); /* the session has its own */
    tailrace_options_free(options);
    REQUIRE(tailrace_rank(session) == rank_in_half && tailrace_rank_count(session) == half_size, "the ranks");

    static char memory[300 * 1000 + 64];
    const uint64_t bytes = 300 * 1000 + (uint64_t)rank, seed = (uint64_t)rank + 7;
    REQUIRE_OK(tailrace_register(session, "state", memory, bytes));
    content_fill(memory, bytes, seed);
    REQUIRE_OK(tailrace_save(session, 5));
    REQUIRE_OK(tailrace_wait_all(session, -1));
    memset(memory, 0, sizeof memory);
    uint64_t restored = 0;
    REQUIRE_OK(tailrace_restore(session, 5, &restored));
    REQUIRE(content_wrong_byte(memory, bytes, seed) < 0, "wrong bytes");
    REQUIRE_OK(tailrace_close(session));
}

static void busy(const char* directory) {
    tailrace_options* options = options_in(directory, "busy");
    tailrace_session *first = NULL, *second = NULL;
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &first));
    REQUIRE(tailrace_open_mpi(MPI_COMM_WORLD, options, &second) == TAILRACE_BUSY, "one session at a time");
    REQUIRE(second == NULL, "there is no session after a failure");
    REQUIRE_OK(tailrace_close(first));
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &second));
    REQUIRE_OK(tailrace_close(second));
    tailrace_options_free(options);
}

static void alone(const char* directory) {
    static char memory[1000];
    tailrace_options* options = options_in(directory, "alone");
    tailrace_session* session = NULL;
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
    REQUIRE_OK(tailrace_register(session, "state", memory, sizeof memory));
    REQUIRE_OK(tailrace_save(session, 1));
    const char* const good[] = {"state"};
    const char* const bad[] = {NULL};
    REQUIRE(tailrace_restore_some(session, 1, rank == 1 ? bad : good, 1, NULL) == TAILRACE_INVALID_ARGUMENT,
            "rank 1 gives no name");
    require_in_error("names[0]");
    tailrace_reader* reader = NULL;
    REQUIRE(tailrace_reader_open(session, 1, TAILRACE_NEWEST, rank == 1 ? 64 : 0, &reader) ==
                TAILRACE_INVALID_ARGUMENT,
            "rank 1 gives unknown flags");
    require_in_error("flags 0x40");
    tailrace_epoch_info* list = NULL;
    size_t count = 0;
    REQUIRE(tailrace_list(session, rank == 1 ? NULL : &list, &count) == TAILRACE_INVALID_ARGUMENT,
            "rank 1 gives no place for the list");
    require_in_error("epochs");
    REQUIRE_OK(tailrace_restore_some(session, 1, good, 1, NULL)); /* the ranks are still in step */
    REQUIRE_OK(tailrace_close(session));
    tailrace_options_free(options);
}

/* Called twice by the test, in two processes: the first leaves the session to MPI_Finalize. */
static tailrace_session* forgotten_session;
static void forgotten(const char* directory) {
    static char memory[3000 * 1000];
    tailrace_options* options = options_in(directory, "forgotten");
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &forgotten_session));
    REQUIRE_OK(tailrace_register(forgotten_session, "state", memory, sizeof memory));
    uint64_t restored = 0;
    const tailrace_code found = tailrace_restore(forgotten_session, TAILRACE_NEWEST, &restored);
    const uint64_t seed = (uint64_t)rank + 3;
    if (found == TAILRACE_NOT_FOUND) {
        content_fill(memory, sizeof memory, seed);
        for (uint64_t epoch = 1; epoch <= 2; ++epoch) REQUIRE_OK(tailrace_save(forgotten_session, epoch));
    } else {
        REQUIRE_OK(found);
        REQUIRE(restored == 2, "it is %llu", (unsigned long long)restored);
        REQUIRE(content_wrong_byte(memory, sizeof memory, seed) < 0, "wrong bytes");
        tailrace_epoch_info* list = NULL;
        size_t count = 0;
        REQUIRE_OK(tailrace_list(forgotten_session, &list, &count));
        REQUIRE(count == 2 && list[0].in_shared && list[1].in_shared, "both epochs were committed");
        tailrace_list_free(list);
    }
    tailrace_options_free(options);
}

/* Before MPI_Init and after MPI_Finalize there is no MPI_Abort either. */
static int refused_outside_mpi(const char* word) {
    tailrace_session* session = NULL;
    const tailrace_code code = tailrace_open_mpi(MPI_COMM_WORLD, NULL, &session);
    if (code == TAILRACE_FAILED_STATE && strstr(tailrace_last_error(), word) != NULL && session == NULL)
        return 1;
    fprintf(stderr, "not refused for %s, but: %d, %s\n", word, (int)code, tailrace_last_error());
    return 0;
}

static void order(const char* directory) {
    tailrace_options* options = options_in(directory, "order");
    tailrace_session* session = NULL;
    REQUIRE(tailrace_open_mpi(MPI_COMM_NULL, options, &session) == TAILRACE_INVALID_ARGUMENT,
            "no communicator");
    require_in_error("MPI_COMM_NULL");
    REQUIRE(tailrace_open_mpi(MPI_COMM_WORLD, options, NULL) == TAILRACE_INVALID_ARGUMENT, "no place for it");
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_SELF, options, &session));
    REQUIRE_OK(tailrace_close(session));
    tailrace_options_free(options);
}

static int launcher_warnings;
static void count_launcher_warnings(tailrace_log_level level, const char* message, void* unused) {
    (void)unused;
    if (level == TAILRACE_LOG_WARNING && strstr(message, "started as one of 4") != NULL) ++launcher_warnings;
}

static void launcher(const char* directory) {
    REQUIRE(rank_count == 1, "this mode is for one rank");
    tailrace_options* options = options_in(directory, "launcher");
    tailrace_set_log(count_launcher_warnings, NULL);
    const char* const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                     "SLURM_STEP_NUM_TASKS"};
    const int count = (int)(sizeof variables / sizeof *variables);
    for (int i = 0; i < count; ++i) setenv(variables[i], "1", 1);
    for (int several = -1; several < count; ++several) {
        if (several >= 0) setenv(variables[several], "4", 1);
        tailrace_session* session = NULL;
        REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
        REQUIRE_OK(tailrace_close(session));
        REQUIRE(launcher_warnings == several + 1, "%d warnings after %d", launcher_warnings, several);
        if (several >= 0) setenv(variables[several], "1", 1);
    }
    tailrace_set_log(NULL, NULL);
    tailrace_options_free(options);
}

int main(int argc, char** argv) {
    const char* const mode = argc > 2 ? argv[1] : "";
    const int in_order = strcmp(mode, "order") == 0;
    if (in_order && !refused_outside_mpi("MPI_Init_thread")) return 1;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    REQUIRE(in_order || strcmp(mode, "launcher") == 0 || rank_count >= 2, "at least 2 ranks are needed");
    static const struct {
        const char* name;
        void (*run)(const char* directory);
    } modes[] = {{"differ", differ}, {"disagree", disagree},   {"part", part},         {"busy", busy},
                 {"alone", alone},   {"forgotten", forgotten}, {"launcher", launcher}, {"order", order}};
    int found = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; ++i) {
        if (strcmp(mode, modes[i].name) != 0) continue;
        modes[i].run(argv[2]);
        found = 1;
    }
    REQUIRE(found, "there is no mode \"%s\"", mode);
    MPI_Finalize();
    if (forgotten_session != NULL && tailrace_close(forgotten_session) != TAILRACE_FAILED_STATE) return 1;
    if (in_order && !refused_outside_mpi("MPI_Finalize")) return 1;
    return 0;
}
