/* A program that was written for VELOC, on the ranks of MPI. tests/mpi/veloc_test.py starts it.
 *
 *     veloc_ranks LEVEL run CONFIG STEPS KILL_AT
 *
 * goes on where it was. Rank 1 kills itself when a step is saved, or with -STEP, when it is captured and not
 * ended (0: never).
 *
 *     veloc_ranks LEVEL files CONFIG STEPS KILL_AT
 *
 * does the same with a file of the program's own.
 *
 *     veloc_ranks LEVEL drop CONFIG
 *     veloc_ranks LEVEL drop_files CONFIG
 *
 * One rank drops a version, and one has nothing to save.
 *
 *     veloc_ranks LEVEL refused CONFIG OTHER
 *
 * Rank 1 has another configuration: nobody begins.
 *
 * LEVEL is `multiple` or `single`, the thread level of MPI. Whatever is not as it should be ends the program.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/veloc.h"

static int rank, ranks;

static void expect(int good, const char* what) {
    if (good) return;
    printf("rank %d: not as it should be: %s\n", rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define OK(call) expect((call) == VELOC_SUCCESS, #call)
#define FAILS(call) expect((call) == VELOC_FAILURE, #call)

/* What a rank has at a step: a list that grows, differently on each rank. */
static int length_at(int step) {
    return 1000 * (rank + 1) + 37 * step;
}
static int value_at(int step, int i) {
    return step * 1000003 + rank * 7919 + i;
}

static int* list_of(int step) {
    int* list = malloc((size_t)length_at(step) * sizeof *list);
    for (int i = 0; i < length_at(step); ++i) list[i] = value_at(step, i);
    return list;
}

/* Sizes are learnt first: the step, then as much memory as the list has. */
static int* restored(const char* name, int version, int* step) {
    int step_id[] = {0};
    OK(VELOC_Restart_begin(name, version));
    OK(VELOC_Mem_protect(0, step, 1, sizeof *step));
    OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, step_id, 1));
    expect(*step == version, "the step is the version");
    const int bytes = VELOC_Recover_size(1);
    expect(bytes == (int)sizeof(int) * length_at(*step), "the list has the size of that step");
    int* list = malloc((size_t)bytes);
    OK(VELOC_Mem_protect(1, list, (size_t)bytes / sizeof(int), sizeof(int)));
    OK(VELOC_Recover_selective(VELOC_RECOVER_REST, step_id, 1));
    OK(VELOC_Restart_end(1));
    for (int i = 0; i < length_at(*step); ++i) expect(list[i] == value_at(*step, i), "the list's values");
    return list;
}

static void run(const char* config, int steps, int kill_at) {
    int step = 0;
    int* list = NULL;
    OK(VELOC_Init(MPI_COMM_WORLD, config));
    const int version = VELOC_Restart_test("list", 0);
    if (version > 0) list = restored("list", version, &step);
    if (rank == 0) printf("from %d\n", step);
    fflush(stdout);
    while (step < steps) {
        ++step;
        free(list);
        list = list_of(step);
        if (step % 5 != 0) continue;
        OK(VELOC_Mem_protect(0, &step, 1, sizeof step));
        OK(VELOC_Mem_protect(1, list, (size_t)length_at(step), sizeof(int)));
        if (step == -kill_at) {
            OK(VELOC_Checkpoint_begin("list", step));
            OK(VELOC_Checkpoint_mem());
        } else {
            OK(VELOC_Checkpoint("list", step));
        }
        if (step != abs(kill_at)) continue;
        if (kill_at > 0) OK(VELOC_Checkpoint_wait());
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) raise(SIGKILL);
        for (;;) pause();
    }
    while (VELOC_Checkpoint_finished() != VELOC_SUCCESS) {
    }
    expect(VELOC_Restart_test("list", 0) == steps / 5 * 5, "the newest version");
    OK(VELOC_Cleanup("list"));
    OK(VELOC_Finalize(1));
    FAILS(VELOC_Checkpoint_wait());
    FAILS(VELOC_Finalize(1));
    free(list);
    if (rank == 0) printf("to %d\n", step);
}

