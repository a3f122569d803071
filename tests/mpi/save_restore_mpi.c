/* save_restore_mpi.c - sessions with real ranks, saved by one mpirun and restored by another.
 *
 *     mpirun -n R save_restore_mpi save    DIRECTORY RANKS_PER_NODE [funneled]
 *     mpirun -n S save_restore_mpi restore DIRECTORY RANKS_PER_NODE [funneled]
 *
 * Both go through every combination of files (K) and leaders per file below, each in a directory of its own
 * (DIRECTORY/k<K>l<L>), so one start of MPI checks them all. save_restore_test.py runs both and looks at the
 * files. Every rank saves, at each epoch, regions whose size and bytes follow from (epoch, rank):
 *
 *     state      uneven (+-20 %), another size at each epoch
 *     sometimes  1000 bytes, or none
 *     empty      never any
 *     only.<r>   a name that no other rank has, registered anew for each epoch
 *     grid       a piece of a global array
 */
#include "content.h"
#include "tailrace_mpi.h"

enum { rows = 37, columns = 53, first_epoch = 10, epoch_step = 10, epoch_count = 4 };
enum { last_epoch = first_epoch + (epoch_count - 1) * epoch_step };

static const int all_files[] = {1, 2, 3, 8};
static const int all_leaders[] = {1, 2};

static int rank, rank_count;

/* ---- what is saved -------------------------------------------------------------------------------- */

static uint64_t state_bytes(uint64_t epoch, int of_rank) {
    const uint64_t mean = 300 * 1000;
    return mean * (80 + (content_word(epoch, (uint64_t)of_rank) % 41)) / 100;
}
static uint64_t sometimes_bytes(uint64_t epoch, int of_rank) {
    return (epoch / epoch_step + (uint64_t)of_rank) % 2 ? 1000 : 0;
}
static uint64_t only_bytes(uint64_t epoch, int of_rank) {
    return epoch + (uint64_t)of_rank * 4096;
}
static uint64_t seed(uint64_t epoch, int of_rank, int which) {
    return epoch * 1000003 + (uint64_t)of_rank * 101 + (uint64_t)which;
}
static double grid_value(uint64_t epoch, uint64_t row, uint64_t column) {
    return (double)epoch * 1e6 + (double)row * columns + (double)column;
}

/* The piece of a rank: blocks of rows when saved, of columns when restored elsewhere. Uneven, some empty. */
typedef struct piece {
    uint64_t offset[2], shape[2];
} piece;
static piece piece_of(int of_rank, int of_ranks, int by_columns) {
    const uint64_t whole[2] = {rows, columns};
    piece p = {{0, 0}, {rows, columns}};
    const int d = by_columns ? 1 : 0;
    /* Squares of the rank number: rank 0 gets the least. */
    const uint64_t n = (uint64_t)of_ranks * (uint64_t)of_ranks, r = (uint64_t)of_rank;
    p.offset[d] = whole[d] * r * r / n;
    p.shape[d] = whole[d] * (r + 1) * (r + 1) / n - p.offset[d];
    return p;
}
static tailrace_array array_of(const piece* p) {
    static const uint64_t whole[2] = {rows, columns};
    tailrace_array array = {.type = TAILRACE_FLOAT64,
                            .dimensions = 2,
                            .global_shape = whole,
                            .offset = p->offset,
                            .local_shape = p->shape};
    return array;
}
static void fill_piece(double* memory, const piece* p, uint64_t epoch) {
    for (uint64_t i = 0; i < p->shape[0]; ++i)
        for (uint64_t j = 0; j < p->shape[1]; ++j)
            memory[i * p->shape[1] + j] = grid_value(epoch, p->offset[0] + i, p->offset[1] + j);
}
static void require_piece(const double* memory, const piece* p, uint64_t epoch) {
    for (uint64_t i = 0; i < p->shape[0]; ++i)
        for (uint64_t j = 0; j < p->shape[1]; ++j)
            REQUIRE(memory[i * p->shape[1] + j] == grid_value(epoch, p->offset[0] + i, p->offset[1] + j),
                    "epoch %llu, grid[%llu][%llu]", (unsigned long long)epoch,
                    (unsigned long long)(p->offset[0] + i), (unsigned long long)(p->offset[1] + j));
}

