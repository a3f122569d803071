// tailrace_mpi_collective.hpp - collective files of the C++ interface: two-layer collective I/O on
// an MPI communicator. The rules of tailrace_mpi_collective.h on collective calls, memory, threads
// and failures apply here too. Failures are thrown as tailrace::Error. Link with libtailrace_mpi.
//
//     tailrace::CollectiveFile file(MPI_COMM_WORLD, "fields.dat", TAILRACE_FILE_WRITE);
//     file.set_view(0, filetype);
//     file.write(0, field.data(), 1, memorytype);      // collective
//     file.close();
#ifndef TAILRACE_MPI_COLLECTIVE_HPP
#define TAILRACE_MPI_COLLECTIVE_HPP

#include "tailrace.hpp"

#if __cplusplus >= 201703L  // else tailrace.hpp says what is missing

#include <exception>
#include <utility>

#include "tailrace_mpi_collective.h"

namespace tailrace {
inline namespace v0 {

// A call in the background. Movable. If the program has not waited for the call, the destructor
// waits, because the call uses the program's memory. It also waits when an exception destroys the
// object. The call's result is then lost.
class PendingIo {
  public:
    explicit PendingIo(tailrace_io* io) : io_(io) {}
    PendingIo(PendingIo&& other) noexcept : io_(std::exchange(other.io_, nullptr)) {}
    PendingIo& operator=(PendingIo&& other) noexcept {
        std::swap(io_, other.io_);
        return *this;
    }
    ~PendingIo() {
        if (io_ != nullptr) tailrace_io_wait(io_, nullptr);
    }

    bool done() const {
        int over = 0;
        detail::check(tailrace_io_test(io_, &over));
        return over != 0;
    }
    // Returns the bytes that this rank has read or written. Call it once.
    uint64_t wait() {
        uint64_t bytes = 0;
        detail::check(tailrace_io_wait(std::exchange(io_, nullptr), &bytes));
        return bytes;
    }

  private:
    tailrace_io* io_;
};

class CollectiveFile {
  public:
    using FilePieces = span<const tailrace_file_piece>;
    using MemoryPieces = span<const tailrace_memory_piece>;

    CollectiveFile(MPI_Comm communicator, const std::string& path, tailrace_file_mode mode,
                   MPI_Info info = MPI_INFO_NULL) {
        detail::check(tailrace_file_open(communicator, path.c_str(), mode, info, &file_));
        MPI_Comm_size(communicator, &ranks_);
    }
    CollectiveFile(CollectiveFile&& other) noexcept
        : file_(std::exchange(other.file_, nullptr)), ranks_(other.ranks_), exceptions_(other.exceptions_) {}
    CollectiveFile& operator=(CollectiveFile&& other) noexcept {
        std::swap(file_, other.file_);
        std::swap(ranks_, other.ranks_);
        std::swap(exceptions_, other.exceptions_);
        return *this;
    }
    // Closes the file, which is collective. Failures go to the log, whereas close() throws them. If an
    // exception destroys the object on one of several ranks, the destructor does not close the file,
    // because it would wait for the other ranks. The file then stays open.
    ~CollectiveFile() {
        if (file_ == nullptr || (ranks_ > 1 && std::uncaught_exceptions() > exceptions_)) return;
        tailrace_file_close(file_);
    }
    void close() { detail::check(tailrace_file_close(std::exchange(file_, nullptr))); }
    void sync() { detail::check(tailrace_file_sync(file_)); }

    void write(FilePieces file, MemoryPieces memory) {
        detail::check(
            tailrace_file_write_pieces(file_, file.size(), file.data(), memory.size(), memory.data()));
    }
    uint64_t read(FilePieces file, MemoryPieces memory) {
        uint64_t bytes = 0;
        detail::check(
            tailrace_file_read_pieces(file_, file.size(), file.data(), memory.size(), memory.data(), &bytes));
        return bytes;
    }
    PendingIo start_write(FilePieces file, MemoryPieces memory) {
        tailrace_io* io = nullptr;
        detail::check(tailrace_file_start_write_pieces(file_, file.size(), file.data(), memory.size(),
                                                       memory.data(), &io));
        return PendingIo(io);
    }
    PendingIo start_read(FilePieces file, MemoryPieces memory) {
        tailrace_io* io = nullptr;
        detail::check(tailrace_file_start_read_pieces(file_, file.size(), file.data(), memory.size(),
                                                      memory.data(), &io));
        return PendingIo(io);
    }

    void set_view(uint64_t displacement, MPI_Datatype filetype) {
        detail::check(tailrace_file_set_view(file_, displacement, filetype));
    }
    void write(uint64_t position, const void* buffer, uint64_t count, MPI_Datatype memorytype) {
        detail::check(tailrace_file_write_view(file_, position, buffer, count, memorytype));
    }
    uint64_t read(uint64_t position, void* buffer, uint64_t count, MPI_Datatype memorytype) {
        uint64_t bytes = 0;
        detail::check(tailrace_file_read_view(file_, position, buffer, count, memorytype, &bytes));
        return bytes;
    }
    PendingIo start_write(uint64_t position, const void* buffer, uint64_t count, MPI_Datatype memorytype) {
        tailrace_io* io = nullptr;
        detail::check(tailrace_file_start_write_view(file_, position, buffer, count, memorytype, &io));
        return PendingIo(io);
    }
    PendingIo start_read(uint64_t position, void* buffer, uint64_t count, MPI_Datatype memorytype) {
        tailrace_io* io = nullptr;
        detail::check(tailrace_file_start_read_view(file_, position, buffer, count, memorytype, &io));
        return PendingIo(io);
    }

    // Sums over all ranks. Collective.
    tailrace_file_statistics statistics() {
        tailrace_file_statistics statistics{};
        detail::check(tailrace_file_get_statistics(file_, &statistics));
        return statistics;
    }
    std::string describe(const tailrace_file_statistics& statistics) {
        const char* line = tailrace_file_describe(file_, &statistics);
        return line == nullptr ? std::string() : std::string(line);
    }

  private:
    tailrace_file* file_ = nullptr;
    int ranks_ = 1;
    int exceptions_ = std::uncaught_exceptions();  // the number in flight when the file was opened
};

}  // namespace v0
}  // namespace tailrace

#endif  // C++17

#endif
