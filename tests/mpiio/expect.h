/* What the programs of these tests say when something is not as it should be. */
#pragma once

#include <stdio.h>

static int rank, ranks, wrong;

static void expect(int claim, const char* what) {
    if (claim) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    wrong = 1;
}