/* A rank's memory for everything it registers. */
typedef struct memory {
    unsigned char state[300 * 1000 * 6 / 5 + 8], sometimes[1000], only[64 * 4096];
    double grid[rows * columns];
    char only_name[32];
    piece mine;
} memory;

static void require_region(const void* bytes, uint64_t count, uint64_t epoch, int of_rank, int which) {
    const int64_t wrong = content_wrong_byte(bytes, count, seed(epoch, of_rank, which));
    REQUIRE(wrong < 0, "epoch %llu, rank %d, region %d of %llu bytes differs from byte %lld on",
            (unsigned long long)epoch, of_rank, which, (unsigned long long)count, (long long)wrong);
}

/* Registers (or updates) everything with the sizes it has at `epoch`. */
static void register_all(tailrace_session* session, memory* m, uint64_t epoch, int again) {
    tailrace_code (*const put)(tailrace_session*, const char*, void*, uint64_t) =
        again ? tailrace_update : tailrace_register;
    REQUIRE_OK(put(session, "state", m->state, state_bytes(epoch, rank)));
    REQUIRE_OK(put(session, "sometimes", m->sometimes, sometimes_bytes(epoch, rank)));
    REQUIRE_OK(put(session, "empty", NULL, 0));
    snprintf(m->only_name, sizeof m->only_name, "only.%d", rank);
    if (again) REQUIRE_OK(tailrace_unregister(session, m->only_name));
    REQUIRE_OK(tailrace_register(session, m->only_name, m->only, only_bytes(epoch, rank)));
    m->mine = piece_of(rank, rank_count, 0);
    const tailrace_array array = array_of(&m->mine);
    if (again)
        REQUIRE_OK(tailrace_update_array(session, "grid", m->grid, &array));
    else
        REQUIRE_OK(tailrace_register_array(session, "grid", m->grid, &array));
}
static void fill_all(memory* m, uint64_t epoch) {
    content_fill(m->state, state_bytes(epoch, rank), seed(epoch, rank, 0));
    content_fill(m->sometimes, sometimes_bytes(epoch, rank), seed(epoch, rank, 1));
    content_fill(m->only, only_bytes(epoch, rank), seed(epoch, rank, 2));
    fill_piece(m->grid, &m->mine, epoch);
}
static void require_all(const memory* m, uint64_t epoch) {
    require_region(m->state, state_bytes(epoch, rank), epoch, rank, 0);
    require_region(m->sometimes, sometimes_bytes(epoch, rank), epoch, rank, 1);
    require_region(m->only, only_bytes(epoch, rank), epoch, rank, 2);
    require_piece(m->grid, &m->mine, epoch);
}

/* ---- saving --------------------------------------------------------------------------------------- */

static void save_epochs(tailrace_session* session) {
    memory* m = calloc(1, sizeof *m);
    REQUIRE(m != NULL, "out of memory");
    REQUIRE(tailrace_restore(session, TAILRACE_NEWEST, NULL) == TAILRACE_NOT_FOUND, "a first run");
    tailrace_epoch_info info;
    for (uint64_t epoch = first_epoch; epoch <= last_epoch; epoch += epoch_step) {
        register_all(session, m, epoch, epoch > first_epoch);
        fill_all(m, epoch);
        REQUIRE_OK(tailrace_save(session, epoch));
        memset(m->state, 0xEE, sizeof m->state); /* the memory is the program's again */
        memset(m->grid, 0xEE, sizeof m->grid);
        REQUIRE_OK(tailrace_epoch_state(session, epoch, &info));
        REQUIRE(info.state >= TAILRACE_STATE_CAPTURED && info.state <= TAILRACE_STATE_COMMITTED, "it is %d",
                (int)info.state);
    }
    REQUIRE(tailrace_save(session, last_epoch) != TAILRACE_OK, "an epoch cannot be saved twice");
    REQUIRE_OK(tailrace_wait(session, first_epoch, -1));
    REQUIRE_OK(tailrace_wait_all(session, 60));
    for (uint64_t epoch = first_epoch; epoch <= last_epoch; epoch += epoch_step) {
        REQUIRE_OK(tailrace_epoch_state(session, epoch, &info));
        REQUIRE(info.state == TAILRACE_STATE_COMMITTED, "epoch %llu is %d: %s", (unsigned long long)epoch,
                (int)info.state, info.why);
    }
    free(m);
}

