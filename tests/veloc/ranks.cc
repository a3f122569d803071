// A C++ program that was written for VELOC, on the ranks of MPI. tests/mpi/veloc_test.py starts it.
//
//     veloc_ranks_cpp LEVEL save CONFIG
//     veloc_ranks_cpp LEVEL others CONFIG      reads what the ranks that saved have, on another number of
//     ranks
//     veloc_ranks_cpp LEVEL damaged CONFIG     does not get the file of rank 1, which is damaged
//
// LEVEL is `multiple` or `single`, the thread level of MPI. A version is under way and the client open at the
// end: MPI_Finalize closes it. As a program that was linked with VELOC, this one asks for libveloc-client and
// the MPI library alone.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <istream>
#include <ostream>
#include <string>
#include <veloc.hpp>

namespace {

constexpr int saving_ranks = 2;

void expect(bool good, const char* what) {
    if (good) return;
    std::printf("not as it should be: %s\n", what);
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

std::string text_of(int rank) {
    return "what rank " + std::to_string(rank) + " says";
}

void save(veloc::client_t& client, int rank) {
    int number = 5 + rank, heard = 0;
    client.mem_protect(0, &number, 1, sizeof number, "pair");
    client.mem_protect(
        1, [&](std::ostream& out) { out << text_of(rank); }, [](std::istream&) { return false; }, "pair");
    client.register_observer(VELOC_OBSERVE_CKPT_END,
                             [&](const std::string&, int version) { heard = version; });
    expect(client.checkpoint("pair", 3), "the checkpoint");
    expect(client.checkpoint_wait(), "the wait");
    expect(heard == 3, "what the observer has heard");
    expect(client.checkpoint_begin("file", 1), "the checkpoint in a file");
    std::ofstream(client.route_file("f")) << text_of(rank);
    expect(client.checkpoint_end(true) && client.checkpoint_wait(), "its end");
    expect(client.checkpoint("pair", 4), "a checkpoint that is under way at the end");
}

void read_others(veloc::client_t& client, int rank) {
    const int target = (rank + 1) % saving_ranks;
    int number = 0;
    std::string text;
    client.mem_protect(0, &number, 1, sizeof number);
    client.mem_protect(
        1, [](std::ostream&) {}, [&](std::istream& in) { return static_cast<bool>(std::getline(in, text)); });
    expect(client.restart_test("pair", 0, target) == 4, "the newest version");
    expect(client.restart("pair", 3, target), "the restart");
    expect(number == 5 + target && text == text_of(target), "what another rank has saved");
    expect(client.restart_begin("file", 1, target), "the restart with a file");
    std::ifstream file(client.route_file("f"));
    expect(std::getline(file, text) && text == text_of(target), "the file of another rank");
    expect(client.restart_end(true), "its end");
    expect(client.restart_test("pair", 0) == VELOC_FAILURE, "asked by all: a rank has saved nothing of it");
}

void find_damage(veloc::client_t& client) {
    expect(!client.restart_begin("file", 1, 1), "the file of rank 1 is damaged, and the restart says so");
    expect(client.restart_begin("file", 1), "the file of rank 0 is whole");
}

}  // namespace

int main(int argc, char** argv) {
    const std::string level = argc == 4 ? argv[1] : "";
    int rank = 0, provided = 0;
    MPI_Init_thread(&argc, &argv, level == "multiple" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    veloc::client_t* client = argc == 4 ? veloc::get_client(MPI_COMM_WORLD, argv[3]) : nullptr;
    expect(client != nullptr, "the client");
    expect(client == veloc::get_client(MPI_COMM_SELF, "none"), "there is one client");
    if (std::string(argv[2]) == "save")
        save(*client, rank);
    else if (std::string(argv[2]) == "damaged")
        find_damage(*client);
    else
        read_others(*client, rank);
    MPI_Finalize();
    if (rank == 0) std::puts("all is as it should be");
    return 0;
}
