/* single.c - a program of one process that goes on where it was when it was killed.
 *
 *     ./single DIRECTORY [SAMPLES]
 *
 * Estimates pi by throwing points at a square, a million at a time, and saves its state after every million.
 * Kill it whenever you like and start it again: it goes on from the last epoch, and the result is the same
 * to the last digit as without the kill. It also ends by itself when it is asked to: by `tailrace halt
 * DIRECTORY --now`, by SIGTERM, or before the end of its batch job. No MPI is needed, here or in the build
 * (-DTAILRACE_MPI=OFF).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tailrace.h>

#define ROUND 1000000u

static uint64_t next_random(uint64_t* state) { /* xorshift64* */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 2685821657736338717u;
}

static int failed(const char* what) {
    fprintf(stderr, "single: %s: %s\n", what, tailrace_last_error());
    return 1;
}

int main(int argc, char** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: single DIRECTORY [SAMPLES]\n");
        return 2;
    }
    const uint64_t rounds = (argc > 2 ? strtoull(argv[2], NULL, 10) : 100 * (uint64_t)ROUND) / ROUND;

    tailrace_options* options = tailrace_options_new();
    tailrace_session* session;
    if (tailrace_options_set(options, "shared_dir", argv[1]) != TAILRACE_OK ||
        tailrace_options_set(options, "keep_shared", "3") != TAILRACE_OK ||
        tailrace_options_set(options, "stop_signals", "TERM") != TAILRACE_OK ||
        tailrace_open(options, &session) != TAILRACE_OK)
        return failed("opening the session");
    tailrace_options_free(options);

    /* Everything the program needs in order to go on. The epoch is the number of rounds done. */
    uint64_t round = 0, random_state = 88172645463325252u, inside = 0;
    tailrace_register(session, "random state", &random_state, sizeof random_state);
    tailrace_register(session, "inside", &inside, sizeof inside);

    tailrace_code found = tailrace_restore(session, TAILRACE_NEWEST, &round);
    if (found == TAILRACE_OK)
        printf("going on after %" PRIu64 " rounds\n", round);
    else if (found != TAILRACE_NOT_FOUND) /* not simply a first run */
        return failed("restoring");

    const char* why = NULL; /* to stop before the end */
    while (round < rounds && why == NULL) {
        for (uint32_t i = 0; i < ROUND; ++i) {
            const uint64_t bits = next_random(&random_state);
            const double x = (double)(uint32_t)bits / 4294967296.0, y = (double)(bits >> 32) / 4294967296.0;
            if (x * x + y * y < 1) ++inside;
        }
        ++round;
        if (tailrace_save(session, round) != TAILRACE_OK) failed("saving"); /* and go on computing */
        if (tailrace_should_stop(session, &why) != TAILRACE_OK) failed("asking whether to stop");
    }
    if (why != NULL) printf("stopping after %" PRIu64 " rounds: %s\n", round, why);

    if (tailrace_close(session) != TAILRACE_OK) return failed("closing the session");
    if (round > 0) printf("pi is about %.9f\n", 4.0 * (double)inside / ((double)round * ROUND));
    return 0;
}
