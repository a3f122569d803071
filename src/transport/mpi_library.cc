#include "transport/mpi_library.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

namespace tailrace::internal {

namespace {

// One MPI library's handles mean nothing to another. A program that runs with another MPI library than this
// was built with ends in its first call, often by SIGSEGV. So this says why, when the library is loaded. The
// log is not used: no program can have set it yet.
__attribute__((constructor)) void check_the_mpi_library() {
#ifdef OPEN_MPI
    constexpr bool for_open_mpi = true;
#else
    constexpr bool for_open_mpi = false;
#endif
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
    int length = 0;
    // One of the few calls that are allowed before MPI_Init.
    if (PMPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return;
    const std::string_view running = text.data();
    const bool is_open_mpi = running.find("Open MPI") != std::string_view::npos;
    if (is_open_mpi == for_open_mpi) return;
    const std::string line =
        "tailrace: this tailrace was built with " + std::string(for_open_mpi ? "Open MPI" : "MPICH") +
        ", and the program runs with \"" + std::string(running.substr(0, running.find('\n'))) +
        "\", which cannot work: build the program with the compiler of the same MPI library "
        "(on Debian mpicc.mpich or mpicc.openmpi), or use a tailrace that was built with the "
        "program's\n";
    (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

// The launcher of another MPI library starts N programs that each take themselves to be alone. All of them
// would write the same checkpoint. Launchers tell each process how many there are, so this can be noticed.
std::string suspected_singleton(MPI_Comm communicator) {
    int world = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    int size = 0;
    MPI_Comm_size(communicator, &size);
    if (world != 1 || size != 1) return {};
    for (const char* variable :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"}) {
        const char* text = std::getenv(variable);
        if (text == nullptr || std::atoi(text) <= 1) continue;
        return std::string("this process was started as one of ") + text + " (" + variable +
               "), but MPI says that it is alone: does the launcher (mpirun, srun) belong to another MPI "
               "library "
               "than the program?";
    }
    return {};
}

}  // namespace tailrace::internal
