/* A program that was written for FTI, on the ranks of MPI. tests/mpi/fti_test.py starts it, with a
 * configuration file.
 *
 *     fti_ranks LEVEL run CONFIG CHECKPOINT_LEVEL STEPS KILL_AT
 *
 * goes on where it was, and takes a checkpoint of this level (0: of each in turn) at every fifth step. The
 * last rank kills itself in step KILL_AT (0: never).
 *
 *     fti_ranks LEVEL odd CONFIG
 *
 * One rank does otherwise than the others: it protects another size.
 *
 *     fti_ranks LEVEL refused CONFIG
 *
 * One rank alone could use the configuration, because an environment variable mends it there: nobody begins.
 *
 *     fti_ranks LEVEL snapshots CONFIG
 *
 * Calls FTI_Snapshot until it has taken a checkpoint, and ends without FTI_Finalize.
 *
 *     fti_ranks LEVEL calls CONFIG
 *
 * Calls before FTI_Init, after FTI_Finalize, with arguments that make no sense, and those that are missing.
 *
 * LEVEL is `multiple` or `single`, the thread level of MPI. Whatever is not as it should be ends the program.
 */
#include <fti.h>
#include <signal.h>

static int rank, ranks;

static void expect(int good, const char* what) {
    if (good) return;
    printf("rank %d: not as it should be: %s\n", rank, what);
    fflush(stdout);
    /* All ranks fail at about the same time. The first abort ends the others, and what they have just said
     * would get lost on its way through the launcher. */
    usleep(500000);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#define IS(result, call) expect((call) == (result), #call)

static void die(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1) raise(SIGKILL);
    for (;;) pause();
}

/* Each rank's state has another length, which grows with the steps. */
typedef struct {
    int step;
    int length;
    double* values;
} state;

static double value_at(int step, int i) {
    return step * 1000.0 + rank * 100 + i;
}
static void change(state* s, int step) {
    s->step = step;
    s->length = 10 * (rank + 1) + step;
    s->values = realloc(s->values, (size_t)s->length * sizeof *s->values);
    for (int i = 0; i < s->length; ++i) s->values[i] = value_at(step, i);
}
static void protect(state* s) {
    IS(FTI_SCES, FTI_Protect(0, &s->step, 1, FTI_INTG));
    IS(FTI_SCES, FTI_Protect(1, &s->length, 1, FTI_INTG));
    IS(FTI_SCES, FTI_Protect(2, s->values, s->length, FTI_DBLE));
}
static void check(const state* s) {
    expect(s->length == 10 * (rank + 1) + s->step, "the length of the state");
    for (int i = 0; i < s->length; ++i) expect(s->values[i] == value_at(s->step, i), "the state");
}

