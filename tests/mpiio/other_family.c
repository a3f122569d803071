/* A program that says it runs with an MPI library that does not exist: libtailrace_mpiio.so, preloaded, has
 * to end it with a sentence before main.
 */
#include <stdio.h>
#include <string.h>

int PMPI_Get_library_version(char* version, int* length);

int PMPI_Get_library_version(char* version, int* length) {
#ifdef OPEN_MPI_BUILD
    strcpy(version, "MPICH Version: of a test");
#else
    strcpy(version, "Open MPI of a test");
#endif
    *length = (int)strlen(version);
    return 0;
}

int main(void) {
    return 0;
}