/* A version that one rank does not save fails on the others as well, and none waits for it. */
static void drop(const char* config) {
    int value = rank, nothing[] = {9};
    const int is_odd_one = rank == ranks - 1;
    OK(VELOC_Init(MPI_COMM_WORLD, config));
    OK(VELOC_Mem_protect(0, &value, 1, sizeof value));
    OK(VELOC_Checkpoint("value", 1));

    OK(VELOC_Checkpoint_begin("value", 2));
    OK(VELOC_Checkpoint_mem());
    OK(VELOC_Checkpoint_end(!is_odd_one));
    expect(VELOC_Checkpoint_wait() == (is_odd_one ? VELOC_SUCCESS : VELOC_FAILURE), "who has lost version 2");
    OK(VELOC_Checkpoint_wait());
    expect(VELOC_Restart_test("value", 0) == 1, "2 was dropped");

    OK(VELOC_Checkpoint_begin("value", 3));
    if (is_odd_one)
        FAILS(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, nothing, 1));
    else
        OK(VELOC_Checkpoint_mem());
    expect(VELOC_Checkpoint_end(1) == (is_odd_one ? VELOC_FAILURE : VELOC_SUCCESS),
           "who has saved version 3");
    expect(VELOC_Checkpoint_wait() == (is_odd_one ? VELOC_SUCCESS : VELOC_FAILURE), "who has lost version 3");

    value += 100;
    OK(VELOC_Checkpoint("value", 4));
    OK(VELOC_Checkpoint("other", 0));
    OK(VELOC_Checkpoint_wait());
    expect(VELOC_Restart_test("value", 0) == 4, "4 is there");
    expect(VELOC_Restart_test("other", 0) == 0, "and so is 0 of another name");
    OK(VELOC_Restart("value", 1));
    expect(value == rank, "1 came back");
    OK(VELOC_Checkpoint("value", 2)); /* goes back: a new run */
    OK(VELOC_Checkpoint_wait());
    expect(VELOC_Restart_test("value", 0) == 2, "the program has reached 2 last");
    FAILS(VELOC_Restart_begin("value", 77));

    /* One rank ends without ending its checkpoint: the others have lost it, and do not wait. */
    OK(VELOC_Checkpoint_begin("value", 5));
    OK(VELOC_Checkpoint_mem());
    if (!is_odd_one) OK(VELOC_Checkpoint_end(1));
    expect(VELOC_Finalize(0) == (is_odd_one ? VELOC_SUCCESS : VELOC_FAILURE), "who has lost version 5");
}

static void write_file(int step) {
    char path[VELOC_MAX_NAME];
    int* list = list_of(step);
    OK(VELOC_Route_file("list.dat", path));
    FILE* file = fopen(path, "wb");
    expect(file != NULL, "the routed file can be written");
    expect(fwrite(list, sizeof *list, (size_t)length_at(step), file) == (size_t)length_at(step), "writing");
    fclose(file);
    free(list);
}

static void read_file(const char* name, int step) {
    char path[VELOC_MAX_NAME];
    OK(VELOC_Restart_begin(name, step));
    OK(VELOC_Route_file("another name", path));
    FILE* file = fopen(path, "rb");
    expect(file != NULL, "the file is back");
    for (int i = 0, value = 0; i < length_at(step); ++i)
        expect(fread(&value, sizeof value, 1, file) == 1 && value == value_at(step, i), "the file's values");
    expect(fgetc(file) == EOF, "the end of the file");
    fclose(file);
    OK(VELOC_Restart_end(1));
    expect(access(path, F_OK) != 0, "the file has gone");
}

static void run_files(const char* config, int steps, int kill_at) {
    OK(VELOC_Init(MPI_COMM_WORLD, config));
    const int version = VELOC_Restart_test("list", 0);
    if (version > 0) read_file("list", version);
    if (rank == 0) printf("from %d\n", version);
    fflush(stdout);
    for (int step = version > 0 ? version + 5 : 5; step <= steps; step += 5) {
        OK(VELOC_Checkpoint_wait());
        OK(VELOC_Checkpoint_begin("list", step));
        write_file(step);
        if (step != -kill_at) OK(VELOC_Checkpoint_end(1));
        if (step != abs(kill_at)) continue;
        if (kill_at > 0) OK(VELOC_Checkpoint_wait());
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) raise(SIGKILL);
        for (;;) pause();
    }
    OK(VELOC_Checkpoint_wait());
    expect(VELOC_Restart_test("list", 0) == steps, "the newest version");
    OK(VELOC_Finalize(1));
    if (rank == 0) printf("to %d\n", steps);
}