static void run(const char* config, int level, int steps, int kill_at) {
    state s = {0, 0, NULL};
    const int begun = FTI_Init(config, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* rank 0 says why, before another rank ends it */
    expect(begun == FTI_SCES, "FTI_Init");
    int size = -1;
    MPI_Comm_size(FTI_COMM_WORLD, &size);
    expect(size == ranks, "the size of FTI_COMM_WORLD");
    const int status = FTI_Status();
    if (status == 0) {
        change(&s, 0);
        protect(&s);
    } else {
        s.values = malloc(1);
        IS(FTI_SCES, FTI_Protect(0, &s.step, 1, FTI_INTG));
        IS(FTI_SCES, FTI_Protect(1, &s.length, 1, FTI_INTG));
        IS(FTI_SCES, FTI_Protect(2, s.values, 0, FTI_DBLE));
        s.values = FTI_Realloc(2, s.values);
        expect(FTI_GetStoredSize(0) == sizeof s.step, "the stored size");
        IS(FTI_SCES, FTI_RecoverVarInit());
        IS(FTI_SCES, FTI_RecoverVar(0));
        IS(FTI_SCES, FTI_RecoverVarFinalize());
        const int step = s.step;
        s.step = -1;
        IS(FTI_SCES, FTI_Recover());
        expect(s.step == step, "one variable or all of them are of the same step");
        check(&s);
    }
    expect(FTI_Status() == 0, "the status after recovering");
    if (rank == 0) printf("status %d, from %d\n", status, s.step);
    fflush(stdout);
    while (s.step < steps) {
        change(&s, s.step + 1);
        if (s.step == kill_at) die();
        if (s.step % 5 != 0) continue;
        protect(&s);
        IS(FTI_DONE, FTI_Checkpoint(s.step / 5, level == 0 ? s.step / 5 % 4 + 1 : level));
    }
    IS(FTI_SCES, FTI_Finalize());
    if (rank == 0) printf("to %d\n", s.step);
}

static void odd(const char* config) {
    int values[3] = {1, 2, 3};
    IS(FTI_SCES, FTI_Init(config, MPI_COMM_WORLD));
    IS(FTI_SCES, FTI_Protect(0, values, 2, FTI_INTG));
    IS(FTI_DONE, FTI_Checkpoint(1, FTI_L1));
    values[0] = 7;
    if (rank == ranks - 1) IS(FTI_SCES, FTI_Protect(0, values, 3, FTI_INTG));
    IS(FTI_NREC, FTI_Recover());
    expect(values[0] == 7, "no rank recovers where another one cannot");
    IS(FTI_SCES, FTI_Protect(0, values, 2, FTI_INTG));
    IS(FTI_SCES, FTI_Recover());
    expect(values[0] == 1, "all recover where all can");
    IS(FTI_SCES, FTI_Finalize());
}

static void refused(const char* config) {
    if (rank == 1) setenv("TAILRACE_FILES", "2", 1);
    IS(FTI_NSCS, FTI_Init(config, MPI_COMM_WORLD));
    int size = -1;
    MPI_Comm_size(FTI_COMM_WORLD, &size);
    expect(size == ranks, "programs that go on have a communicator");
}

static void snapshots(const char* config) {
    int step = 0, result = FTI_SCES;
    IS(FTI_SCES, FTI_Init(config, MPI_COMM_WORLD));
    IS(FTI_SCES, FTI_Protect(0, &step, 1, FTI_INTG));
    const int status = FTI_Status();
    if (status != 0) IS(FTI_SCES, FTI_Snapshot());
    if (rank == 0) printf("status %d, %s\n", status, step > 0 ? "going on" : "from 0");
    const int from = step;
    while (result != FTI_DONE && step < from + 6000) {
        ++step;
        usleep((unsigned)(rank * 1000 + 1000)); /* ranks are not equally fast */
        MPI_Barrier(FTI_COMM_WORLD);
        result = FTI_Snapshot();
        expect(result == FTI_SCES || result == FTI_DONE, "FTI_Snapshot");
    }
    IS(FTI_DONE, result);
    const int last = step;
    step = -1;
    IS(FTI_SCES, FTI_Recover());
    expect(step == last, "the step of the snapshot");
}

static void calls(const char* config) {
    int value = 0;
    char text[FTI_BUFS];
    FTIT_type type = 0;
    FTIT_H5Group group;
    FTIT_attribute attribute;
    memset(&group, 0, sizeof group);
    memset(&attribute, 0, sizeof attribute);
    IS(FTI_NSCS, FTI_Protect(0, &value, 1, FTI_INTG));
    IS(FTI_NSCS, FTI_Checkpoint(1, 1));
    IS(FTI_NSCS, FTI_Snapshot());
    IS(FTI_NREC, FTI_Recover());
    IS(FTI_NSCS, FTI_Finalize());
    IS(FTI_NSCS, FTI_InitType(&type, 4));
    IS(0, FTI_Status());
    IS(0, (int)FTI_GetStoredSize(0));
    expect(FTI_Realloc(0, &value) == &value, "memory that stays as it is");
    IS(FTI_NSCS, FTI_Init(NULL, MPI_COMM_WORLD));
    IS(FTI_NSCS, FTI_Init("no file", MPI_COMM_WORLD));
    IS(FTI_NSCS, FTI_Init(config, MPI_COMM_NULL));
    IS(FTI_SCES, FTI_Init(config, MPI_COMM_WORLD));
    IS(FTI_NSCS, FTI_Init(config, MPI_COMM_WORLD));
    IS(FTI_NSCS, FTI_InitType(NULL, 4));
    IS(FTI_NSCS, FTI_InitType(&type, 0));
    IS(FTI_NSCS, FTI_InitType(&type, -1));
    IS(FTI_SCES, FTI_InitType(&type, 2 * sizeof value));
    IS(FTI_SCES, FTI_AddScalarField(type, "a", FTI_INTG, 0));
    IS(FTI_NSCS, FTI_AddScalarField(type, "b", FTI_INTG, 5));
    IS(FTI_NSCS, FTI_AddVectorField(type, "c", FTI_INTG, 0, 1, NULL));
    type = FTI_InitCompositeType("pair", 8, NULL);
    int64_t extents[2] = {2, 4};
    IS(FTI_SCES, FTI_AddVectorField(type, "c", FTI_CHAR, 0, 2, extents));
    IS(FTI_NSCS, FTI_AddVectorField(type, "c", FTI_CHAR, 0, 0, extents));
    IS(FTI_NSCS, FTI_Protect(0, &value, 1, -1));
    IS(FTI_NSCS, FTI_Checkpoint(1, 0));
    IS(FTI_NSCS, FTI_RecoverVar(5));
    for (int twice = 0; twice < 2; ++twice) {
        IS(FTI_NSCS, FTI_InitICP(1, 1, true));
        IS(FTI_NSCS, FTI_AddVarICP(1));
        IS(FTI_NSCS, FTI_FinalizeICP());
        IS(FTI_NSCS, FTI_BitFlip(0));
        IS(FTI_NSCS, FTI_GetStageDir(text, FTI_BUFS));
        IS(FTI_NSCS, FTI_GetStageStatus(0));
        IS(FTI_NSCS, FTI_SendFile(text, text));
        IS(FTI_NSCS, FTI_setIDFromString("a"));
        IS(FTI_NSCS, FTI_getIDFromString("a"));
        IS(FTI_NSCS, FTI_SetAttribute(0, attribute, FTI_ATTRIBUTE_NAME));
        IS(FTI_NSCS, FTI_InitGroup(&group, "a", NULL));
        IS(FTI_NSCS, FTI_RenameGroup(&group, "b"));
        IS(FTI_NSCS, FTI_DefineDataset(0, 1, extents, "a", NULL));
        IS(FTI_NSCS, FTI_DefineGlobalDataset(0, 1, extents, "a", NULL, FTI_INTG));
        IS(FTI_NSCS, FTI_AddSubset(0, 1, extents, extents, 0));
        IS(FTI_NSCS, FTI_UpdateGlobalDataset(0, 1, extents));
        IS(FTI_NSCS, FTI_UpdateSubset(0, 1, extents, extents, 0));
        IS(FTI_NSCS, FTI_RecoverDatasetDimension(0));
        IS(FTI_NSCS, FTI_GetDatasetRank(0));
        expect(FTI_GetDatasetSpan(0, 1) == NULL, "FTI_GetDatasetSpan");
        (void)FTI_GetConfig(config, MPI_COMM_WORLD);
    }
    IS(FTI_SCES, FTI_Protect(0, &value, 1, FTI_INTG));
    IS(FTI_DONE, FTI_Checkpoint(1, FTI_L1));
    if (ranks > 1) IS(FTI_NSCS, FTI_Checkpoint(2, rank == 0 ? FTI_L1 : FTI_L4));
    IS(FTI_SCES, FTI_Finalize());
    IS(FTI_NSCS, FTI_Finalize());
    IS(FTI_SCES, FTI_Init(config, FTI_COMM_WORLD));
    IS(0, FTI_Status());
    IS(FTI_SCES, FTI_Finalize());
}

int main(int argc, char** argv) {
    int level;
    MPI_Init_thread(&argc, &argv, strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char* what = argv[2];
    if (strcmp(what, "run") == 0)
        run(argv[3], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
    else if (strcmp(what, "odd") == 0)
        odd(argv[3]);
    else if (strcmp(what, "refused") == 0)
        refused(argv[3]);
    else if (strcmp(what, "snapshots") == 0)
        snapshots(argv[3]);
    else if (strcmp(what, "calls") == 0)
        calls(argv[3]);
    else
        expect(0, "the arguments");
    MPI_Finalize();
    if (rank == 0) printf("all is as it should be\n");
    return 0;
}
