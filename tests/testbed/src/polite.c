/* polite.c - LD_PRELOAD shim for MPI jobs that have more ranks than the machine has cores.
 *
 * 1. MPI waits by polling.  Idle ranks would take the CPU from the storage servers, so
 *    a rank whose progress calls find nothing to do first yields and then naps, for at
 *    most TB_IDLE_US microseconds (default 100; 0 = only yield).
 * 2. MPICH 4.0 over UCX can hang in MPI_Finalize on several hosts: a rank waits in the
 *    PMI barrier, a blocking read, while a peer needs it to answer a connection request.
 *    So reads from the PMI socket keep the UCX worker going.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void* worker;
static int pmi_fd = -1;
static long nap_max_ns = 100000;

__attribute__((constructor)) static void setup(void) {
    const char* e;
    if ((e = getenv("TB_IDLE_US"))) nap_max_ns = atol(e) * 1000;
    if ((e = getenv("PMI_FD"))) pmi_fd = atoi(e);
}

static void rest(int progressed) {
    static __thread unsigned empty;
    if (progressed) {
        empty = 0;
        return;
    }
    if (++empty < 64) return;
    if (empty < 128 || nap_max_ns == 0) {
        sched_yield();
        return;
    }
    long ns = (empty - 127) * 1000L;
    struct timespec t = {0, ns < nap_max_ns ? ns : nap_max_ns};
    nanosleep(&t, NULL);
}

static unsigned progress(void* w) {
    static unsigned (*real)(void*);
    if (!real) real = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
    return real(w);
}

unsigned ucp_worker_progress(void* w) {
    unsigned n = progress(worker = w);
    rest(n > 0);
    return n;
}

void ucp_worker_destroy(void* w) {
    static void (*real)(void*);
    if (!real) real = (void (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_destroy");
    if (w == worker) worker = NULL;
    real(w);
}

ssize_t read(int fd, void* buf, size_t n) {
    if (fd == pmi_fd && fd >= 0 && worker) {
        struct pollfd p = {fd, POLLIN, 0};
        while (poll(&p, 1, 1) == 0)
            for (int i = 0; i < 100 && progress(worker); i++)
                ;
    }
    return syscall(SYS_read, fd, buf, n);
}

int opal_progress(void) /* Open MPI */
{
    static int (*real)(void);
    if (!real) real = (int (*)(void))dlsym(RTLD_NEXT, "opal_progress");
    int n = real();
    rest(n > 0);
    return n;
}
