// The table of the interposer: for which of the program's open MPI files tailrace moves data, and
// how. It is an adapter over the public interface (tailrace_mpi_collective.h). The MPI library
// keeps the files open too, with the same view and the same file pointers, so every call that is
// not intercepted works as before.
//
// Threads: collective calls on one file come from one thread at a time, as everywhere in MPI-IO.
// Local functions (finding a file, its pointer) may be called from any thread. Decisions that all
// ranks must make alike are made together, when a file is opened.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "mpiio/mpi_file_pointer.h"
#include "mpiio/mpi_requests.h"
#include "tailrace_mpi_collective.h"

namespace tailrace::internal::mpiio {

// Why a collective call on a file of ours was left to the MPI library.
enum class Left : size_t { not_concurrent, split, shared_pointer, atomic, representation, refused, kinds };

struct OpenFile {
    std::string path;
    tailrace_file* file = nullptr;
    int rank = 0;
    bool statistics = false;  // print a line of them when the file is closed
    bool concurrent = false;  // MPI_THREAD_MULTIPLE on all ranks: nonblocking calls are ours too
    // How the program opened it. The MPI library reports the error of a call that does not fit.
    bool reads = true, writes = true;
    // Calls that change these are collective, so they are equal on all ranks.
    bool native = true;   // the data representation
    bool atomic = false;  // MPI's atomic mode, which we cannot provide
    MPI_Offset etype_bytes = 1;
    FilePointer pointer;
    std::atomic<bool> failure_told = false;
    Requests requests{*this};                                                    // of nonblocking calls
    std::array<std::atomic<uint64_t>, static_cast<size_t>(Left::kinds)> left{};  // calls, by reason

    void leave(Left why) { ++left[static_cast<size_t>(why)]; }
    // Whether collective calls are ours now. If they are not, this call counts as left to the MPI
    // library.
    bool takes_call() {
        if (native && !atomic) return true;
        leave(atomic ? Left::atomic : Left::representation);
        return false;
    }
    bool handled() const { return native && !atomic; }
};

// Null if the MPI library does the work alone.
std::shared_ptr<OpenFile> find(MPI_File file);
std::shared_ptr<OpenFile> take(MPI_File file);

// Call it after the MPI library has opened `file`. Collective over `communicator`.
void adopt(MPI_Comm communicator, const char* path, int mode, MPI_Info info, MPI_File file);

// Collective. Prints the line of statistics, if it is wanted, and closes our side. Returns an error
// class of MPI.
int let_go(OpenFile& file);

// Sets the view that the MPI library has taken.
void set_view(OpenFile& file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
              const char* representation);

// One collective transfer at `offset` (in etypes, of the view). It sets `status`. `moved`: the
// number of bytes asked for, by which a file pointer moves on. `handled` is false, on all ranks, if
// the MPI library should make the whole call instead.
struct Transfer {
    bool handled = true;
    int code = MPI_SUCCESS;
    MPI_Offset moved = 0;
};
Transfer write(OpenFile& file, MPI_Offset offset, const void* buffer, MPI_Count count, MPI_Datatype type,
               MPI_Status* status);
Transfer read(OpenFile& file, MPI_Offset offset, void* buffer, MPI_Count count, MPI_Datatype type,
              MPI_Status* status);

// Starts a transfer; `request` ends with it. It does not wait for other ranks. So a mistake in one
// rank's call becomes the request's failure on all ranks. Only if file.concurrent.
Transfer start_write(OpenFile& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                     MPI_Datatype type, MPI_Request* request);
Transfer start_read(OpenFile& file, MPI_Offset offset, void* buffer, MPI_Count count, MPI_Datatype type,
                    MPI_Request* request);

// Writes to standard error. This library writes by itself only here: what the user asked for, and
// why a file is left to the MPI library.
void write_line(std::string line);

// Sets the number of bytes that were moved.
void set_status(MPI_Status* status, uint64_t bytes);

// The class of errors that a code belongs to. Classes say little. So the first failure of a file is
// described in words, on standard error. Call it right after the call that failed in this thread.
int tell(OpenFile& file, tailrace_code code);

// Adds our settings, as the program sees them in MPI_File_get_info. `file` is null if it is not
// ours.
void add_hints(const OpenFile* file, MPI_Info info);

}  // namespace tailrace::internal::mpiio
