/* drain_session.c - a program that dies while its epochs are on their way.
 *
 *     drain_session save EPOCHS [KEY=VALUE...]     saves epochs 1 to EPOCHS, says so, and waits to be killed
 *     drain_session restore [KEY=VALUE...]         restores the newest epoch and checks every byte
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tailrace.h>
#include <unistd.h>

enum { words = 1 << 19 }; /* 4 MiB */

static uint64_t state[words];

static void check(tailrace_code code, const char* call) {
    if (code == TAILRACE_OK) return;
    printf("%s: %s: %s\n", call, tailrace_code_name(code), tailrace_last_error());
    exit(1);
}

static uint64_t word(uint64_t epoch, uint64_t place) {
    return (epoch * words + place) * 0x9E3779B97F4A7C15u;
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int saves = argc > 2 && strcmp(argv[1], "save") == 0;
    tailrace_options* options = tailrace_options_new();
    for (int i = saves ? 3 : 2; i < argc; ++i) {
        char* value = strchr(argv[i], '=');
        if (value == NULL) return 2;
        *value++ = '\0';
        check(tailrace_options_set(options, argv[i], value), argv[i]);
    }
    tailrace_session* session = NULL;
    check(tailrace_open(options, &session), "open");
    tailrace_options_free(options);
    check(tailrace_register(session, "state", state, sizeof state), "register");
    if (!saves) {
        uint64_t epoch = 0;
        check(tailrace_restore(session, TAILRACE_NEWEST, &epoch), "restore");
        for (uint64_t i = 0; i < words; ++i)
            if (state[i] != word(epoch, i)) {
                printf("word %llu of epoch %llu is wrong\n", (unsigned long long)i,
                       (unsigned long long)epoch);
                return 1;
            }
        printf("restored %llu\n", (unsigned long long)epoch);
        check(tailrace_close(session), "close");
        return 0;
    }
    const uint64_t epochs = strtoull(argv[2], NULL, 10);
    for (uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        for (uint64_t i = 0; i < words; ++i) state[i] = word(epoch, i);
        check(tailrace_save(session, epoch), "save");
        printf("saved %llu\n", (unsigned long long)epoch);
    }
    for (;;) pause();
}
