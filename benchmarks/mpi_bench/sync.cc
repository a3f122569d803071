#include "sync.h"

#include <filesystem>
#include <sstream>

namespace mpi_bench {

namespace {

// What rank 0 sees in `directory`, a path per line, on all ranks. Others may see new files only a
// while later.
std::string list_files(const Load& load, const std::string& directory) {
    std::string paths;
    if (load.rank == 0)
        for (const auto& entry : std::filesystem::directory_iterator(directory))
            paths += entry.path().string() + "\n";
    return broadcast(paths, 0);
}

}  // namespace

Node::Node() {
    check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &ranks_),
              "finding the ranks of a node");
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
}

uint64_t Node::sum(uint64_t value) const {
    uint64_t all = 0;
    check_mpi(MPI_Allreduce(&value, &all, 1, MPI_UINT64_T, MPI_SUM, ranks_), "adding up");
    return all;
}

void sync_files(const Load& load, const Node& node, const std::string& directory) {
    MPI_Barrier(MPI_COMM_WORLD);
    std::istringstream paths(list_files(load, directory));
    int number = 0;
    for (std::string path; std::getline(paths, path);) {
        if (!node.is_mine(number++)) continue;
        wait_until_there(path);
        sync_file(path);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (load.rank == 0) sync_directory(directory);
}

}  // namespace mpi_bench
