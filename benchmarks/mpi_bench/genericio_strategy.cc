// GenericIO as its own benchmark uses it: POSIX files, one partition per file, and an array with extra space
// behind it, so that a rank writes array and checksum in one call. Everything else has its default.
//
// A write, in order:
//   1  write(): the first rank of a partition gives the file its size and header, then every rank adds its
//      own. With several partitions rank 0 writes one more small file, which tells where each rank is
//   2  fsync of all files, because GenericIO calls none
#include <GenericIO.h>

#include <cstdint>
#include <iostream>
#include <stdexcept>

#include "strategy.h"
#include "sync.h"

namespace mpi_bench {

namespace {

// Keeps standard output quiet, because GenericIO prints what it wrote each time.
class Quiet {
  public:
    Quiet() : buffer_(std::cout.rdbuf(nullptr)) {}
    ~Quiet() { std::cout.rdbuf(buffer_); }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

  private:
    std::streambuf* buffer_;
};

// Sizes of ranks are multiples of this type's size.
using Element = uint64_t;

class GenericIo final : public Strategy {
  public:
    std::string name() const override { return "genericio"; }
    std::string settings() const override {
        return "GenericIO, K partitions, POSIX files, an array with extra space for its CRC-64, "
               "fsync of all files after write";
    }
    WriteTimes write(const Load& load, const std::string& directory, uint64_t) override {
        const Node node;
        const Timer timer;
        {
            gio::GenericIO file(MPI_COMM_WORLD, path_in(directory), gio::GenericIO::FileIOPOSIX);
            file.setPartition(load.file);
            file.setNumElems(load.memory.size() / sizeof(Element));
            // It only reads the bytes, and leaves the room behind them unchanged.
            add_array(file, const_cast<std::byte*>(load.memory.data()));
            const Quiet quiet;
            file.write();
        }
        sync_files(load, node, directory);
        return {0, timer.stop()};
    }
    ReadTimes read(const Load&, const std::string& directory, Memory& target) override {
        const Timer timer;
        gio::GenericIO file(MPI_COMM_WORLD, path_in(directory), gio::GenericIO::FileIOPOSIX);
        file.openAndReadHeader();
        if (file.readNumElems() * sizeof(Element) != target.size())
            throw std::runtime_error(path_in(directory) + " has an array of another size");
        add_array(file, target.data());
        file.readData(-1, false, false);  // the array of this rank's number, without statistics
        return {0, timer.stop()};
    }

  private:
    static std::string path_in(const std::string& directory) { return directory + "/genericio"; }
    static void add_array(gio::GenericIO& file, std::byte* bytes) {
        if (file.requestedExtraSpace() > Memory::room_behind)
            throw std::runtime_error("this GenericIO needs more room behind an array than there is");
        file.addVariable("state", reinterpret_cast<Element*>(bytes), gio::GenericIO::VarHasExtraSpace);
    }
};

}  // namespace

std::unique_ptr<Strategy> make_genericio() {
    return std::make_unique<GenericIo>();
}

}  // namespace mpi_bench
