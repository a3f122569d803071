// The load of tailrace-mpi-bench: what each rank has, which ranks share a file, and the small
// functions that every strategy needs. Every failure is an exception that ends the job.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mpi_bench {

// Bytes with a little room behind them, where GenericIO keeps its checksum while it writes or reads
// them.
class Memory {
  public:
    static constexpr size_t room_behind = 8;

    explicit Memory(size_t bytes = 0) : all_(bytes + room_behind) {}
    size_t size() const { return all_.size() - room_behind; }
    std::byte* data() { return all_.data(); }
    const std::byte* data() const { return all_.data(); }
    std::byte* begin() { return data(); }
    const std::byte* begin() const { return data(); }
    std::byte* end() { return data() + size(); }
    const std::byte* end() const { return data() + size(); }

  private:
    std::vector<std::byte> all_;
};

// A rank's state, and its place among the ranks that share a file. Rank r of N belongs to file r *
// K / N, and its bytes lie behind those of the lower ranks there.
struct Load {
    int rank = 0, size = 1;
    MPI_Comm group = MPI_COMM_NULL;  // the ranks of this rank's file
    int group_rank = 0;
    int files = 1, file = 0;
    uint64_t bytes = 0;        // of this rank
    uint64_t offset = 0;       // in the file
    uint64_t group_bytes = 0;  // of the file
    uint64_t all_bytes = 0;    // of the job
    uint64_t seed = 1;
    Memory memory;  // of `bytes`; the program allocates it when it knows that all fits

    ~Load();
    Load() = default;
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;
};
// Collective. Sizes differ by up to `imbalance_percent`. Equal seeds give equal sizes.
void make_load(Load& load, uint64_t bytes, uint32_t imbalance_percent, int files, uint64_t seed);
// Fills the memory with other bytes for every dump, so that an earlier file cannot be taken for
// this one.
void fill(Load& load, uint64_t dump);
// Compares every byte of `found` with what fill() made. The sentence names the first that differs.
void check(const Load& load, uint64_t dump, std::span<const std::byte> found, const std::string& who);

// Measures the seconds of the slowest rank. Begins when all ranks have come. Collective.
class Timer {
  public:
    Timer();
    double seconds() const;  // of this rank
    double stop() const;

  private:
    double start_;
};

double slowest(double seconds);  // of all ranks. Collective

std::string broadcast(std::string text, int from);  // the text of that rank. Collective
// Throws std::invalid_argument on all ranks, with the sentence of the first rank that has one.
// Collective.
void refuse_together(const std::string& why);

[[noreturn]] void fail(const std::string& what);     // with errno's text
void check_mpi(int code, const std::string& doing);  // throws with MPI's text
std::string file_name(const std::string& directory, const std::string& strategy, int number);

// Plain files: these transfer the whole piece or throw.
enum class Cache { through, around };
void write_file(const std::string& path, uint64_t offset, std::span<const std::byte> data, Cache cache);
void read_file(const std::string& path, uint64_t offset, std::span<std::byte> data);
// Waits until this node sees the file, which takes a second on some network file systems. Ten
// seconds at most.
void wait_until_there(const std::string& path);
// Makes an empty file for the ranks of a group, and waits until all of them see it. Collective in the group.
void make_shared_file(const Load& load, const std::string& path);
void sync_file(const std::string& path);  // and drops it from the cache
void sync_directory(const std::string& path);

}  // namespace mpi_bench
