// The table of the interposer: which of the program's open MPI files tailrace moves data for, and how. An
// adapter over the public interface (tailrace_mpi_collective.h); the MPI library keeps the files open too,
// with the same view and the same file pointers, so that every call that is not intercepted works on.
//
// Threads: of one file, collective calls come from one thread at a time, as everywhere in MPI-IO; what is
// local (finding a file, its pointer) may be called from any. Decisions that all ranks have to make alike are
// made together, when a file is opened.
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

// Why a collective call on a file that is ours was left to the MPI library all the same.
enum class Left : size_t { not_concurrent, split, shared_pointer, atomic, representation, refused, kinds };

struct OpenFile {
    std::string path;
    tailrace_file* file = nullptr;
    int rank = 0;
    bool statistics = false;  // a line of them is wanted when the file is closed
    bool concurrent = false;  // MPI_THREAD_MULTIPLE on all ranks: nonblocking calls are ours too
    // What the program opened it for; else the MPI library has an error to tell.
    bool reads = true, writes = true;
    // Changed by calls that are collective, and so alike on all ranks.
    bool native = true;   // the data representation
    bool atomic = false;  // MPI's atomic mode, which is not ours to give
    MPI_Offset etype_bytes = 1;
    FilePointer pointer;
    std::atomic<bool> failure_told = false;
    Requests requests{*this};                                                    // those of nonblocking calls
    std::array<std::atomic<uint64_t>, static_cast<size_t>(Left::kinds)> left{};  // calls, by reason

    void leave(Left why) { ++left[static_cast<size_t>(why)]; }
    // Are collective calls ours now? Where they are not, this counts as one that is left.
    bool takes_call() {
        if (native && !atomic) return true;
        leave(atomic ? Left::atomic : Left::representation);
        return false;
    }
    bool handled() const { return native && !atomic; }
};

// Null when the MPI library does the work alone.
std::shared_ptr<OpenFile> find(MPI_File file);
std::shared_ptr<OpenFile> take(MPI_File file);

// After the MPI library has opened `file`. Collective over `communicator`.
void adopt(MPI_Comm communicator, const char* path, int mode, MPI_Info info, MPI_File file);

// Collective: prints the line of statistics, if it is wanted, and closes our side. An error class of MPI.
int let_go(OpenFile& file);

// The view that the MPI library has taken.
void set_view(OpenFile& file, MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
              const char* representation);

// One collective transfer at `offset` (in etypes, of the view); sets `status`. `moved`: the bytes by which a
// file pointer moves on, which are those that were asked for. `handled` is false, on all ranks, when the MPI
// library should make the call instead: it does all of it.
struct Transfer {
    bool handled = true;
    int code = MPI_SUCCESS;
    MPI_Offset moved = 0;
};
Transfer write(OpenFile& file, MPI_Offset offset, const void* buffer, MPI_Count count, MPI_Datatype type,
               MPI_Status* status);
Transfer read(OpenFile& file, MPI_Offset offset, void* buffer, MPI_Count count, MPI_Datatype type,
              MPI_Status* status);

// The same, started: `request` ends with it. Not waiting for other ranks, so what is wrong with a call on one
// of them becomes the request's failure on all. Only if file.concurrent.
Transfer start_write(OpenFile& file, MPI_Offset offset, const void* buffer, MPI_Count count,
                     MPI_Datatype type, MPI_Request* request);
Transfer start_read(OpenFile& file, MPI_Offset offset, void* buffer, MPI_Count count, MPI_Datatype type,
                    MPI_Request* request);

// To standard error. The one place where this library says something by itself: what the user asked for, and
// why a file is left to the MPI library.
void write_line(std::string line);

// What was moved.
void set_status(MPI_Status* status, uint64_t bytes);

// The class of errors that a code belongs to. They say little: the first failure of a file is told in words,
// on standard error, right after the call that failed in this thread.
int tell(OpenFile& file, tailrace_code code);

// Our settings, as the program sees them in MPI_File_get_info. `file` is null when it is not ours.
void add_hints(const OpenFile* file, MPI_Info info);

}  // namespace tailrace::internal::mpiio
