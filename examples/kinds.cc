// kinds.cc - one program with every kind of data that a simulation has, and how each is saved.
//
//     mpicxx -std=c++20 kinds.cc -o kinds $(pkg-config --cflags --libs tailrace_mpi)
//     mpiexec -n 4 ./kinds DIRECTORY [STEPS]
//
// Walkers hop over a row of cells, each rank has some of the cells, and walkers go to the rank that has the
// cell they are in. Run it, kill it, and run it again with another number of ranks: the result is the same.
// docs/start.md explains the parts.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <tailrace_mpi.hpp>
#include <vector>

constexpr uint64_t cells = 1000, walkers_at_start = 5000, save_every = 100;

struct Walker {
    uint64_t number, cell;
};

// Random numbers without state: the same for a walker and a step, whichever rank has the walker.
uint64_t random_number(uint64_t walker, uint64_t step) {
    uint64_t z = walker * 0x9e3779b97f4a7c15u + step * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 30)) * 0x94d049bb133111ebu;
    return z ^ (z >> 29);
}

// Sends every walker to the rank that has its cell. A program has such a function for its own steps, and it
// is also what puts a restored list in place.
void send_home(std::vector<Walker>& walkers, int ranks) {
    std::vector<std::vector<Walker>> leaving(static_cast<size_t>(ranks));
    const auto owner = [&](uint64_t cell) {  // rank r has the cells from cells * r / ranks on
        return ((cell + 1) * static_cast<uint64_t>(ranks) - 1) / cells;
    };
    for (const Walker& walker : walkers) leaving[owner(walker.cell)].push_back(walker);
    std::vector<int> sent, received(leaving.size()), sent_from{0}, received_from{0};
    std::vector<Walker> outgoing;
    for (const auto& group : leaving) {
        sent.push_back(static_cast<int>(group.size() * sizeof(Walker)));
        sent_from.push_back(sent_from.back() + sent.back());
        outgoing.insert(outgoing.end(), group.begin(), group.end());
    }
    MPI_Alltoall(sent.data(), 1, MPI_INT, received.data(), 1, MPI_INT, MPI_COMM_WORLD);
    for (const int bytes : received) received_from.push_back(received_from.back() + bytes);
    walkers.resize(static_cast<size_t>(received_from.back()) / sizeof(Walker));
    MPI_Alltoallv(outgoing.data(), sent.data(), sent_from.data(), MPI_BYTE, walkers.data(), received.data(),
                  received_from.data(), MPI_BYTE, MPI_COMM_WORLD);
}

void simulate(const std::string& directory, uint64_t steps) {
    tailrace::Options options{{"shared_dir", directory}};
    tailrace::Session session = tailrace::open_mpi(MPI_COMM_WORLD, options);
    const auto rank = static_cast<uint64_t>(session.rank()),
               ranks = static_cast<uint64_t>(session.rank_count());
    const uint64_t first = cells * rank / ranks, own = cells * (rank + 1) / ranks - first;

    // A decomposed array: this rank has cells first to first + own of all, with a ghost cell at each end.
    std::vector<double> visits(own + 2);
    session.add_array("visits", std::span(visits), {cells}, {first}, {own},
                      {.memory_shape = {own + 2}, .memory_offset = {1}});
    // A list: each rank has as many walkers as are in its cells.
    std::vector<Walker> walkers;
    session.add_list("walkers", walkers);
    // Replicated values: every rank has the same.
    uint64_t step = 0;
    double hops = 0;
    session.add_replicated("step", step);
    session.add_replicated("hops", hops);

    if (session.try_restore()) {
        send_home(walkers, session.rank_count());
        if (rank == 0) std::printf("going on from step %" PRIu64 "\n", step);
    } else {
        for (uint64_t number = rank; number < walkers_at_start; number += ranks)
            walkers.push_back({number, random_number(number, 0) % cells});
        send_home(walkers, session.rank_count());
    }

    while (step < steps) {
        ++step;
        for (Walker& walker : walkers) {
            walker.cell = (walker.cell + cells + random_number(walker.number, step) % 21 - 10) % cells;
        }
        send_home(walkers, session.rank_count());
        for (const Walker& walker : walkers) visits[1 + walker.cell - first] += 1;
        hops += walkers_at_start;
        if (step % save_every == 0) session.save(step);  // one copy in memory; the rest happens meanwhile
    }
    session.close();  // waits for what is still on its way

    uint64_t sum = 0, all = 0;
    for (uint64_t i = 0; i < own; ++i) sum += static_cast<uint64_t>(visits[1 + i]) * (2 * (first + i) + 1);
    for (const Walker& walker : walkers) sum += (walker.number + 1) * (walker.cell + 1);
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("after %" PRIu64 " steps and %.0f hops the sum is %016" PRIx64 "\n", step, hops, all);
}

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    const uint64_t steps = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000;
    if (argc < 2 || argc > 3 || steps == 0) {
        std::fprintf(stderr, "usage: kinds DIRECTORY [STEPS]\n");
        MPI_Finalize();
        return 2;
    }
    try {
        simulate(argv[1], steps);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kinds: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
