/* What fails while a program runs: a file that may not grow, one that a rank cannot open, communicators that
 * have run out. Every rank hears of it, and the program goes on. It leaves the same file without tailrace.
 *
 * failing FILE
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "expect.h"

static int sum(int mine) {
    int all = -1;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Opens the file when so many communicators are left that the MPI library can, but tailrace cannot. */
static void with_few_communicators(const char* path, const int* data, int count) {
    enum { most = 5000 };
    static MPI_Comm taken[most];
    int made = 0, code = MPI_SUCCESS;
    MPI_File file;
    /* Each rank takes its own, alike on all ranks, which needs no talk between them. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (made < most && MPI_Comm_dup(MPI_COMM_SELF, &taken[made]) == MPI_SUCCESS) ++made;
    if (made == most) {
        if (rank == 0) printf("not tested: this MPI library has more than %d communicators\n", most);
    } else {
        do {
            expect(made > 0, "the file cannot be opened at all");
            MPI_Comm_free(&taken[--made]);
            code = PMPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        } while (code != MPI_SUCCESS && made > 0);
        PMPI_File_close(&file);
        /* From here on a failure to copy MPI_COMM_WORLD ends the program, unless somebody takes care. */
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file);
        MPI_Offset at = (MPI_Offset)((2 * ranks + rank) * count) * (MPI_Offset)sizeof(int);
        expect(MPI_File_write_at_all(file, at, data, count, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS,
               "write_at_all with few communicators");
        MPI_Info info;
        char text[MPI_MAX_INFO_VAL + 1] = "off";
        int found = 0;
        MPI_File_get_info(file, &info);
        MPI_Info_get(info, "tailrace_mpiio", MPI_MAX_INFO_VAL, text, &found);
        MPI_Info_free(&info);
        expect(strcmp(text, "off") == 0, "tailrace had communicators after all");
        expect(MPI_File_close(&file) == MPI_SUCCESS, "close");
    }
    while (made > 0) MPI_Comm_free(&taken[--made]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char* switched = getenv("TAILRACE_MPIIO");
    const int library = switched != NULL && strcmp(switched, "on") == 0;
    enum { count = 100, limit = 1 << 20 };
    const MPI_Offset bytes = (MPI_Offset)(count * sizeof(int));
    int data[count];
    MPI_File file;
    for (int i = 0; i < count; ++i) data[i] = rank * 1000 + i;
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write_at_all(file, rank * bytes, data, count, MPI_INT, MPI_STATUS_IGNORE);

    /* 0. A limit on files that this one fits in, from the beginning: memory that ranks share counts as a
     * file. */
    struct rlimit no_limit, small;
    getrlimit(RLIMIT_FSIZE, &no_limit);
    small = no_limit;
    small.rlim_cur = 4 << 10;
    setrlimit(RLIMIT_FSIZE, &small);
    MPI_File limited;
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &limited);
    MPI_Datatype each;
    MPI_Type_vector(count, 1, ranks, MPI_INT, &each);
    MPI_Type_commit(&each);
    MPI_File_set_view(limited, rank * (MPI_Offset)sizeof(int), MPI_INT, each, "native", MPI_INFO_NULL);
    expect(MPI_File_write_at_all(limited, 0, data, count, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS,
           "a file within a limit was not written");
    expect(MPI_File_close(&limited) == MPI_SUCCESS, "close");
    MPI_Type_free(&each);
    setrlimit(RLIMIT_FSIZE, &no_limit);

    /* 1. A file that may not grow: pieces of all ranks in turn, so that they go through an aggregator. */
    struct rlimit before, after;
    getrlimit(RLIMIT_FSIZE, &before);
    after = before;
    after.rlim_cur = limit;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &after);
    if (library) {
        MPI_Datatype turns;
        int classes[2];
        MPI_Type_vector(count, 1, ranks, MPI_INT, &turns);
        MPI_Type_commit(&turns);
        MPI_File_set_view(file, 2 * limit + rank * (int)sizeof(int), MPI_INT, turns, "native", MPI_INFO_NULL);
        const int code = MPI_File_write_at_all(file, 0, data, count, MPI_INT, MPI_STATUS_IGNORE);
        expect(code != MPI_SUCCESS, "a file that may not grow has grown");
        MPI_Error_class(code, &classes[0]);
        MPI_Allreduce(&classes[0], &classes[1], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        expect(classes[0] == classes[1], "ranks were told of different failures");
        MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
        MPI_Type_free(&turns);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    expect(MPI_File_write_at_all(file, (ranks + rank) * bytes, data, count, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS,
           "write_at_all after a failure");
    expect(MPI_File_close(&file) == MPI_SUCCESS, "close");

    /* 2. Few communicators. */
    with_few_communicators(argv[1], data, count);

    /* 3. Rank 1 alone cannot open the file. The program's own talk about it must not be taken for the
     * library's. Open MPI's own open waits for that rank, now and then for ever. */
#ifndef OPEN_MPI
    char missing[4096];
    snprintf(missing, sizeof missing, "%s.missing", argv[1]);
    const int code =
        MPI_File_open(MPI_COMM_WORLD, rank == 1 ? missing : argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    const int failed = sum(code == MPI_SUCCESS ? 0 : 1);
    expect(failed >= 1 && failed <= ranks, "the ranks do not talk to each other any more");
    expect(sum(rank) == ranks * (ranks - 1) / 2, "a sum of ranks");
#endif

    const int any = sum(wrong);
    MPI_Finalize();
    return any != 0;
}
