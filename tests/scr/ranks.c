/* A program that was written for SCR, on the ranks of MPI. tests/mpi/scr_test.py starts it, with SCR's keys
 * in the environment, SCR_PREFIX among them.
 *
 *     scr_ranks LEVEL run STEPS KILL_AT
 *
 * goes on where it was. The last rank kills itself when a step is saved, or with -STEP, when its files are
 * written and the dataset is not completed (0: never).
 *
 *     scr_ranks LEVEL odd
 *
 * One rank does otherwise than the others: it drops a dataset, does not write a file, cannot read a
 * checkpoint.
 *
 *     scr_ranks LEVEL shared WORKS
 *
 * All ranks write one file. WORKS is 1 if that is to succeed.
 *
 *     scr_ranks LEVEL others RANKS STEP
 *
 * Each rank reads the files of all ranks that have saved.
 *
 *     scr_ranks LEVEL outputs LAST KILLED
 *
 * Has an output beside each of its LAST checkpoints. The last rank kills itself if KILLED is 1. Otherwise the
 * outputs' files lie under their names at the end.
 *
 *     scr_ranks LEVEL halted
 *
 * Runs until it is asked to stop.
 *
 *     scr_ranks LEVEL calls
 *
 * Calls before SCR_Init, after SCR_Finalize, and with arguments that make no sense.
 *
 *     scr_ranks LEVEL refused
 *
 * Rank 1 has another configuration: nobody begins.
 *
 * LEVEL is `multiple` or `single`, the thread level of MPI. Whatever is not as it should be ends the program.
 */
#include <mpi.h>
#include <scr.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

