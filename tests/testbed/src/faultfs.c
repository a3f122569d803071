/* faultfs.c - a FUSE file system that passes through to a directory and fails on command.
 *
 *   faultfs LOWER MOUNTPOINT [fuse options]
 *
 * Commands, a line each, are written to the file /.fault of the mount:
 *   eio N       the write after the next N bytes written fails with EIO, and all later ones
 *   enospc N    the same with ENOSPC; the last write before is short, as on a real disk
 *   fsync-eio   the next fsync fails with EIO and its data are dropped (Linux since 4.13)
 *   slow R      all writes together go at R bytes per second; 0 = no limit
 *   hold 1      from now on keep writes in memory until fsync of that file (also hold 0)
 *   powerloss   drop what is held and not fsync'ed; from then on every call fails with EIO
 *   torn S      as powerloss, but first each held 4 KiB block goes to disk with
 *               probability 1/2, chosen from seed S
 *   reset       no faults
 * Held data are read back by everybody who uses the mount, as from a page cache.  After
 * powerloss or torn, unmount and look at LOWER: that is what the disk has.  A rename, a new
 * name or a removal is durable at once, which is kinder than some file systems are, and a
 * file's length follows its data: bytes held and lost leave the file short or, before
 * data that stayed, with a hole.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define BLK 4096L
struct block {
    off_t no;
    char* data;
    int lo, hi;
    struct block* next;
}; /* bytes [lo,hi) are held */
struct inode {
    ino_t ino;
    dev_t dev;
    off_t size;
    struct block* hash[4096];
    struct inode* next;
};

static int root = -1, mode_errno, fsync_eio, hold, dead;
static long budget = -1, rate;
static struct timespec free_at;
static struct inode* inodes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char* rel(const char* p) {
    return p[1] ? p + 1 : ".";
}
static int is_ctl(const char* p) {
    return !strcmp(p, "/.fault");
}
#define ALIVE \
    if (dead) return -EIO
#define RET(x) return (x) < 0 ? -errno : 0

static struct inode* find(int fd, int make) {
    struct stat st;
    if (fstat(fd, &st)) return NULL;
    for (struct inode* i = inodes; i; i = i->next)
        if (i->ino == st.st_ino && i->dev == st.st_dev) return i;
    if (!make) return NULL;
    struct inode* i = calloc(1, sizeof *i);
    if (!i) return NULL;
    i->ino = st.st_ino;
    i->dev = st.st_dev;
    i->size = st.st_size;
    i->next = inodes;
    return inodes = i;
}

static struct block** slot(struct inode* i, off_t no) {
    struct block** b = &i->hash[no & 4095];
    while (*b && (*b)->no != no) b = &(*b)->next;
    return b;
}

/* write held blocks down (or only some, or none) and forget them */
static int settle(int fd, struct inode* i, int keep_percent, unsigned* seed) {
    int err = 0;
    for (int h = 0; h < 4096; h++)
        for (struct block* b; (b = i->hash[h]); free(b->data), free(b)) {
            if ((keep_percent >= 100 || (int)(rand_r(seed) / 7 % 100) < keep_percent) && !err &&
                pwrite(fd, b->data + b->lo, b->hi - b->lo, b->no * BLK + b->lo) < 0)
                err = -errno;
            i->hash[h] = b->next;
        }
    return err;
}

static int put_block(int fd, struct inode* i, off_t no, int lo, int hi, const char* src) {
    struct block **s = slot(i, no), *b = *s;
    if (!b) {
        if (!(b = calloc(1, sizeof *b)) || !(b->data = calloc(1, BLK))) {
            free(b);
            return -ENOMEM;
        }
        b->no = no;
        b->lo = lo;
        b->hi = hi;
        *s = b;
    } else if (lo > b->hi || hi < b->lo) { /* a gap: fill it from below */
        char all[BLK];
        memset(all, 0, BLK);
        if (pread(fd, all, BLK, no * BLK) < 0) return -errno;
        memcpy(all + b->lo, b->data + b->lo, b->hi - b->lo);
        memcpy(b->data, all, BLK);
    }
    if (lo < b->lo) b->lo = lo;
    if (hi > b->hi) b->hi = hi;
    memcpy(b->data + lo, src, hi - lo);
    return 0;
}

