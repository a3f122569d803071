/* checkpoint_bench: one program that saves or restores a known amount of memory and prints what it measured,
 * one JSON object a line, from rank 0. bench.py starts it and compares; it draws no conclusions.
 *
 *   checkpoint_bench save    --bytes N --spread PERCENT --epochs E --warm-up W key=value...
 *   checkpoint_bench restore --bytes N --spread PERCENT key=value...
 *   checkpoint_bench layouts --bytes N --epochs E --warm-up W key=value...
 *
 * `layouts` saves in turn a cube of doubles that lies in one block, and one with two ghost cells on every
 * side. key=value are settings of tailrace. The program is built twice: without MPI (rank 0 of 1), and with
 * it (BENCH_WITH_MPI). Every epoch of `save` first copies the same bytes with memcpy into memory that has
 * been touched before, on all ranks at once, and then saves. So the two times are measured right after each
 * other.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, posix_memalign */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "splitmix.h"

#if BENCH_WITH_MPI
#include "tailrace_mpi.h"
#else
#include "tailrace.h"
#endif

/* ---- ranks ---------------------------------------------------------------------------------------- */

static int rank = 0;

#if BENCH_WITH_MPI
static void barrier(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}
static double reduce(double value, MPI_Op operation) {
    double result = value;
    MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
    return result;
}
static double most(double value) {
    return reduce(value, MPI_MAX);
}
static double least(double value) {
    return reduce(value, MPI_MIN);
}
static double sum(double value) {
    return reduce(value, MPI_SUM);
}
#else
static void barrier(void) {}
static double most(double value) {
    return value;
}
static double least(double value) {
    return value;
}
static double sum(double value) {
    return value;
}
#endif

static void give_up(const char* doing) {
    fprintf(stderr, "checkpoint_bench: rank %d: %s: %s\n", rank, doing, tailrace_last_error());
#if BENCH_WITH_MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    exit(1);
}

static void check(tailrace_code code, const char* doing) {
    if (code != TAILRACE_OK) give_up(doing);
}

/* All ranks are on one machine, so they share its clock. */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- data ----------------------------------------------------------------------------------------- */

static uint64_t word_at(uint64_t i, uint64_t epoch) {
    /* One word of each 4 KiB changes from epoch to epoch. That is enough to tell epochs apart, and
     * cheap. */
    return splitmix((uint64_t)rank << 40 ^ i) ^ (i % 512 == 0 ? epoch : 0);
}

static uint64_t rank_words(uint64_t bytes, double spread_percent) {
    const double u = (double)(splitmix((uint64_t)rank + 1) >> 11) / 9007199254740992.0 * 2 - 1;
    return (uint64_t)((double)bytes * (1 + u * spread_percent / 100)) / 8;
}

static void* take_memory(uint64_t bytes) {
    void* memory = NULL;
    if (posix_memalign(&memory, 4096, bytes + 1) != 0) give_up("taking memory");
    memset(memory, 1, bytes); /* touched: nobody pays for new pages later */
    return memory;
}

/* ---- memory of the process ------------------------------------------------------------------------ */

/* Anonymous memory in use, in bytes. Mappings of files in memory, as in the node-local tier, do not
 * count. */
static double anonymous_bytes(void) {
    char line[256];
    double kib = 0;
    FILE* file = fopen("/proc/self/status", "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "RssAnon: %lf", &kib) == 1) break;
    }
    fclose(file);
    return kib * 1024;
}

/* ---- what is measured ----------------------------------------------------------------------------- */

