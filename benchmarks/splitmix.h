/* The mixing step of splitmix64. Its words look random, and equal values give equal words. */
#pragma once

#include <stdint.h>

#define SPLITMIX_STEP 0x9E3779B97F4A7C15u /* between the values of a sequence */

static inline uint64_t splitmix(uint64_t value) {
    value += SPLITMIX_STEP;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}
