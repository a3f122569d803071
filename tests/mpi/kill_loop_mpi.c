/* kill_loop_mpi.c - a program made to be killed: restores the newest epoch, checks every byte, checkpoints
 * on.
 *
 *     mpirun -n R kill_loop_mpi DIRECTORY START FILES LEADERS_PER_FILE RANKS_PER_NODE BANDWIDTH_CAP EPOCHS
 *
 * chaos_job.py starts it with a number of its own each time (START), kills it and starts it again. What a
 * rank knows it appends to DIRECTORY/said/START.RANK, a line for each fact, by one write(): what a process
 * has written stays when it is killed.
 *
 *     pid N          first of all
 *     opened         the session is open; what was lost with nodes is rebuilt
 *     fresh          there was nothing to restore
 *     restored E     every byte of epoch E was right, on this rank
 *     saved E R      tailrace_save has returned, in run R
 *     committed E R  tailrace_epoch_state has said so, of run R
 *     closed         EPOCHS more epochs were saved and the session was closed (EPOCHS = 0: never)
 *     wrong ...      bytes, or epochs, that cannot be
 *     failed ...     a call that should have worked; the rank ends
 *
 * KILL_LOOP_THREADS=funneled in the environment: MPI gets no threads of ours, and save is collective.
 *
 * The bytes of the region follow from (start that saved it, epoch, rank, place), so that neither two epochs,
 * nor two ranks, nor two runs that saved the same epoch can be taken for each other.
 */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "tailrace_mpi.h"

enum {
    most_bytes = 1800 * 1000,
    mean_bytes = 1500 * 1000,
    header_words = 3,
    grid_rows = 64,
    grid_columns = 32
};

static int rank, rank_count, said = -1;

static void say(const char* fact, uint64_t number, const char* more) {
    char line[2048];
    const int length = snprintf(line, sizeof line, "%s %llu %s\n", fact, (unsigned long long)number, more);
    const size_t bytes = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    if (write(said, line, bytes) != (ssize_t)bytes) _exit(3);
}