static void save_epochs(tailrace_session* session, uint64_t* data, uint64_t words, uint64_t epochs,
                        uint64_t warm_up, double anonymous_before) {
    char* copy = take_memory(words * 8);
    anonymous_before += (double)(words * 8);
    for (uint64_t epoch = 1; epoch <= warm_up + epochs; ++epoch) {
        for (uint64_t i = 0; i < words; i += 512) data[i] = word_at(i, epoch);

        barrier();
        double start = now();
        memcpy(copy, data, words * 8);
        const double copy_seconds = most(now() - start);

        barrier();
        start = now();
        check(tailrace_save(session, epoch), "saving");
        const double saved = now();
        double agent_bytes = 0;
        tailrace_code code;
        do { /* in naps, to see the agent's memory while it works */
            code = tailrace_wait(session, epoch, 0.05);
            const double taken = anonymous_bytes() - anonymous_before;
            if (taken > agent_bytes) agent_bytes = taken;
        } while (code == TAILRACE_TIMEOUT);
        check(code, "waiting for the flush");
        const double committed = now();

        tailrace_epoch_info info;
        check(tailrace_epoch_state(session, epoch, &info), "asking for the state");
        if (info.state != TAILRACE_STATE_COMMITTED) give_up("an epoch was not committed");
        const double blocked_seconds = most(saved - start);
        /* From the first rank that has saved to the last one that sees the commit. */
        const double flush_seconds = most(committed) - least(saved);
        const double reported_seconds = most(info.flush_seconds);
        const double bytes = sum((double)(words * 8));
        agent_bytes = most(agent_bytes);
        if (rank == 0 && epoch > warm_up) {
            printf("{\"epoch\": %" PRIu64
                   ", \"bytes\": %.0f, \"copy_seconds\": %.6f, \"blocked_seconds\": %.6f, ",
                   epoch, bytes, copy_seconds, blocked_seconds);
            printf("\"flush_seconds\": %.6f, \"reported_flush_seconds\": %.6f, \"agent_bytes\": %.0f, ",
                   flush_seconds, reported_seconds, agent_bytes);
            /* One call each, because a setting's text lives until the next call. */
            printf("\"buffers\": \"%s\", ", tailrace_setting(session, "buffers"));
            printf("\"buffer_bytes\": \"%s\"}\n", tailrace_setting(session, "buffer_bytes"));
            fflush(stdout);
        }
    }
    free(copy);
}

static int restore_newest(tailrace_session* session, const uint64_t* data, uint64_t words) {
    uint64_t epoch = 0, wrong = 0;
    barrier();
    const double start = now();
    check(tailrace_restore(session, TAILRACE_NEWEST, &epoch), "restoring");
    const double seconds = most(now() - start);
    for (uint64_t i = 0; i < words; ++i) wrong += data[i] != word_at(i, epoch);
    const double all_wrong = sum((double)wrong), bytes = sum((double)(words * 8));
    if (rank == 0) {
        printf("{\"epoch\": %" PRIu64 ", \"bytes\": %.0f, \"seconds\": %.6f, \"wrong_words\": %.0f}\n", epoch,
               bytes, seconds, all_wrong);
    }
    return all_wrong == 0 ? 0 : 2;
}

