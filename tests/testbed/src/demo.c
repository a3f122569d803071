/* demo.c - four ways for MPI ranks to write one checkpoint, and the rate of each.
 *   demo DIR [MiB-per-rank] [file-count] [patterns]     patterns: any of a b c d
 * a  one file per rank
 * b  one shared file, every rank's bytes in one unaligned run, pieces of 1 MiB
 *    less 47 bytes interleaved over the ranks (the worst case for block locks)
 * c  one shared file, each rank writes whole 64 MiB chunks of its own
 * d  file-count files; one leader each (on different nodes) receives the bytes of
 *    its ranks, 8 MiB at a time, two buffers, and writes chunks nobody else writes
 * Every file is fsync'ed and closed before the clock stops; each is read back
 * and compared afterwards, outside the clock, by another rank than its writer.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define CHUNK (64 * MIB)
#define PIECE (MIB - 47)
#define BUF (8 * MIB)

static int rank, size;
static char path[4096];

static void fail(const char* what) {
    fprintf(stderr, "demo: rank %d: %s %s: %s\n", rank, what, path, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* the byte that rank r has at position i of its state */
static void fill(char* b, int r, size_t at, size_t n) {
    for (size_t i = 0; i < n; i++) b[i] = (char)((at + i) * 31 + ((at + i) >> 12) + r * 7);
}

static int open_file(const char* dir, const char* name, int i, int flags) {
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, i);
    int fd = open(path, flags, 0644);
    if (fd < 0) fail("open");
    return fd;
}

static void put(int fd, const char* b, size_t n, off_t at) {
    while (n) {
        ssize_t k = pwrite(fd, b, n, at);
        if (k < 0) {
            if (errno == EINTR) continue;
            fail("write");
        }
        b += k;
        n -= k;
        at += k;
    }
}

static void finish(int fd) {
    if (fsync(fd)) fail("fsync");
    if (close(fd)) fail("close");
}

/* where byte `at` of rank r lies: file and offset; *run = how far it goes on there */
static void place(char pattern, int files, size_t each, int r, size_t at, int* file, off_t* off,
                  size_t* run) {
    if (pattern == 'a') {
        *file = r;
        *off = at;
        *run = each - at;
    } else if (pattern == 'b') {
        size_t p = at / PIECE, in = at % PIECE;
        *file = 0;
        *off = (p * size + r) * PIECE + in;
        *run = PIECE - in;
    } else if (pattern == 'c') {
        size_t p = at / CHUNK, in = at % CHUNK;
        *file = 0;
        *off = (p * size + r) * CHUNK + in;
        *run = CHUNK - in;
    } else { /* d: the ranks of a group one after the other */
        int g = (int)((long)r * files / size);
        int first = (int)(((long)g * size + files - 1) / files);
        *file = g;
        *off = (off_t)(r - first) * each + at;
        *run = each - at;
    }
    if (*run > each - at) *run = each - at;
}

static void write_direct(char pattern, const char* dir, const char* state, size_t each) {
    int f;
    off_t o;
    size_t run;
    place(pattern, 1, each, rank, 0, &f, &o, &run);
    int fd = -1;
    if (pattern == 'a')
        fd = open_file(dir, "a", rank, O_CREAT | O_TRUNC | O_WRONLY);
    else {
        char name[2] = {pattern, 0};
        if (rank == 0) finish(open_file(dir, name, 0, O_CREAT | O_TRUNC | O_WRONLY));
        MPI_Barrier(MPI_COMM_WORLD);
        fd = open_file(dir, name, 0, O_WRONLY);
    }
    for (size_t at = 0; at < each; at += run) {
        place(pattern, 1, each, rank, at, &f, &o, &run);
        if (run > BUF) run = BUF;
        put(fd, state + at, run, o);
    }
    finish(fd);
}

