/* content.h - bytes that tell where they belong, and checks that end an MPI test program with a sentence. */
#ifndef TAILRACE_TESTS_MPI_CONTENT_H
#define TAILRACE_TESTS_MPI_CONTENT_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tailrace.h"

/* splitmix64: a different word for every (seed, index). */
static inline uint64_t content_word(uint64_t seed, uint64_t index) {
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (index + 1) * 0xD1B54A32D192ED03u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline void content_fill(void* memory, uint64_t bytes, uint64_t seed) {
    unsigned char* at = memory;
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = content_word(seed, i / 8);
        memcpy(at + i, &word, bytes - i < 8 ? (size_t)(bytes - i) : 8);
    }
}

/* The first byte that is wrong, or -1. */
static inline int64_t content_wrong_byte(const void* memory, uint64_t bytes, uint64_t seed) {
    const unsigned char* at = memory;
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = content_word(seed, i / 8);
        if (memcmp(at + i, &word, bytes - i < 8 ? (size_t)(bytes - i) : 8) != 0) return (int64_t)i;
    }
    return -1;
}

/* Ends the whole test with where and why. */
#define REQUIRE(condition, ...)                                                                       \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            int require_rank = -1;                                                                    \
            MPI_Comm_rank(MPI_COMM_WORLD, &require_rank);                                             \
            fprintf(stderr, "rank %d, %s:%d: %s; last error: %s; ", require_rank, __FILE__, __LINE__, \
                    #condition, tailrace_last_error());                                               \
            fprintf(stderr, __VA_ARGS__);                                                             \
            fprintf(stderr, "\n");                                                                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                             \
        }                                                                                             \
    } while (0)

#define REQUIRE_OK(call) REQUIRE((call) == TAILRACE_OK, "it should succeed")

static inline tailrace_options* new_options(void) {
    tailrace_options* options = tailrace_options_new();
    REQUIRE(options != NULL, "out of memory");
    return options;
}

static inline void set_text(tailrace_options* options, const char* key, const char* value) {
    REQUIRE(tailrace_options_set(options, key, value) == TAILRACE_OK, "%s = %s", key, value);
}

static inline void set_number(tailrace_options* options, const char* key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set_text(options, key, text);
}

/* directory/part */
static inline void set_path(tailrace_options* options, const char* key, const char* directory,
                            const char* part) {
    char path[4200];
    const int length = snprintf(path, sizeof path, "%s/%s", directory, part);
    REQUIRE(length > 0 && length < (int)sizeof path, "the path is too long");
    set_text(options, key, path);
}

#endif
