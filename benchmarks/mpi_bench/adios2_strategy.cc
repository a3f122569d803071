// ADIOS2's engine BP5 as its documentation advises for checkpoints: a local array per rank, put deferred and
// so written from the program's memory, no statistics, the default way to aggregate (one writer per file
// collects through shared memory). Everything else has its default.
//
// A write, in order:
//   1  open, untimed: the documentation has programs do that well ahead
//   2  BeginStep, Put, EndStep. With AsyncWrite they copy the memory and leave writing to a thread: that is
//      the local phase, and yet within the time, since the thread writes meanwhile
//   3  Close, which waits for that thread and writes the index
//   4  fsync of all files: BP5 calls none
#include <adios2.h>

#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "strategy.h"

namespace mpi_bench {

namespace {

// The ranks of this rank's node.
class Node {
  public:
    Node() {
        check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &ranks_),
                  "finding the ranks of a node");
        MPI_Comm_rank(ranks_, &rank_);
        MPI_Comm_size(ranks_, &size_);
    }
    ~Node() { MPI_Comm_free(&ranks_); }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    bool is_mine(int number) const { return number % size_ == rank_; }

  private:
    MPI_Comm ranks_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
};

// What rank 0 sees in `directory`, a path per line, on all ranks: others may see what is new a while later.
std::string list_files(const Load& load, const std::string& directory) {
    std::string paths;
    if (load.rank == 0)
        for (const auto& entry : std::filesystem::directory_iterator(directory))
            paths += entry.path().string() + "\n";
    uint64_t bytes = paths.size();
    check_mpi(MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD), "telling names of files");
    paths.resize(bytes);
    check_mpi(MPI_Bcast(paths.data(), static_cast<int>(bytes), MPI_CHAR, 0, MPI_COMM_WORLD),
              "telling names of files");
    return paths;
}

// Every file once per node, since only its writer's node has dirty pages of it and BP5 does not tell which
// that is.
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

class Adios2 final : public Strategy {
  public:
    explicit Adios2(bool async) : async_(async) {}
    std::string name() const override { return async_ ? "adios2-bp5-async" : "adios2-bp5"; }
    std::string settings() const override {
        std::string text = "ADIOS2 " ADIOS2_VERSION_STR
                           ", BP5, a local array per rank, NumAggregators = NumSubFiles = K, StatsLevel = 0";
        if (async_) text += ", AsyncWrite = On (the rate includes local s)";
        return text + ", file opened before, fsync of all files after Close";
    }
    WriteTimes write(const Load& load, const std::string& directory, uint64_t) override {
        const Node node;
        const std::string path = path_in(directory);
        adios2::ADIOS adios(MPI_COMM_WORLD);
        adios2::IO io = adios.DeclareIO("checkpoint");
        io.SetEngine("BP5");
        // On fewer nodes than files NumAggregators makes K files, on more nodes NumSubFiles does: every node
        // has a writer at least.
        io.SetParameter("NumAggregators", std::to_string(load.files));
        io.SetParameter("NumSubFiles", std::to_string(load.files));
        io.SetParameter("StatsLevel", "0");
        if (async_) io.SetParameter("AsyncWrite", "On");
        const auto state =
            io.DefineVariable<uint8_t>(variable, {}, {}, {load.memory.size()}, adios2::ConstantDims);
        adios2::Engine engine = io.Open(path, adios2::Mode::Write);

        WriteTimes times;
        const Timer timer;
        engine.BeginStep();
        engine.Put(state, reinterpret_cast<const uint8_t*>(load.memory.data()), adios2::Mode::Deferred);
        engine.EndStep();
        if (async_) times.local_seconds = timer.stop();
        engine.Close();
        sync_files(load, node, path);
        if (load.rank == 0) sync_directory(directory);
        times.flush_seconds = timer.stop();
        return times;
    }
    ReadTimes read(const Load& load, const std::string& directory, std::span<std::byte> target) override {
        adios2::ADIOS adios(MPI_COMM_WORLD);
        adios2::IO io = adios.DeclareIO("restart");
        io.SetEngine("BP5");
        const Timer timer;
        adios2::Engine engine = io.Open(path_in(directory), adios2::Mode::ReadRandomAccess);
        auto state = io.InquireVariable<uint8_t>(variable);
        if (!state) throw std::runtime_error(path_in(directory) + " has no array");
        state.SetBlockSelection(static_cast<size_t>(load.rank));  // a local array is one block
        if (state.SelectionSize() != target.size())
            throw std::runtime_error(path_in(directory) + " has an array of another size");
        engine.Get(state, reinterpret_cast<uint8_t*>(target.data()), adios2::Mode::Deferred);
        engine.PerformGets();
        engine.Close();
        return {0, timer.stop()};
    }

  private:
    static constexpr const char* variable = "state";
    std::string path_in(const std::string& directory) const { return directory + "/" + name() + ".bp"; }
    const bool async_;
};

}  // namespace

std::unique_ptr<Strategy> make_adios2(bool async) {
    return std::make_unique<Adios2>(async);
}

}  // namespace mpi_bench