static void lose(int keep_percent, unsigned seed) {
    for (struct inode *i = inodes, *n; i; i = n) {
        n = i->next;
        int fd = -1;
        if (keep_percent) { /* the file has to be found by number */
            char cmd[64];
            snprintf(cmd, sizeof cmd, "find . -xdev -inum %lu", (unsigned long)i->ino);
            FILE* p = fchdir(root) ? NULL : popen(cmd, "r");
            char name[4096];
            if (p && fgets(name, sizeof name, p)) {
                name[strcspn(name, "\n")] = 0;
                fd = openat(root, name, O_WRONLY);
            }
            if (p) pclose(p);
        }
        settle(fd, i, fd < 0 ? 0 : keep_percent, &seed);
        if (fd >= 0) close(fd);
        free(i);
    }
    inodes = NULL;
    dead = 1;
}

/* a file is about to go, or to be emptied: what is held of it goes too */
static void forget(const char* p, int only_last_name) {
    struct stat st;
    unsigned seed = 0;
    if (fstatat(root, rel(p), &st, AT_SYMLINK_NOFOLLOW) || (only_last_name && st.st_nlink > 1)) return;
    pthread_mutex_lock(&lock);
    for (struct inode **at = &inodes, *i; (i = *at); at = &i->next)
        if (i->ino == st.st_ino && i->dev == st.st_dev) {
            settle(-1, i, 0, &seed);
            *at = i->next;
            free(i);
            break;
        }
    pthread_mutex_unlock(&lock);
}

static int command(char* text) {
    char word[32], *end;
    for (char* line = strtok_r(text, "\n", &end); line; line = strtok_r(NULL, "\n", &end)) {
        long n = 0;
        int k = sscanf(line, "%31s %ld", word, &n);
        if (k < 1) continue;
        if (!strcmp(word, "eio") || !strcmp(word, "enospc")) {
            mode_errno = word[1] == 'i' ? EIO : ENOSPC;
            budget = n;
        } else if (!strcmp(word, "fsync-eio"))
            fsync_eio = 1;
        else if (!strcmp(word, "slow")) {
            rate = n;
            clock_gettime(CLOCK_MONOTONIC, &free_at);
        } else if (!strcmp(word, "hold"))
            hold = n != 0;
        else if (!strcmp(word, "powerloss"))
            lose(0, 0);
        else if (!strcmp(word, "torn"))
            lose(50, (unsigned)n);
        else if (!strcmp(word, "reset")) {
            budget = -1;
            fsync_eio = hold = dead = 0;
            rate = 0;
        } else
            return -EINVAL;
    }
    return 0;
}

