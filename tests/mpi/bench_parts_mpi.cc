// Parts of tailrace-mpi-bench by themselves, on two ranks: a wrong byte is noticed, what does not fit is
// refused by all, what killed runs left is removed and nothing else.
//
//   bench_parts_mpi DIR
#include <fcntl.h>
#include <mpi.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "flush_record.h"
#include "measure.h"
#include "space.h"

namespace {

using namespace mpi_bench;
namespace fs = std::filesystem;

int rank = 0, failures = 0;

void expect(bool condition, const std::string& what) {
    if (condition) return;
    ++failures;
    std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
}

// The sentence that `call` is refused with, or nothing.
template <class Exception, class Call>
std::string refusal(const Call& call) {
    try {
        call();
    } catch (const Exception& error) {
        return error.what();
    }
    return "";
}

// Keeps the bytes in memory; its read number `wrong_read` flips a bit of byte `wrong_byte` on rank 1.
class Forgetful final : public Strategy {
  public:
    Forgetful(int wrong_read, size_t wrong_byte) : wrong_read_(wrong_read), wrong_byte_(wrong_byte) {}
    std::string name() const override { return "forgetful"; }
    std::string settings() const override { return ""; }
    WriteTimes write(const Load& load, const std::string&, uint64_t) override {
        kept_ = load.memory;
        return {};
    }
    ReadTimes read(const Load& load, const std::string&, Memory& target) override {
        target = kept_;
        if (reads_++ == wrong_read_ && load.rank == 1) target.data()[wrong_byte_] ^= std::byte{1};
        return {};
    }

  private:
    const int wrong_read_;
    const size_t wrong_byte_;
    int reads_ = 0;
    Memory kept_;
};

void wrong_bytes_are_noticed() {
    Load load;
    make_load(load, 4096, 20, 1, 1);
    load.memory = Memory(load.bytes);
    const auto run = [&](int wrong_read, size_t wrong_byte) {
        Forgetful strategy(wrong_read, wrong_byte);
        Times times;
        return refusal<std::runtime_error>([&] { run_once(strategy, load, "", 7, times); });
    };
    expect(run(-1, 0).empty(), "right bytes are right");
    for (const int wrong_read : {0, 1})
        for (const size_t wrong_byte : {size_t{0}, size_t{1001}, load.memory.size() - 1}) {
            const std::string wanted = "byte " + std::to_string(wrong_byte / 8 * 8) + " of rank 1";
            const std::string said = run(wrong_read, wrong_byte);
            expect(rank == 1 ? said.find(wanted) != std::string::npos : said.empty(),
                   "a wrong byte " + std::to_string(wrong_byte) + " in read " + std::to_string(wrong_read) +
                       ": " + said);
        }
}

void what_does_not_fit_is_refused(const std::string& top) {
    Space space(top + "/disk", top + "/local", "tailrace-mpi-bench-room");
    const uint64_t pib = uint64_t{1} << 50;
    const auto refused = [&](uint64_t shared, uint64_t local) {
        return refusal<std::invalid_argument>([&] { space.check_room(shared, local); });
    };
    expect(refused(1, 1).empty(), "two bytes fit");
    expect(refused(pib, 0).find("disk") != std::string::npos, "all refuse 1 PiB in the shared directory");
    expect(refused(1, rank == 1 ? pib : 0).find("local") != std::string::npos, "all refuse 1 PiB of rank 1");
    // Both directories are on one file system: what fits by itself need not fit beside the other.
    uint64_t half = fs::space(top).available * 6 / 10;
    MPI_Bcast(&half, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    expect(refused(half, 0).empty(), "a part of the disk fits");
    expect(!refused(half, rank == 1 ? half : 0).empty(), "twice as much does not");
    space.close();
}

void what_killed_runs_left_goes(const std::string& top) {
    const std::string disk = top + "/disk", lock = "/.tailrace-mpi-bench.lock";
    int held = -1;
    if (rank == 0) {
        for (const char* name : {"dead", "alive", "notes"})
            fs::create_directories(disk + "/tailrace-mpi-bench-" + name + "/1");
        std::ofstream(disk + "/tailrace-mpi-bench-dead" + lock).close();
        held = ::open((disk + "/tailrace-mpi-bench-alive" + lock).c_str(), O_RDWR | O_CREAT, 0600);
        expect(::flock(held, LOCK_EX | LOCK_NB) == 0, "a lock");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    {
        Space space(disk, top + "/local", "tailrace-mpi-bench-own");
        const std::string first = space.new_place(), second = space.new_place();
        expect(!fs::exists(first) && fs::is_empty(second), "one place at a time");
        if (rank == 0) {
            expect(!fs::exists(disk + "/tailrace-mpi-bench-dead"), "what a killed run left is removed");
            expect(fs::exists(disk + "/tailrace-mpi-bench-alive/1"), "what a run uses stays");
            expect(fs::exists(disk + "/tailrace-mpi-bench-notes/1"),
                   "what has no lock is not the benchmark's");
        }
        space.close();
        expect(!fs::exists(disk + "/tailrace-mpi-bench-own") && fs::is_empty(top + "/local"), "it cleans up");
    }
    if (rank == 0) ::close(held);
}

void leaders_are_read_from_records(const std::string& top) {
    if (rank != 0) return;
    expect(read_leaders(top + "/none", 1).empty(), "no record, no leaders");
    fs::create_directories(top + "/record");
    const std::string leader =
        R"("role":"leader","seconds":9,"plan_seconds":0.5,"prepare_seconds":0.25,"move_seconds":1,)"
        R"("commit_seconds":0.25,"local_bytes":10,"received_bytes":5})";
    const std::string follower = R"({"node":1,"role":"follower","seconds":9})";
    std::ofstream(top + "/record/a.jsonl")
        << R"({"record":"session"})"
        << "\n"
        << R"({"record":"epoch","epoch":4,"state":"committed","nodes":[{"node":0,)" << leader << "]}\n"
        << R"({"record":"epoch","epoch":5,"state":"committed","nodes":[{"node":0,)" << leader << ","
        << follower << R"(,{"node":2,)" << leader << "]}\n"
        << R"({"record":"epoch","epoch":6,"state":"failed","nodes":[{"node":0,)" << leader << "]}\n";
    const auto leaders = read_leaders(top + "/record", 5);
    expect(leaders.size() == 2 && leaders[0].node == 0 && leaders[1].node == 2, "the leaders of an epoch");
    for (const Leader& one : leaders)
        expect(one.seconds == 2 && one.bytes == 15, "a leader's own time and bytes");
    expect(read_leaders(top + "/record", 6).empty(), "a failed flush has none");
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const std::string top = argv[1];
    wrong_bytes_are_noticed();
    what_does_not_fit_is_refused(top);
    what_killed_runs_left_goes(top);
    leaders_are_read_from_records(top);
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
