// Memory that runs out on one rank while a transport is made: at each of its allocations. No rank may be left
// waiting for it, and none may have a transport that the others do not have.
//
// Exits with 0 when everything was right; says on stderr what was wrong.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "base/caught.h"
#include "transport/mpi_transport.h"

namespace {

constexpr unsigned longest_seconds = 100;  // then a rank waits for ever

bool counting = false;
int counted = 0, failing = 0;

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
    if (counting && ++counted == failing) throw std::bad_alloc();
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}

int main(int argc, char** argv) {
    using namespace tailrace::internal;
    int provided = 0, rank = 0, wrong = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    alarm(longest_seconds);
    for (const int victim : {0, 1}) {
        int reached = 1;
        for (int n = 1; reached != 0; ++n) {
            failing = rank == victim ? n : 0;
            counted = 0;
            counting = true;
            const auto made = catching([] { return make_mpi_transport(MPI_COMM_WORLD); });
            counting = false;
            reached = counted >= n ? 1 : 0;
            MPI_Bcast(&reached, 1, MPI_INT, victim, MPI_COMM_WORLD);
            const bool expected = reached == 0;
            if (made.ok() == expected && (made.ok() || made.status().code() == Code::out_of_memory)) continue;
            std::fprintf(stderr, "rank %d, allocation %d of rank %d: %s\n", rank, n, victim,
                         made.status().to_string().c_str());
            wrong = 1;
        }
    }
    MPI_Finalize();
    return wrong;
}