/* ---- restoring ------------------------------------------------------------------------------------ */

/* What the ranks of an epoch saved, whoever they were: rank r here reads those of rank r, r + S, ... */
static void read_what_all_ranks_saved(tailrace_session* session, uint64_t epoch, uint64_t before) {
    memory* m = calloc(1, sizeof *m);
    REQUIRE(m != NULL, "out of memory");
    tailrace_reader* reader = NULL;
    REQUIRE_OK(tailrace_reader_open(session, TAILRACE_NEWEST, before, TAILRACE_VERIFY, &reader));
    REQUIRE(tailrace_reader_epoch(reader) == epoch, "it is %llu, not %llu",
            (unsigned long long)tailrace_reader_epoch(reader), (unsigned long long)epoch);
    for (int of_rank = rank; of_rank < (int)tailrace_reader_rank_count(reader); of_rank += rank_count) {
        tailrace_region_info info;
        size_t count = 0;
        const uint32_t number = (uint32_t)of_rank;
        REQUIRE_OK(tailrace_reader_region_count(reader, number, &count));
        REQUIRE(count == 5, "rank %d has %zu regions", of_rank, count);
        REQUIRE_OK(tailrace_reader_region(reader, number, "state", &info));
        REQUIRE(info.bytes == state_bytes(epoch, of_rank), "%llu bytes", (unsigned long long)info.bytes);
        REQUIRE_OK(tailrace_reader_read(reader, number, "state", m->state, info.bytes));
        require_region(m->state, info.bytes, epoch, of_rank, 0);
        snprintf(m->only_name, sizeof m->only_name, "only.%d", of_rank);
        REQUIRE_OK(tailrace_reader_read(reader, number, m->only_name, m->only, only_bytes(epoch, of_rank)));
        require_region(m->only, only_bytes(epoch, of_rank), epoch, of_rank, 2);
        REQUIRE_OK(tailrace_reader_read(reader, number, "empty", NULL, 0));
        REQUIRE(tailrace_reader_read(reader, number, "only.999", m->only, 1) == TAILRACE_NOT_FOUND,
                "no rank has that");
        REQUIRE(tailrace_reader_read(reader, number, "state", m->state, info.bytes - 1) ==
                    TAILRACE_INVALID_ARGUMENT,
                "the size is another");
    }
    REQUIRE(tailrace_reader_region(reader, tailrace_reader_rank_count(reader), "state",
                                   &(tailrace_region_info){0}) == TAILRACE_NOT_FOUND,
            "there is no such rank");
    /* Boxes that overlap many pieces. */
    for (uint64_t k = 0; k < 6; ++k) {
        piece box;
        box.offset[0] = content_word(1, k) % rows;
        box.offset[1] = content_word(2, k) % columns;
        box.shape[0] = 1 + content_word(3, k) % (rows - box.offset[0]);
        box.shape[1] = 1 + content_word(4, k) % (columns - box.offset[1]);
        REQUIRE_OK(tailrace_reader_read_box(reader, "grid", 2, box.offset, box.shape, m->grid,
                                            box.shape[0] * box.shape[1] * sizeof(double)));
        require_piece(m->grid, &box, epoch);
    }
    tailrace_reader_close(reader);
    free(m);
}

static void restore_grid_in_columns(tailrace_session* session, uint64_t epoch) {
    static double memory_of_piece[rows * columns];
    const piece mine = piece_of(rank, rank_count, 1);
    const tailrace_array array = array_of(&mine);
    REQUIRE_OK(tailrace_register_array(session, "grid", memory_of_piece, &array));
    memset(memory_of_piece, 0xEE, sizeof memory_of_piece);
    const char* const names[] = {"grid"};
    uint64_t restored = 0;
    REQUIRE_OK(tailrace_restore_some(session, epoch, names, 1, &restored));
    REQUIRE(restored == epoch, "it is %llu", (unsigned long long)restored);
    require_piece(memory_of_piece, &mine, epoch);
    REQUIRE_OK(tailrace_unregister(session, "grid"));
}

