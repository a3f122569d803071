/* A program without MPI that was written for VELOC: it goes on where it was.
 *
 *     veloc_single CONFIG STEPS [leave]    leave: drops a version at the end, and ends without VELOC_Finalize
 *     veloc_single CONFIG file             a version in a file of its own
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <veloc.h>

#define CHECK(call)                           \
    if ((call) != VELOC_SUCCESS) {            \
        printf("it has failed: %s\n", #call); \
        return 1;                             \
    }

static int file(void) {
    char routed[VELOC_MAX_NAME];
    CHECK(VELOC_Checkpoint_begin("file", 1))
    if (VELOC_Route_file("f", NULL) != VELOC_FAILURE) return 1;
    const int is_routed = VELOC_Route_file("f", routed) == VELOC_SUCCESS;
    if (is_routed != (routed[0] == '/')) return 1;
    if (is_routed) fclose(fopen(routed, "w"));
    if (VELOC_Checkpoint_end(is_routed) != VELOC_SUCCESS) return 1;
    CHECK(VELOC_Finalize(1))
    puts(is_routed ? "saved" : "not routed");
    return 0;
}

int main(int argc, char** argv) {
    static double plate[4096];
    int step = 0;
    if (argc != 3 && argc != 4) return 2;
    CHECK(VELOC_Init_single(0, argv[1]))
    if (strcmp(argv[2], "file") == 0) return file();
    CHECK(VELOC_Mem_protect(0, &step, 1, sizeof step))
    CHECK(VELOC_Region_protect(0, &step, 1, sizeof step, "plate"))
    CHECK(VELOC_Region_protect(1, plate, 4096, sizeof plate[0], "plate"))
    CHECK(VELOC_Mem_unprotect(0))
    CHECK(VELOC_Mem_clear())
    const int version = VELOC_Restart_test("plate", 0);
    if (version >= 0) CHECK(VELOC_Restart("plate", version))
    printf("from %d\n", step);
    for (; step < atoi(argv[2]);) {
        for (int i = 0; i < 4096; ++i) plate[i] = plate[i] * 0.5 + i + step;
        ++step;
        CHECK(VELOC_Checkpoint("plate", step))
    }
    double sum = 0;
    for (int i = 0; i < 4096; ++i) sum += plate[i];
    printf("to %d: %.17g\n", step, sum);
    if (argc == 4) {
        CHECK(VELOC_Checkpoint_begin("plate", step + 1))
        CHECK(VELOC_Checkpoint_mem())
        CHECK(VELOC_Checkpoint_end(0))
        return 0;
    }
    CHECK(VELOC_Region_unprotect(1, "plate"))
    CHECK(VELOC_Region_clear("plate"))
    CHECK(VELOC_Finalize(1))
    return 0;
}
