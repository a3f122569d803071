/* nothing_left_mpi DIRECTORY: after a session is closed MPI has no message of it left that nobody received.
 * Sends and receives are counted through MPI's profiling interface, on all ranks together.
 *
 * Exits with 0 when as many were received as were sent, and there were some; says on stderr how many.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "tailrace_mpi.h"

static _Atomic long sends, receives;

int MPI_Isend(const void* memory, int count, MPI_Datatype type, int target, int tag, MPI_Comm communicator,
              MPI_Request* request) {
    ++sends;
    return PMPI_Isend(memory, count, type, target, tag, communicator, request);
}

int MPI_Irecv(void* memory, int count, MPI_Datatype type, int source, int tag, MPI_Comm communicator,
              MPI_Request* request) {
    ++receives;
    return PMPI_Irecv(memory, count, type, source, tag, communicator, request);
}

int MPI_Imrecv(void* memory, int count, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
    ++receives;
    return PMPI_Imrecv(memory, count, type, message, request);
}

static void need(tailrace_code code, const char* call) {
    if (code == TAILRACE_OK) return;
    fprintf(stderr, "%s: %s\n", call, tailrace_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
    int provided = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < 3; ++round) {
        tailrace_options* options = tailrace_options_new();
        need(tailrace_options_set(options, "shared_dir", argv[1]), "shared_dir");
        char local[4096];
        snprintf(local, sizeof local, "%s/local", argv[1]);
        need(tailrace_options_set(options, "local_dir", local), "local_dir");
        need(tailrace_options_set(options, "ranks_per_node", "2"), "ranks_per_node");
        tailrace_session* session = NULL;
        need(tailrace_open_mpi(MPI_COMM_WORLD, options, &session), "open");
        double state[1000] = {0};
        need(tailrace_register(session, "state", state, sizeof state), "register");
        // In the last round one rank saves less: what the others save beyond that fails, while it closes.
        const uint64_t saves = round == 2 && rank == 3 ? 2 : 5;
        for (uint64_t epoch = 1; epoch <= saves; ++epoch)
            (void)tailrace_save(session, (uint64_t)round * 10 + epoch);
        const tailrace_code closed = tailrace_close(session);
        if (round < 2) need(closed, "close");
        tailrace_options_free(options);
    }
    long mine[2] = {sends, receives}, all[2] = {0, 0};
    MPI_Reduce(mine, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    const int wrong = rank == 0 && (all[0] != all[1] || all[0] == 0);
    if (wrong) fprintf(stderr, "%ld messages were sent and %ld received\n", all[0], all[1]);
    MPI_Finalize();
    return wrong;
}