static void restore_as_saved(tailrace_session* session) {
    memory* m = calloc(1, sizeof *m);
    REQUIRE(m != NULL, "out of memory");
    register_all(session, m, last_epoch, 0);
    uint64_t restored = 0;
    REQUIRE_OK(tailrace_restore(session, TAILRACE_NEWEST, &restored));
    REQUIRE(restored == last_epoch, "it is %llu", (unsigned long long)restored);
    require_all(m, last_epoch);

    memset(m->state, 0, sizeof m->state);
    register_all(session, m, first_epoch, 1);
    REQUIRE_OK(tailrace_restore(session, first_epoch, &restored));
    REQUIRE(restored == first_epoch, "it is %llu", (unsigned long long)restored);
    require_all(m, first_epoch);

    REQUIRE(tailrace_restore(session, 11, &restored) == TAILRACE_INVALID_ARGUMENT, "nobody saved epoch 11");
    for (const char* const* name = (const char* const[]){"state", "sometimes", "empty", "grid", NULL}; *name;
         ++name)
        REQUIRE_OK(tailrace_unregister(session, *name));
    REQUIRE_OK(tailrace_unregister(session, m->only_name));
    free(m);
}

static void restore_epochs(tailrace_session* session) {
    tailrace_epoch_info* epochs = NULL;
    size_t count = 0;
    REQUIRE_OK(tailrace_list(session, &epochs, &count));
    REQUIRE(count == epoch_count, "there are %zu", count);
    for (size_t i = 0; i < count; ++i) {
        REQUIRE(epochs[i].epoch == last_epoch - i * epoch_step, "newest first");
        REQUIRE(epochs[i].in_shared, "epoch %llu was committed", (unsigned long long)epochs[i].epoch);
    }
    tailrace_list_free(epochs);

    tailrace_reader* reader = NULL;
    REQUIRE_OK(tailrace_reader_open(session, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &reader));
    const int as_saved = (int)tailrace_reader_rank_count(reader) == rank_count;
    tailrace_reader_close(reader);
    if (as_saved) restore_as_saved(session);
    restore_grid_in_columns(session, last_epoch);
    restore_grid_in_columns(session, first_epoch);
    read_what_all_ranks_saved(session, last_epoch, TAILRACE_NEWEST);
    read_what_all_ranks_saved(session, last_epoch - epoch_step, last_epoch);
}

int main(int argc, char** argv) {
    int provided = 0;
    const int funneled = argc > 4 && strcmp(argv[4], "funneled") == 0;
    MPI_Init_thread(&argc, &argv, funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    REQUIRE(argc >= 4, "usage: save_restore_mpi save|restore DIRECTORY RANKS_PER_NODE [funneled]");
    REQUIRE(funneled || provided == MPI_THREAD_MULTIPLE, "this MPI library has no MPI_THREAD_MULTIPLE");

    for (size_t f = 0; f < sizeof all_files / sizeof *all_files; ++f) {
        for (size_t l = 0; l < sizeof all_leaders / sizeof *all_leaders; ++l) {
            char directory[2048];
            snprintf(directory, sizeof directory, "%s/k%dl%d", argv[2], all_files[f], all_leaders[l]);
            tailrace_options* options = new_options();
            set_path(options, "shared_dir", directory, "shared");
            set_path(options, "local_dir", directory, "local");
            set_number(options, "files", (uint64_t)all_files[f]);
            set_number(options, "leaders_per_file", (uint64_t)all_leaders[l]);
            set_text(options, "ranks_per_node", argv[3]);
            set_text(options, "buffer_bytes", "256KiB"); /* several chunks per rank */
            set_number(options, "buffers", 3);
            tailrace_session* session = NULL;
            REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
            tailrace_options_free(options);
            REQUIRE(tailrace_rank(session) == rank && tailrace_rank_count(session) == rank_count,
                    "the ranks");
            if (strcmp(argv[1], "save") == 0)
                save_epochs(session);
            else
                restore_epochs(session);
            REQUIRE_OK(tailrace_close(session));
        }
    }
    MPI_Finalize();
    return 0;
}