static void give_up(const char* fact, uint64_t number, const char* more) {
    say(fact, number, more);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void need(tailrace_code code, const char* call, uint64_t epoch) {
    if (code == TAILRACE_OK) return;
    char why[1500];
    snprintf(why, sizeof why, "%s: %s", call, tailrace_last_error());
    give_up("failed", epoch, why);
}

/* ---- the state ------------------------------------------------------------------------------------ */

static uint64_t state[most_bytes / 8 + header_words];
static double grid[grid_rows * grid_columns];

static uint64_t seed(uint64_t start, uint64_t epoch) {
    return (start * 100003 + epoch) * 1009 + (uint64_t)rank;
}
static uint64_t state_bytes(uint64_t start, uint64_t epoch) {
    return mean_bytes / 100 * (80 + content_word(seed(start, epoch), 0) % 41) + header_words * 8;
}
static tailrace_array grid_piece(uint64_t* offset, uint64_t* shape) {
    static const uint64_t whole[2] = {grid_rows, grid_columns};
    offset[0] = grid_rows * (uint64_t)rank / (uint64_t)rank_count;
    shape[0] = grid_rows * (uint64_t)(rank + 1) / (uint64_t)rank_count - offset[0];
    offset[1] = 0;
    shape[1] = grid_columns;
    return (tailrace_array){.type = TAILRACE_FLOAT64,
                            .dimensions = 2,
                            .global_shape = whole,
                            .offset = offset,
                            .local_shape = shape};
}
static double grid_value(uint64_t start, uint64_t epoch, uint64_t element) {
    return (double)(start * 1000 + epoch) * 4096 + (double)element;
}

static void compute(uint64_t start, uint64_t epoch) {
    state[0] = start;
    state[1] = epoch;
    state[2] = (uint64_t)rank;
    content_fill(state + header_words, state_bytes(start, epoch) - header_words * 8, seed(start, epoch));
    uint64_t offset[2], shape[2];
    (void)grid_piece(offset, shape);
    for (uint64_t i = 0; i < shape[0] * grid_columns; ++i)
        grid[i] = grid_value(start, epoch, offset[0] * grid_columns + i);
}

static void check(uint64_t epoch, uint64_t bytes) {
    const uint64_t start = state[0];
    if (state[1] != epoch || state[2] != (uint64_t)rank || bytes != state_bytes(start, epoch))
        give_up("wrong", epoch, "the state is another epoch's or rank's");
    if (content_wrong_byte(state + header_words, bytes - header_words * 8, seed(start, epoch)) >= 0)
        give_up("wrong", epoch, "bytes of the state");
    uint64_t offset[2], shape[2];
    (void)grid_piece(offset, shape);
    for (uint64_t i = 0; i < shape[0] * grid_columns; ++i)
        if (grid[i] != grid_value(start, epoch, offset[0] * grid_columns + i))
            give_up("wrong", epoch, "elements of the grid");
    /* All ranks must be back at the same epoch of the same run. */
    uint64_t mine[4] = {start, epoch, ~start, ~epoch}, least[4];
    MPI_Allreduce(mine, least, 4, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    if (least[0] != start || least[1] != epoch || ~least[2] != start || ~least[3] != epoch)
        give_up("wrong", epoch, "ranks restored different epochs");
}

/* ---- the life of the program ---------------------------------------------------------------------- */

static tailrace_session* open_session(char** argv) {
    tailrace_options* options = new_options();
    set_path(options, "shared_dir", argv[1], "shared");
    set_path(options, "local_dir", argv[1], "local");
    set_text(options, "files", argv[3]);
    set_text(options, "leaders_per_file", argv[4]);
    set_text(options, "ranks_per_node", argv[5]);
    set_text(options, "bandwidth_cap", argv[6]);
    set_text(options, "buffer_bytes", "256KiB");
    set_number(options, "buffers", 4);
    set_number(options, "keep_shared", 3);
    tailrace_session* session = NULL;
    need(tailrace_open_mpi(MPI_COMM_WORLD, options, &session), "open", 0);
    tailrace_options_free(options);
    return session;
}

/* Returns the epoch, 0 if there was none. Everything is registered afterwards. */
static uint64_t restore(tailrace_session* session) {
    uint64_t offset[2], shape[2];
    const tailrace_array piece = grid_piece(offset, shape);
    need(tailrace_register_array(session, "grid", grid, &piece), "register", 0);
    tailrace_reader* reader = NULL;
    const tailrace_code found = tailrace_reader_open(session, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &reader);
    if (found == TAILRACE_NOT_FOUND) {
        need(tailrace_register(session, "state", state, 8), "register", 0);
        say("fresh", 0, "");
        return 0;
    }
    need(found, "reader_open", 0);
    const uint64_t epoch = tailrace_reader_epoch(reader);
    tailrace_region_info info;
    need(tailrace_reader_region(reader, (uint32_t)rank, "state", &info), "reader_region", epoch);
    const uint64_t bytes = info.bytes;
    tailrace_reader_close(reader);
    if (bytes < header_words * 8 || bytes > sizeof state) give_up("wrong", epoch, "size of the state");
    need(tailrace_register(session, "state", state, bytes), "register", epoch);
    uint64_t restored = 0;
    need(tailrace_restore(session, epoch, &restored), "restore", epoch);
    if (restored != epoch) give_up("wrong", epoch, "another epoch than the one asked for");
    check(epoch, bytes);
    say("restored", epoch, "");
    return epoch;
}

static void say_saved(tailrace_session* session, uint64_t epoch) {
    tailrace_epoch_info info;
    need(tailrace_epoch_state(session, epoch, &info), "epoch_state", epoch);
    char run[16];
    snprintf(run, sizeof run, "%u", (unsigned)info.run);
    say("saved", epoch, run);
}

/* Says which epochs above `committed` have been committed since; returns the newest in a row of those that
 * have ended well. */
static uint64_t report_committed(tailrace_session* session, uint64_t committed, uint64_t newest) {
    for (uint64_t epoch = committed + 1; epoch <= newest; ++epoch) {
        tailrace_epoch_info info;
        need(tailrace_epoch_state(session, epoch, &info), "epoch_state", epoch);
        if (info.state == TAILRACE_STATE_FAILED) give_up("failed", epoch, info.why);
        if (info.state == TAILRACE_STATE_KEPT_LOCAL) continue;
        if (info.state != TAILRACE_STATE_COMMITTED) return epoch - 1;
        char run[16];
        snprintf(run, sizeof run, "%u", (unsigned)info.run);
        say("committed", epoch, run);
    }
    return newest;
}

int main(int argc, char** argv) {
    const char* threads = getenv("KILL_LOOP_THREADS");
    const int wanted =
        threads != NULL && strcmp(threads, "funneled") == 0 ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE;
    int provided = 0;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    if (argc != 8 || provided < wanted) MPI_Abort(MPI_COMM_WORLD, 2);
    char path[4096];
    snprintf(path, sizeof path, "%s/said/%s.%d", argv[1], argv[2], rank);
    said = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (said < 0) MPI_Abort(MPI_COMM_WORLD, 2);
    say("pid", (uint64_t)getpid(), "");

    const uint64_t start = strtoull(argv[2], NULL, 10), epochs = strtoull(argv[7], NULL, 10);
    tailrace_session* session = open_session(argv);
    say("opened", 0, "");
    const uint64_t restored = restore(session);
    uint64_t committed = restored;
    for (uint64_t epoch = restored + 1; epochs == 0 || epoch <= restored + epochs; ++epoch) {
        compute(start, epoch);
        need(tailrace_update(session, "state", state, state_bytes(start, epoch)), "update", epoch);
        need(tailrace_save(session, epoch), "save", epoch);
        say_saved(session, epoch);
        memset(state, 0xEE, sizeof state);
        for (int pause = 0; pause < 10; ++pause) { /* computing, so to speak */
            nanosleep(&(struct timespec){0, 2 * 1000 * 1000}, NULL);
            committed = report_committed(session, committed, epoch);
        }
        MPI_Barrier(MPI_COMM_WORLD); /* ranks of a real program do not drift apart either */
    }
    need(tailrace_close(session), "close", 0);
    say("closed", 0, "");
    MPI_Finalize();
    return 0;
}