/* What one rank does with its file decides about the version of all. */
static void drop_files(const char* config) {
    char path[VELOC_MAX_NAME];
    const int is_odd_one = rank == ranks - 1, good = is_odd_one ? VELOC_FAILURE : VELOC_SUCCESS,
              bad = is_odd_one ? VELOC_SUCCESS : VELOC_FAILURE;
    int value = rank;
    OK(VELOC_Init(MPI_COMM_WORLD, config));
    OK(VELOC_Mem_protect(0, &value, 1, sizeof value));
    OK(VELOC_Checkpoint_begin("n", 1));
    write_file(1);
    OK(VELOC_Checkpoint_end(1));

    OK(VELOC_Checkpoint_begin("n", 2));
    write_file(2);
    OK(VELOC_Checkpoint_end(!is_odd_one));
    expect(VELOC_Checkpoint_wait() == bad, "who has lost version 2");
    expect(VELOC_Restart_test("n", 0) == 1, "2 was dropped");

    OK(VELOC_Checkpoint_begin("n", 3));
    write_file(3);
    if (is_odd_one) FAILS(VELOC_Checkpoint_mem());
    expect(VELOC_Checkpoint_end(1) == good, "who has saved version 3");
    expect(VELOC_Checkpoint_wait() == bad, "who has lost version 3");

    OK(VELOC_Checkpoint_begin("n", 4));
    OK(VELOC_Route_file("f", path));
    if (!is_odd_one) write_file(4);
    expect(VELOC_Checkpoint_end(1) == good, "who has written version 4");
    expect(VELOC_Checkpoint_wait() == bad, "who has lost version 4");

    /* One rank has memory, and the others have files. */
    OK(VELOC_Checkpoint_begin("n", 5));
    if (is_odd_one)
        OK(VELOC_Checkpoint_mem());
    else
        write_file(5);
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_wait());
    expect(VELOC_Restart_test("n", 0) == 5, "5 is there");
    value += 100;
    if (is_odd_one) {
        OK(VELOC_Restart_begin("n", 5));
        FAILS(VELOC_Route_file("f", path));
        OK(VELOC_Recover_mem());
        OK(VELOC_Restart_end(1));
        expect(value == rank, "the memory came back");
    } else {
        read_file("n", 5);
    }
    read_file("n", 1);

    OK(VELOC_Checkpoint_begin("n", 2)); /* goes back: a new run */
    write_file(2);
    OK(VELOC_Checkpoint_end(1));
    OK(VELOC_Checkpoint_wait());
    read_file("n", 2);

    OK(VELOC_Checkpoint_begin("n", 6));
    write_file(6);
    if (!is_odd_one) OK(VELOC_Checkpoint_end(1));
    expect(VELOC_Finalize(0) == bad, "who has lost version 6");
}

static void refused(const char* config, const char* other) {
    FAILS(VELOC_Init(MPI_COMM_WORLD, rank == 1 ? other : config));
    FAILS(VELOC_Checkpoint("value", 1));
    FAILS(VELOC_Restart_test("value", 0));
    if (rank == 1) setenv("VELOC_PERSISTENT", "", 1);
    FAILS(VELOC_Init(MPI_COMM_WORLD, config));
    unsetenv("VELOC_PERSISTENT");
    if (rank == 0) setenv("VELOC_MODE", "sync", 1);
    FAILS(VELOC_Init(MPI_COMM_WORLD, config));
    unsetenv("VELOC_MODE");
    OK(VELOC_Init(MPI_COMM_WORLD, config));
    OK(VELOC_Finalize(1));
}

int main(int argc, char** argv) {
    int provided = 0;
    const char* const scenario = argc > 2 ? argv[2] : "";
    MPI_Init_thread(&argc, &argv, strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 6 && strcmp(scenario, "run") == 0)
        run(argv[3], atoi(argv[4]), atoi(argv[5]));
    else if (argc == 6 && strcmp(scenario, "files") == 0)
        run_files(argv[3], atoi(argv[4]), atoi(argv[5]));
    else if (argc == 4 && strcmp(scenario, "drop") == 0)
        drop(argv[3]);
    else if (argc == 4 && strcmp(scenario, "drop_files") == 0)
        drop_files(argv[3]);
    else if (argc == 5 && strcmp(scenario, "refused") == 0)
        refused(argv[3], argv[4]);
    else
        expect(0, "the arguments");
    MPI_Finalize();
    if (rank == 0) printf("%s: all is as it should be\n", scenario);
    return 0;
}