/* Saves the largest cube of doubles that has at most this many bytes. */
static void save_layouts(tailrace_session* session, uint64_t bytes, uint64_t epochs, uint64_t warm_up) {
    const uint64_t ghosts = 2;
    uint64_t edge = 1;
    while ((edge + 1) * (edge + 1) * (edge + 1) * sizeof(double) <= bytes) ++edge;
    const uint64_t around = edge + 2 * ghosts;
    const uint64_t cube_bytes = edge * edge * edge * sizeof(double);
    const uint64_t own[3] = {edge, edge, edge}, ranks[3] = {(uint64_t)sum(1) * edge, edge, edge};
    const uint64_t offset[3] = {(uint64_t)rank * edge, 0, 0};
    const uint64_t memory_shape[3] = {around, around, around}, memory_offset[3] = {ghosts, ghosts, ghosts};
    tailrace_array block = {0};
    block.type = TAILRACE_FLOAT64;
    block.dimensions = 3;
    block.global_shape = ranks;
    block.offset = offset;
    block.local_shape = own;
    tailrace_array inside = block;
    inside.memory_shape = memory_shape;
    inside.memory_offset = memory_offset;
    char* copy = take_memory(cube_bytes);
    char* plain = take_memory(cube_bytes);
    char* with_ghosts = take_memory(around * around * around * sizeof(double));
    check(tailrace_register(session, "cube", NULL, 0), "registering");
    for (uint64_t epoch = 1; epoch <= warm_up + epochs; ++epoch) {
        barrier();
        double start = now();
        memcpy(copy, plain, cube_bytes);
        const double copy_seconds = most(now() - start);
        double seconds[2];
        for (uint64_t way = 0; way < 2; ++way) {
            check(tailrace_update_array(session, "cube", way == 0 ? plain : with_ghosts,
                                        way == 0 ? &block : &inside),
                  "registering the cube");
            barrier();
            start = now();
            check(tailrace_save(session, 2 * epoch + way), "saving");
            seconds[way] = most(now() - start);
            check(tailrace_wait(session, 2 * epoch + way, -1), "waiting");
        }
        if (rank == 0 && epoch > warm_up) {
            printf("{\"edge\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"copy_seconds\": %.6f, ", edge,
                   cube_bytes, copy_seconds);
            printf("\"block_seconds\": %.6f, \"inside_seconds\": %.6f}\n", seconds[0], seconds[1]);
        }
    }
    free(copy);
    free(plain);
    free(with_ghosts);
}

int main(int argc, char** argv) {
#if BENCH_WITH_MPI
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    uint64_t bytes = 64 << 20, epochs = 1, warm_up = 0;
    double spread = 0;
    const char* mode = argc > 1 ? argv[1] : "";
    const int layouts = strcmp(mode, "layouts") == 0;
    if (strcmp(mode, "save") != 0 && strcmp(mode, "restore") != 0 && !layouts) {
        fprintf(
            stderr,
            "usage: checkpoint_bench save|restore|layouts --bytes N --spread PERCENT --epochs E --warm-up W "
            "key=value...\n");
        return 64;
    }
    tailrace_options* options = tailrace_options_new();
    for (int i = 2; i < argc; ++i) {
        const int more = i + 1 < argc;
        if (more && strcmp(argv[i], "--bytes") == 0) {
            bytes = strtoull(argv[++i], NULL, 10);
        } else if (more && strcmp(argv[i], "--spread") == 0) {
            spread = strtod(argv[++i], NULL);
        } else if (more && strcmp(argv[i], "--epochs") == 0) {
            epochs = strtoull(argv[++i], NULL, 10);
        } else if (more && strcmp(argv[i], "--warm-up") == 0) {
            warm_up = strtoull(argv[++i], NULL, 10);
        } else {
            char* equals = strchr(argv[i], '=');
            if (equals == NULL) {
                fprintf(stderr, "checkpoint_bench: \"%s\" is neither an option nor key=value\n", argv[i]);
                return 64;
            }
            *equals = '\0';
            check(tailrace_options_set(options, argv[i], equals + 1), "setting an option");
        }
    }

    const uint64_t words = rank_words(bytes, spread);
    uint64_t* data = take_memory(words * 8);
    const double anonymous_before = anonymous_bytes();
    tailrace_session* session = NULL;
#if BENCH_WITH_MPI
    check(tailrace_open_mpi(MPI_COMM_WORLD, options, &session), "opening the session");
#else
    check(tailrace_open(options, &session), "opening the session");
#endif
    int result = 0;
    if (!layouts) check(tailrace_register(session, "data", data, words * 8), "registering");
    if (layouts) {
        save_layouts(session, bytes, epochs, warm_up);
    } else if (strcmp(mode, "save") == 0) {
        for (uint64_t i = 0; i < words; ++i) data[i] = word_at(i, 0);
        save_epochs(session, data, words, epochs, warm_up, anonymous_before);
    } else {
        result = restore_newest(session, data, words);
    }
    check(tailrace_close(session), "closing the session");
    tailrace_options_free(options);
    free(data);
#if BENCH_WITH_MPI
    MPI_Finalize();
#endif
    return result;
}
