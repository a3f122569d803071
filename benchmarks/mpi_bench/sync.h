// Makes durable what a library left in the page cache. Only its writer's node has dirty pages of a
// file, and the library does not tell which node that is.
#pragma once

#include <string>

#include "load.h"

namespace mpi_bench {

// The ranks of this rank's node. It is made before the clock starts, because a program has such an
// object anyway.
class Node {
  public:
    Node();
    ~Node() { MPI_Comm_free(&ranks_); }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    bool is_mine(int number) const { return number % size_ == rank_; }
    uint64_t sum(uint64_t value) const;  // over these ranks. Collective among them

  private:
    MPI_Comm ranks_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
};

// Syncs every file in `directory` once per node, then the directory. Collective.
void sync_files(const Load& load, const Node& node, const std::string& directory);

}  // namespace mpi_bench
