// unwinding_mpi MODE DIRECTORY: one rank leaves its session and a collective file by an exception. Its
// handler is reached although the other rank has not closed its own, and MPI_Finalize brings what both have
// saved to its end.
#include <mpi.h>

#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tailrace_mpi.hpp>
#include <tailrace_mpi_collective.hpp>
#include <utility>
#include <vector>

namespace {

void use_session(int rank, const std::string& directory) {
    std::vector<int> state(100000);
    std::iota(state.begin(), state.end(), rank);
    tailrace::Session session = tailrace::open_mpi(MPI_COMM_WORLD, {{"shared_dir", directory + "/shared"},
                                                                    {"local_dir", directory + "/local"},
                                                                    {"ranks_per_node", "1"}});
    tailrace::CollectiveFile file(MPI_COMM_WORLD, directory + "/file", TAILRACE_FILE_WRITE);
    session.add("state", std::span(state));
    session.save(1);
    if (rank == 1) throw std::runtime_error("only here");
    // The handler's word. Only then is the session closed here.
    MPI_Recv(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    session.wait(1);
    session.close();
    new tailrace::CollectiveFile(std::move(file));  // rank 1 will not take part in closing it
}

}  // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    try {
        use_session(rank, argv[argc - 1]);
    } catch (const std::exception& error) {
        if (rank == 0) {
            std::fprintf(stderr, "unwinding_mpi: %s\n", error.what());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        MPI_Send(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
}
