/* files_mpi.c - ranks that write their own files, saved by one mpirun, which is killed, and restored by
 * others.
 *
 *     mpirun -n R files_mpi save    DIRECTORY RANKS_PER_NODE [funneled]
 *     mpirun -n S files_mpi restore DIRECTORY RANKS_PER_NODE [funneled]
 *
 * `save` saves three epochs. Then every rank begins the next one's files, writes some of them, makes the file
 * DIRECTORY/ready.RANK, and waits to be killed. Files differ in number, names, sizes and rights from epoch to
 * epoch and from rank to rank; they follow from (epoch, rank). Memory is saved beside them.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "content.h"
#include "tailrace_mpi.h"

enum { epochs = 3, most_files = 5, most_bytes = 3 * 1000 * 1000 };

static int rank, rank_count;
static unsigned char bytes_of_file[most_bytes];

/* ---- what a rank writes --------------------------------------------------------------------------- */

static uint64_t chance(uint64_t epoch, int of_rank, int file, uint64_t what) {
    return content_word(epoch * 1009 + (uint64_t)of_rank * 31 + (uint64_t)file, what);
}
static int file_count(uint64_t epoch, int of_rank) {
    return (int)((epoch + (uint64_t)of_rank) % most_files); /* some rank has none */
}
static uint64_t file_bytes(uint64_t epoch, int of_rank, int file) {
    static const uint64_t most[] = {1, 1000, most_bytes};
    return chance(epoch, of_rank, file, 1) % most[chance(epoch, of_rank, file, 2) % 3];
}
static mode_t file_rights(uint64_t epoch, int of_rank, int file) {
    return (mode_t)(0400 | chance(epoch, of_rank, file, 3) % 01000);
}
static uint64_t file_seed(uint64_t epoch, int of_rank, int file) {
    return chance(epoch, of_rank, file, 4);
}
/* Names of even files are used by all ranks. */
static void file_name(int of_rank, int file, char* name, size_t size) {
    if (file % 2)
        snprintf(name, size, "own/%d/file %d", of_rank, file);
    else
        snprintf(name, size, "all.%d", file);
}

static void write_file(tailrace_session* session, uint64_t epoch, int file) {
    char name[100], path[TAILRACE_MAX_PATH_BYTES];
    file_name(rank, file, name, sizeof name);
    REQUIRE_OK(tailrace_files_route(session, name, path, sizeof path));
    const uint64_t bytes = file_bytes(epoch, rank, file);
    content_fill(bytes_of_file, bytes, file_seed(epoch, rank, file));
    FILE* out = fopen(path, "wb");
    REQUIRE(out != NULL && fwrite(bytes_of_file, 1, bytes, out) == bytes && fclose(out) == 0, "writing %s",
            path);
    REQUIRE(chmod(path, file_rights(epoch, rank, file)) == 0, "chmod of %s", path);
}

static void require_file(tailrace_session* session, uint64_t epoch, uint32_t of_rank, int whose, int file) {
    char name[100], path[TAILRACE_MAX_PATH_BYTES];
    file_name(whose, file, name, sizeof name);
    REQUIRE_OK(tailrace_files_find(session, of_rank, name, path, sizeof path));
    const uint64_t bytes = file_bytes(epoch, whose, file);
    struct stat info;
    REQUIRE(stat(path, &info) == 0 && (uint64_t)info.st_size == bytes, "%s of rank %d", name, whose);
    REQUIRE((info.st_mode & 07777) == file_rights(epoch, whose, file), "%s of rank %d: %o", name, whose,
            info.st_mode);
    FILE* in = fopen(path, "rb");
    REQUIRE(in != NULL && fread(bytes_of_file, 1, sizeof bytes_of_file, in) == bytes && fclose(in) == 0,
            "reading %s", path);
    REQUIRE(content_wrong_byte(bytes_of_file, bytes, file_seed(epoch, whose, file)) < 0,
            "bytes of %s of rank %d, epoch %llu", name, whose, (unsigned long long)epoch);
}

/* ---- saving --------------------------------------------------------------------------------------- */

static void begin(tailrace_session* session, uint64_t epoch, int files) {
    REQUIRE_OK(tailrace_files_begin(session));
    for (int file = 0; file < files; ++file) write_file(session, epoch, file);
}