static void write_led(const char* dir, const char* state, size_t each, int files) {
    int g = (int)((long)rank * files / size);
    int first = (int)(((long)g * size + files - 1) / files);
    int last = (int)(((long)(g + 1) * size + files - 1) / files);
    if (rank != first) {
        for (size_t at = 0; at < each; at += BUF) {
            size_t n = each - at < BUF ? each - at : BUF;
            MPI_Send(state + at, (int)n, MPI_BYTE, first, 0, MPI_COMM_WORLD);
        }
        return;
    }
    int fd = open_file(dir, "d", g, O_CREAT | O_TRUNC | O_WRONLY), cur = 0;
    char* buf[2] = {malloc(BUF), malloc(BUF)};
    size_t pieces = (each + BUF - 1) / BUF, total = pieces * (last - first - 1);
    MPI_Request q = MPI_REQUEST_NULL;
    /* piece k comes from rank first + 1 + k % (n - 1): all members send at once */
#define SRC(k) (first + 1 + (int)((k) % (last - first - 1)))
#define AT(k) ((k) / (last - first - 1) * BUF)
#define LEN(k) (int)(each - AT(k) < BUF ? each - AT(k) : BUF)
    if (total) MPI_Irecv(buf[0], LEN(0), MPI_BYTE, SRC(0), 0, MPI_COMM_WORLD, &q);
    for (size_t at = 0; at < each; at += BUF) put(fd, state + at, each - at < BUF ? each - at : BUF, at);
    for (size_t k = 0; k < total; k++, cur ^= 1) {
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        if (k + 1 < total) MPI_Irecv(buf[cur ^ 1], LEN(k + 1), MPI_BYTE, SRC(k + 1), 0, MPI_COMM_WORLD, &q);
        put(fd, buf[cur], LEN(k), (off_t)(SRC(k) - first) * each + AT(k));
    }
    finish(fd);
    free(buf[0]);
    free(buf[1]);
}

static long verify(char pattern, const char* dir, size_t each, int files) {
    int r = (rank + size / 2) % size, f, open_now = -1, fd = -1;
    long bad = 0;
    size_t run;
    off_t o;
    char *got = malloc(BUF), *want = malloc(BUF), name[2] = {pattern, 0};
    for (size_t at = 0; at < each; at += run) {
        place(pattern, files, each, r, at, &f, &o, &run);
        if (run > BUF) run = BUF;
        if (f != open_now) {
            if (fd >= 0) close(fd);
            fd = open_file(dir, name, open_now = f, O_RDONLY);
        }
        memset(got, 0, run);
        for (size_t k = 0; k < run;) {
            ssize_t n = pread(fd, got + k, run - k, o + k);
            if (n <= 0) break;
            k += n;
        }
        fill(want, r, at, run);
        if (memcmp(got, want, run)) bad++;
    }
    close(fd);
    free(got);
    free(want);
    return bad;
}

/* time the machine's processors spent: [0] in work, [1] in niced work, [2] in all */
static void cpu(double t[3]) {
    long v[10] = {0};
    FILE* f = fopen("/proc/stat", "r");
    if (f) {
        if (fscanf(f, "cpu %ld %ld %ld %ld %ld %ld %ld %ld", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6,
                   v + 7) != 8)
            v[0] = 0;
        fclose(f);
    }
    t[0] = v[0] + v[2] + v[5] + v[6];
    t[1] = v[1];
    t[2] = t[0] + t[1] + v[3] + v[4] + v[7];
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2) {
        if (!rank) fprintf(stderr, "usage: demo DIR [MiB] [files] [patterns]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t each = (argc > 2 ? strtoul(argv[2], 0, 10) : 64) * MIB;
    int files = argc > 3 ? atoi(argv[3]) : 2;
    const char* which = argc > 4 ? argv[4] : "abcd";
    int check = !getenv("DEMO_NO_CHECK");
    char* state = malloc(each);
    fill(state, rank, 0, each);
    for (const char* p = which; *p; p++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double t = MPI_Wtime(), mine, slow, fast, c0[3], c1[3];
        cpu(c0);
        if (*p == 'd')
            write_led(argv[1], state, each, files);
        else
            write_direct(*p, argv[1], state, each);
        mine = MPI_Wtime() - t;
        MPI_Reduce(&mine, &slow, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&mine, &fast, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
        long bad = 0, all = 0;
        cpu(c1);
        double whole = c1[2] - c0[2] > 0 ? (c1[2] - c0[2]) / 100 : 1;
        MPI_Barrier(MPI_COMM_WORLD);
        if (check) bad = verify(*p, argv[1], each, *p == 'd' ? files : 1);
        MPI_Reduce(&bad, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (!rank) {
            printf("%c  %7.1f MB/s  slowest rank %6.2f s  fastest %6.2f s  cpu %3.0f%% + niced %3.0f%%  %s\n",
                   *p, size * each / slow / 1e6, slow, fast, (c1[0] - c0[0]) / whole, (c1[1] - c0[1]) / whole,
                   !check ? "not checked"
                   : all  ? "WRONG DATA"
                          : "data right");
            fflush(stdout);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        char name[2] = {*p, 0};
        if (!getenv("DEMO_KEEP") && rank < (*p == 'a' ? size : *p == 'd' ? files : 1)) {
            snprintf(path, sizeof path, "%s/%s.%d", argv[1], name, rank);
            if (unlink(path)) fail("unlink");
        }
    }
    free(state);
    MPI_Finalize();
}
