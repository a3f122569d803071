// ADIOS2's engine BP5 as its documentation advises for checkpoints. Each rank has a local array, which is put
// deferred and so written from the program's memory. There are no statistics, and the default way to
// aggregate (one writer per file collects through shared memory). Everything else has its default.
//
// A write, in order:
//   1  open, untimed, because the documentation has programs do that well ahead
//   2  BeginStep, Put, EndStep. With AsyncWrite they copy the memory and leave writing to a thread. That
//      is the local phase, but it is part of the time, because the thread writes meanwhile
//   3  Close, which waits for that thread and writes the index
//   4  fsync of all files, because BP5 calls none
#include <adios2.h>

#include <stdexcept>

#include "strategy.h"
#include "sync.h"

namespace mpi_bench {

namespace {

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
        // On fewer nodes than files NumAggregators makes K files; on more nodes NumSubFiles does,
        // because every node has at least one writer.
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
    ReadTimes read(const Load& load, const std::string& directory, Memory& target) override {
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