static int f_getattr(const char* p, struct stat* st, struct fuse_file_info* fi) {
    if (is_ctl(p)) {
        memset(st, 0, sizeof *st);
        st->st_mode = S_IFREG | 0600;
        st->st_nlink = 1;
        return 0;
    }
    ALIVE;
    int r = fi ? fstat((int)fi->fh, st) : fstatat(root, rel(p), st, AT_SYMLINK_NOFOLLOW);
    if (r) return -errno;
    pthread_mutex_lock(&lock);
    for (struct inode* i = inodes; i; i = i->next)
        if (i->ino == st->st_ino && i->dev == st->st_dev && i->size > st->st_size) st->st_size = i->size;
    pthread_mutex_unlock(&lock);
    return 0;
}
static int f_readdir(const char* p, void* buf, fuse_fill_dir_t add, off_t o, struct fuse_file_info* fi,
                     enum fuse_readdir_flags fl) {
    ALIVE;
    int fd = openat(root, rel(p), O_RDONLY | O_DIRECTORY);
    DIR* d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) return -errno;
    for (struct dirent* e; (e = readdir(d));)
        if (add(buf, e->d_name, NULL, 0, 0)) break;
    closedir(d);
    return 0;
}
static int f_open(const char* p, struct fuse_file_info* fi) {
    if (is_ctl(p)) {
        fi->direct_io = 1;
        fi->fh = 0;
        return 0;
    }
    ALIVE;
    if (fi->flags & O_TRUNC) forget(p, 0);
    int fl = fi->flags & ~(O_APPEND | O_EXCL | O_DIRECT);
    if ((fl & O_ACCMODE) == O_WRONLY) fl = (fl & ~O_ACCMODE) | O_RDWR;
    int fd = openat(root, rel(p), fl);
    if (fd < 0) return -errno;
    fi->fh = fd;
    fi->direct_io = 1;
    return 0;
}
static int f_create(const char* p, mode_t m, struct fuse_file_info* fi) {
    ALIVE;
    forget(p, 0);
    int fd = openat(root, rel(p), (fi->flags & O_EXCL) | O_CREAT | O_TRUNC | O_RDWR, m);
    if (fd < 0) return -errno;
    fi->fh = fd;
    fi->direct_io = 1;
    return 0;
}
static int f_write(const char* p, const char* b, size_t n, off_t o, struct fuse_file_info* fi) {
    if (is_ctl(p)) {
        char text[256];
        if (n >= sizeof text) return -EINVAL;
        memcpy(text, b, n);
        text[n] = 0;
        pthread_mutex_lock(&lock);
        int r = command(text);
        pthread_mutex_unlock(&lock);
        return r ? r : (int)n;
    }
    ALIVE;
    struct timespec until = {0, 0};
    int err = 0, fd = (int)fi->fh;
    pthread_mutex_lock(&lock);
    if (budget >= 0) {
        if (budget == 0 || (mode_errno == EIO && (long)n > budget)) {
            budget = 0;
            err = -mode_errno;
        } else {
            if ((long)n > budget) n = budget;
            budget -= n;
        }
    }
    if (rate && !err) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > free_at.tv_sec || (now.tv_sec == free_at.tv_sec && now.tv_nsec > free_at.tv_nsec))
            free_at = now;
        long long ns = free_at.tv_nsec + (long long)n * 1000000000LL / rate;
        free_at.tv_sec += ns / 1000000000LL;
        free_at.tv_nsec = ns % 1000000000LL;
        until = free_at;
    }
    if (hold && !err) {
        struct inode* i = find(fd, 1);
        if (!i) err = -ENOMEM;
        for (size_t k = 0; k < n && !err;) {
            int lo = (int)((o + k) % BLK),
                len = (int)(n - k < (size_t)(BLK - lo) ? n - k : (size_t)(BLK - lo));
            err = put_block(fd, i, (o + k) / BLK, lo, lo + len, b + k);
            k += len;
        }
        if (!err && o + (off_t)n > i->size) i->size = o + n;
    }
    int held = hold;
    pthread_mutex_unlock(&lock);
    if (until.tv_sec) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    if (err) return err;
    if (held) return (int)n;
    ssize_t r = pwrite(fd, b, n, o);
    return r < 0 ? -errno : (int)r;
}
static int f_read(const char* p, char* b, size_t n, off_t o, struct fuse_file_info* fi) {
    if (is_ctl(p)) return 0;
    ALIVE;
    pthread_mutex_lock(&lock);
    struct inode* i = find((int)fi->fh, 0);
    ssize_t r = pread((int)fi->fh, b, n, o);
    if (r >= 0 && i) {
        off_t stop = o + (off_t)n < i->size ? o + (off_t)n : i->size;
        if (stop > o + r) {
            memset(b + r, 0, stop - o - r);
            r = stop - o;
        }
        for (off_t no = o / BLK; no * BLK < o + r; no++) {
            struct block* k = *slot(i, no);
            if (!k) continue;
            off_t lo = no * BLK + k->lo, hi = no * BLK + k->hi;
            if (lo < o) lo = o;
            if (hi > o + r) hi = o + r;
            if (hi > lo) memcpy(b + (lo - o), k->data + (lo - no * BLK), hi - lo);
        }
    }
    pthread_mutex_unlock(&lock);
    return r < 0 ? -errno : (int)r;
}
static int f_fsync(const char* p, int data, struct fuse_file_info* fi) {
    if (is_ctl(p)) return 0;
    ALIVE;
    unsigned seed = 0;
    pthread_mutex_lock(&lock);
    struct inode* i = find((int)fi->fh, 0);
    int bad = fsync_eio, r = i ? settle((int)fi->fh, i, bad ? 0 : 100, &seed) : 0;
    fsync_eio = 0;
    if (i) {
        struct stat st;
        struct inode** at = &inodes;
        while (*at != i) at = &(*at)->next;
        if (!bad && !fstat((int)fi->fh, &st) && i->size > st.st_size && ftruncate((int)fi->fh, i->size) && !r)
            r = -errno;
        *at = i->next;
        free(i);
    }
    pthread_mutex_unlock(&lock);
    if (bad) return -EIO;
    if (r) return r;
    RET(data ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}
static int f_truncate(const char* p, off_t n, struct fuse_file_info* fi) {
    if (is_ctl(p)) return 0;
    ALIVE;
    int fd = fi ? (int)fi->fh : openat(root, rel(p), O_RDWR), r = 0;
    unsigned seed = 0;
    if (fd < 0) return -errno;
    pthread_mutex_lock(&lock);
    struct inode* i = find(fd, 0);
    if (i) {
        r = settle(fd, i, 100, &seed);
        i->size = n;
    }
    pthread_mutex_unlock(&lock);
    if (!r && ftruncate(fd, n)) r = -errno;
    if (!fi) close(fd);
    return r;
}
static int f_release(const char* p, struct fuse_file_info* fi) {
    if (!is_ctl(p)) close((int)fi->fh);
    return 0;
}
static int f_unlink(const char* p) {
    ALIVE;
    forget(p, 1);
    RET(unlinkat(root, rel(p), 0));
}
static int f_rmdir(const char* p) {
    ALIVE;
    RET(unlinkat(root, rel(p), AT_REMOVEDIR));
}
static int f_mkdir(const char* p, mode_t m) {
    ALIVE;
    RET(mkdirat(root, rel(p), m));
}
static int f_rename(const char* a, const char* b, unsigned fl) {
    ALIVE;
    if (!fl) forget(b, 1);
    RET(renameat2(root, rel(a), root, rel(b), fl));
}
static int f_link(const char* a, const char* b) {
    ALIVE;
    RET(linkat(root, rel(a), root, rel(b), 0));
}
static int f_chmod(const char* p, mode_t m, struct fuse_file_info* fi) {
    ALIVE;
    RET(fchmodat(root, rel(p), m, 0));
}
static int f_utimens(const char* p, const struct timespec t[2], struct fuse_file_info* fi) {
    ALIVE;
    RET(utimensat(root, rel(p), t, AT_SYMLINK_NOFOLLOW));
}
static int f_statfs(const char* p, struct statvfs* s) {
    ALIVE;
    RET(fstatvfs(root, s));
}
static void* f_init(struct fuse_conn_info* c, struct fuse_config* cfg) {
    cfg->attr_timeout = cfg->entry_timeout = cfg->negative_timeout = 0;
    return NULL;
}

static const struct fuse_operations ops = {
    .init = f_init,
    .getattr = f_getattr,
    .readdir = f_readdir,
    .open = f_open,
    .create = f_create,
    .read = f_read,
    .write = f_write,
    .fsync = f_fsync,
    .truncate = f_truncate,
    .release = f_release,
    .unlink = f_unlink,
    .rmdir = f_rmdir,
    .mkdir = f_mkdir,
    .rename = f_rename,
    .link = f_link,
    .chmod = f_chmod,
    .utimens = f_utimens,
    .statfs = f_statfs,
};

int main(int argc, char** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: faultfs LOWER MOUNTPOINT [fuse options]\n");
        return 2;
    }
    if ((root = open(argv[1], O_RDONLY | O_DIRECTORY)) < 0) {
        perror(argv[1]);
        return 1;
    }
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &ops, NULL);
}