static void expect(int good, const char* what) {
    if (good) return;
    printf("rank %d: not as it should be: %s\n", rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define OK(call) expect((call) == SCR_SUCCESS, #call)
#define FAILS(call) expect((call) != SCR_SUCCESS, #call)

/* ---- files: rank r has r % 3 + 1 of them in a step --------------------------------------------------- */

static int files_of(int of_rank) {
    return of_rank % 3 + 1;
}
static int length_at(int step, int of_rank, int number) {
    return 1000 * (of_rank + 1) + 37 * step + number;
}
static int value_at(int step, int of_rank, int number, int i) {
    return step * 1000003 + of_rank * 7919 + number * 101 + i;
}
static void name_of(char* name, size_t room, int step, int of_rank, int number) {
    const char* prefix = getenv("SCR_PREFIX");
    snprintf(name, room, "%s/step_%d/rank_%d/part.%d", prefix == NULL ? "." : prefix, step, of_rank, number);
}

static int write_one(int step, int number) {
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    name_of(name, sizeof name, step, rank, number);
    OK(SCR_Route_file(name, path));
    FILE* file = fopen(path, "wb");
    if (file == NULL) return 0;
    int good = 1;
    for (int i = 0; i < length_at(step, rank, number); ++i) {
        const int value = value_at(step, rank, number, i);
        good = good && fwrite(&value, sizeof value, 1, file) == 1;
    }
    return fclose(file) == 0 && good;
}

static int write_all(int step) {
    int good = 1;
    for (int number = 0; number < files_of(rank); ++number) good = write_one(step, number) && good;
    return good;
}

static int is_right(const char* path, int step, int of_rank, int number) {
    FILE* file = fopen(path, "rb");
    if (file == NULL) return 0;
    int good = 1;
    for (int i = 0, value = 0; good && i < length_at(step, of_rank, number); ++i)
        good = fread(&value, sizeof value, 1, file) == 1 && value == value_at(step, of_rank, number, i);
    good = good && fgetc(file) == EOF;
    fclose(file);
    return good;
}

static int read_all(int step, int of_rank) {
    int good = 1;
    for (int number = 0; number < files_of(of_rank); ++number) {
        char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
        name_of(name, sizeof name, step, of_rank, number);
        good = SCR_Route_file(name, path) == SCR_SUCCESS && is_right(path, step, of_rank, number) && good;
    }
    return good;
}

/* ---- datasets ---------------------------------------------------------------------------------------- */

static void start(int step) {
    char name[64];
    snprintf(name, sizeof name, "step_%d", step);
    OK(SCR_Start_output(name, SCR_FLAG_CHECKPOINT | (step % 2 == 0 ? SCR_FLAG_OUTPUT : 0)));
}

static void save(int step) {
    start(step);
    expect(write_all(step), "the files can be written");
    OK(SCR_Complete_output(1));
}

/* The step of the checkpoint that is offered; 0 if there is none. */
static int offered(void) {
    char name[SCR_MAX_FILENAME] = "";
    int flag = -1, step = 0;
    OK(SCR_Have_restart(&flag, name));
    if (!flag) return 0;
    expect(sscanf(name, "step_%d", &step) == 1, "the name of the checkpoint");
    return step;
}

static int restarted(void) {
    char name[SCR_MAX_FILENAME] = "";
    const int step = offered();
    if (step == 0) return 0;
    OK(SCR_Start_restart(name));
    expect(read_all(step, rank), "the files of the checkpoint");
    OK(SCR_Complete_restart(1));
    return step;
}

static void die(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1) raise(SIGKILL);
    for (;;) pause();
}

static void run(int steps, int kill_at) {
    OK(SCR_Init());
    int step = restarted();
    if (rank == 0) printf("from %d\n", step);
    fflush(stdout);
    for (;;) {
        int stop = -1, needed = -1;
        OK(SCR_Should_exit(&stop));
        expect(stop == 0, "no reason to stop");
        if (step == steps) break;
        ++step;
        OK(SCR_Need_checkpoint(&needed));
        expect(needed == (step % 5 == 0), "SCR_CHECKPOINT_INTERVAL is 5");
        if (!needed) continue;
        start(step);
        expect(write_all(step), "the files can be written");
        if (step == -kill_at) die();
        OK(SCR_Complete_output(1));
        if (step == kill_at) die();
    }
    OK(SCR_Finalize());
    if (rank == 0) printf("to %d\n", step);
}

static void odd(void) {
    const int is_odd_one = rank == ranks - 1;
    char path[SCR_MAX_FILENAME], name[SCR_MAX_FILENAME];
    OK(SCR_Init());
    for (int step = 1; step <= 3; ++step) save(step);

    start(4); /* one rank's data are not valid */
    write_all(4);
    FAILS(SCR_Complete_output(!is_odd_one));
    start(4); /* one rank does not write its file */
    if (!is_odd_one) write_all(4);
    name_of(name, sizeof name, 4, rank, 9);
    if (is_odd_one) OK(SCR_Route_file(name, path));
    FAILS(SCR_Complete_output(1));
    start(4); /* one rank's file is outside of the prefix */
    write_all(4);
    if (is_odd_one) FAILS(SCR_Route_file("/elsewhere", path));
    FAILS(SCR_Complete_output(1));
    FAILS(SCR_Start_output(is_odd_one ? "step_4" : "step_5", 0)); /* another name */
    save(5);

    expect(offered() == 5, "5 is the newest");
    OK(SCR_Start_restart(name));
    expect(strcmp(name, "step_5") == 0, "SCR_Start_restart tells the name");
    FAILS(SCR_Complete_restart(!is_odd_one));
    expect(restarted() == 3, "3 is next, because 4 does not exist");
    OK(SCR_Delete("step_3"));
    expect(restarted() == 2, "and 2 after it");
    OK(SCR_Current("step_1"));
    expect(restarted() == 1, "1 is current");
    OK(SCR_Drop("step_1"));
    expect(restarted() == 2, "1 was dropped");
    save(2); /* again */
    expect(restarted() == 2, "2 is there again");

    start(6);
    write_all(6);
    FAILS(SCR_Finalize());
}

static void shared(int works) {
    char name[SCR_MAX_FILENAME], path[SCR_MAX_FILENAME];
    int flag = -1;
    OK(SCR_Init());
    OK(SCR_Start_output("all", SCR_FLAG_CHECKPOINT));
    snprintf(name, sizeof name, "%s/all/data", getenv("SCR_PREFIX"));
    OK(SCR_Route_file(name, path));
    if (rank == 0) fclose(fopen(path, "wb"));
    MPI_Barrier(MPI_COMM_WORLD);
    /* Where it is no file of all, each rank makes one, and nothing but the library can know that. */
    FILE* file = fopen(path, works ? "r+b" : "wb");
    const int valid = file != NULL && fseek(file, rank * (long)sizeof rank, SEEK_SET) == 0 &&
                      fwrite(&rank, sizeof rank, 1, file) == 1;
    if (file != NULL) fclose(file);
    expect((SCR_Complete_output(valid) == SCR_SUCCESS) == works, "whether ranks may share a file");
    OK(SCR_Have_restart(&flag, NULL));
    expect(flag == works, "whether it is there");
    if (works) {
        int value = -1;
        OK(SCR_Start_restart(NULL));
        OK(SCR_Route_file(name, path));
        file = fopen(path, "rb");
        for (int i = 0; i < ranks; ++i)
            expect(fread(&value, sizeof value, 1, file) == 1 && value == i, "its data");
        fclose(file);
        OK(SCR_Complete_restart(1));
    }
    OK(SCR_Finalize());
}

static void others(int saved_ranks, int step) {
    char name[SCR_MAX_FILENAME];
    OK(SCR_Init());
    expect(offered() == step, "the checkpoint of other ranks");
    OK(SCR_Start_restart(name));
    for (int of_rank = 0; of_rank < saved_ranks; ++of_rank)
        expect(read_all(step, of_rank), "the files of every rank");
    OK(SCR_Complete_restart(1));
    save(step + 1);
    expect(restarted() == step + 1, "the checkpoint of these ranks");
    snprintf(name, sizeof name, "step_%d", step);
    OK(SCR_Delete(name));
    MPI_Barrier(MPI_COMM_WORLD);
    name_of(name, sizeof name, step, 0, 0);
    *strrchr(name, '/') = '\0';
    *strrchr(name, '/') = '\0';
    expect(access(name, F_OK) != 0, "the files of all ranks are gone");
    OK(SCR_Finalize());
}

static void outputs(int last, int killed) {
    char name[64];
    const int first_step = 101; /* of the outputs, whose files lie in directories of their own */
    OK(SCR_Init());
    for (int i = 0; i < last; ++i) {
        save(i + 1);
        snprintf(name, sizeof name, "picture_%d", i + 1);
        OK(SCR_Start_output(name, SCR_FLAG_OUTPUT));
        expect(write_all(first_step + i), "the files can be written");
        OK(SCR_Complete_output(1));
    }
    if (killed) die();
    expect(restarted() == last, "the newest checkpoint, and no output");
    OK(SCR_Finalize());
    for (int i = 0; i < last; ++i)
        expect(read_all(first_step + i, rank), "without SCR, the files have the names that were given");
}

static void halted(void) {
    int stop = 0, needed = 0;
    OK(SCR_Init());
    for (int step = 0; step < 3000 && !stop; ++step) {
        usleep(10000);
        OK(SCR_Should_exit(&stop));
        OK(SCR_Need_checkpoint(&needed));
        expect(needed || !stop, "a checkpoint is needed before the end");
    }
    expect(stop, "the order has come");
    save(7);
    OK(SCR_Finalize());
}

static void config_is(const char* line, const char* expected) {
    const char* value = SCR_Config(line);
    expect(expected == NULL ? value == NULL : value != NULL && strcmp(value, expected) == 0, line);
    free((void*)value);
}

static void calls(void) {
    char text[SCR_MAX_FILENAME], longest[SCR_MAX_FILENAME + 1];
    int flag = -1;
    expect(strcmp(SCR_Get_version(), "v3.1.0") == 0, "the version");
    FAILS(SCR_Finalize());
    FAILS(SCR_Start_checkpoint());
    FAILS(SCR_Have_restart(&flag, text));
    OK(SCR_Route_file("name", text));
    expect(strcmp(text, "name") == 0, "a name that stays as it is");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    FAILS(SCR_Route_file(longest, text));
    FAILS(SCR_Route_file("", text));
    FAILS(SCR_Route_file(NULL, text));
    FAILS(SCR_Route_file("name", NULL));
    config_is("SCR_CHECKPOINT_INTERVAL=2", NULL);
    expect(SCR_Configf("SCR_%s=%d", "DEBUG", 1) == NULL, "SCR_Configf sets");
    config_is("SCR_DEBUG", "1");
    config_is("SCR_CACHE_SIZE", NULL);
    config_is("A B", NULL);
    config_is("", NULL);
    config_is(NULL, NULL);
    OK(SCR_Init());
    FAILS(SCR_Init());
    config_is("SCR_DEBUG=2", NULL);
    config_is("SCR_DEBUG", "1");
    FAILS(SCR_Have_restart(NULL, text));
    FAILS(SCR_Need_checkpoint(NULL));
    FAILS(SCR_Should_exit(NULL));
    FAILS(SCR_Current(NULL));
    FAILS(SCR_Drop(NULL));
    FAILS(SCR_Delete(NULL));
    FAILS(SCR_Start_output("x", -1));
    OK(SCR_Start_output(NULL, SCR_FLAG_OUTPUT));
    FAILS(SCR_Start_checkpoint());
    OK(SCR_Complete_output(1));
    OK(SCR_Start_checkpoint());
    FAILS(SCR_Complete_output(1));
    OK(SCR_Complete_checkpoint(1));
    OK(SCR_Have_restart(&flag, text));
    expect(flag == 1 && strncmp(text, "scr.dataset.", 12) == 0, "a name that SCR gives");
    for (int i = 1; i <= 4; ++i) {
        OK(SCR_Need_checkpoint(&flag));
        expect(flag == (i % 2 == 0), "the interval that SCR_Config has set");
    }
    OK(SCR_Finalize());
    FAILS(SCR_Finalize());
    config_is("SCR_DEBUG", NULL);
    OK(SCR_Init());
    OK(SCR_Have_restart(&flag, text));
    expect(flag == 1, "the checkpoint of the session before");
    OK(SCR_Start_checkpoint());
    OK(SCR_Complete_checkpoint(1));
    /* MPI_Finalize closes this session, which flushes it. */
}

static void refused(void) {
    int flag = -1;
    if (rank == 1) setenv("SCR_CACHE_BYPASS", "0", 1);
    FAILS(SCR_Init());
    if (rank == 1) setenv("SCR_CACHE_BYPASS", "perhaps", 1);
    FAILS(SCR_Init());
    FAILS(SCR_Need_checkpoint(&flag));
    setenv("SCR_CACHE_BYPASS", "1", 1);
    OK(SCR_Init());
    OK(SCR_Finalize());
}

int main(int argc, char** argv) {
    int level;
    MPI_Init_thread(&argc, &argv, strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char* what = argv[2];
    if (strcmp(what, "run") == 0)
        run(atoi(argv[3]), atoi(argv[4]));
    else if (strcmp(what, "odd") == 0)
        odd();
    else if (strcmp(what, "shared") == 0)
        shared(atoi(argv[3]));
    else if (strcmp(what, "others") == 0)
        others(atoi(argv[3]), atoi(argv[4]));
    else if (strcmp(what, "outputs") == 0)
        outputs(atoi(argv[3]), atoi(argv[4]));
    else if (strcmp(what, "halted") == 0)
        halted();
    else if (strcmp(what, "calls") == 0)
        calls();
    else if (strcmp(what, "refused") == 0)
        refused();
    else
        expect(0, "the arguments");
    MPI_Finalize();
    if (rank == 0) printf("all is as it should be\n");
    return 0;
}