static void save_epochs(tailrace_session* session, const char* directory) {
    uint64_t state = 0;
    REQUIRE_OK(tailrace_register(session, "state", &state, sizeof state));
    for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        state = epoch * 100 + (uint64_t)rank;
        begin(session, epoch, file_count(epoch, rank));
        REQUIRE_OK(tailrace_files_save(session, epoch, 1));
    }
    REQUIRE_OK(tailrace_wait_all(session, 60));
    begin(session, epochs + 1, 1);
    char path[4200];
    snprintf(path, sizeof path, "%s/ready.%d", directory, rank);
    FILE* ready = fopen(path, "w");
    REQUIRE(ready != NULL && fclose(ready) == 0, "making %s", path);
    for (;;) pause();
}

/* ---- restoring ------------------------------------------------------------------------------------ */

static void require_files_of(tailrace_session* session, uint64_t epoch, int whose) {
    size_t count = 0;
    REQUIRE_OK(tailrace_files_count(session, (uint32_t)whose, &count));
    REQUIRE((int)count == file_count(epoch, whose), "rank %d has %zu files", whose, count);
    for (int file = 0; file < (int)count; ++file) {
        tailrace_files_info info;
        char name[100];
        REQUIRE_OK(tailrace_files_at(session, (uint32_t)whose, (size_t)file, &info));
        file_name(whose, file, name, sizeof name);
        REQUIRE(strcmp(info.name, name) == 0 && info.bytes == file_bytes(epoch, whose, file) &&
                    info.rights == file_rights(epoch, whose, file),
                "it is %s", info.name);
        require_file(session, epoch, (uint32_t)whose, whose, file);
        /* A name of its own needs no rank. */
        if (file % 2) require_file(session, epoch, TAILRACE_ANY_RANK, whose, file);
    }
}

static void restore_epochs(tailrace_session* session) {
    tailrace_reader* reader = NULL;
    REQUIRE_OK(tailrace_reader_open(session, TAILRACE_NEWEST, TAILRACE_NEWEST, 0, &reader));
    const int saved_by = (int)tailrace_reader_rank_count(reader);
    tailrace_reader_close(reader);
    uint64_t state = 0, restored = 0;
    if (saved_by == rank_count) REQUIRE_OK(tailrace_register(session, "state", &state, sizeof state));
    for (uint64_t epoch = epochs; epoch > 0; --epoch) {
        REQUIRE_OK(tailrace_files_restore(session, epoch == epochs ? TAILRACE_NEWEST : epoch,
                                          TAILRACE_FILES_OF_ALL_RANKS, &restored));
        REQUIRE(restored == epoch, "it is %llu", (unsigned long long)restored);
        REQUIRE(saved_by != rank_count || state == epoch * 100 + (uint64_t)rank, "the memory");
        for (int whose = 0; whose < saved_by; ++whose) require_files_of(session, epoch, whose);
    }
    if (saved_by != rank_count) return;
    REQUIRE_OK(tailrace_files_restore(session, TAILRACE_NEWEST, 0, &restored)); /* from this node's tier */
    require_files_of(session, restored, rank);
    REQUIRE_OK(tailrace_files_release(session));
}

int main(int argc, char** argv) {
    int provided = 0;
    const int funneled = argc > 4 && strcmp(argv[4], "funneled") == 0;
    MPI_Init_thread(&argc, &argv, funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    REQUIRE(argc >= 4, "usage: files_mpi save|restore DIRECTORY RANKS_PER_NODE [funneled]");

    tailrace_options* options = new_options();
    set_path(options, "shared_dir", argv[2], "shared");
    set_path(options, "local_dir", argv[2], "local");
    set_text(options, "ranks_per_node", argv[3]);
    set_number(options, "files", 2);
    set_number(options, "keep_local", 2);
    set_text(options, "buffer_bytes", "256KiB");
    tailrace_session* session = NULL;
    REQUIRE_OK(tailrace_open_mpi(MPI_COMM_WORLD, options, &session));
    tailrace_options_free(options);
    if (strcmp(argv[1], "save") == 0)
        save_epochs(session, argv[2]);
    else
        restore_epochs(session);
    REQUIRE_OK(tailrace_close(session));
    MPI_Finalize();
    return 0;
}
