// The calls of MPI-IO that libtailrace_mpiio.so takes: opening, closing, views, and the collective
// reads and writes, blocking and nonblocking. Each lets the MPI library do its part through its
// PMPI name. All other calls of MPI-IO reach the MPI library as before, which has the same files
// open with the same views and pointers.
//
// The library is loaded by LD_PRELOAD, or linked before the MPI library. The Fortran names are in
// mpi_fortran.cc.
#include <mpi.h>

#include <array>
#include <string>
#include <string_view>

#include "mpiio/mpi_files.h"
#include "mpiio/mpi_intercepted.h"

namespace mpiio = tailrace::internal::mpiio;

namespace {

// A failure goes through the file's error handler, as the MPI library's own would.
int raise(MPI_File file, int code) {
    if (code != MPI_SUCCESS) PMPI_File_call_errhandler(file, code);
    return code;
}

// Transfers at the individual file pointer. The pointer moves on by the bytes asked for, at once if
// the call is nonblocking.
template <class Ours, class Theirs>
int at_pointer(const std::shared_ptr<mpiio::OpenFile>& open, MPI_File file, Ours ours, Theirs theirs) {
    if (!open || !open->takes_call()) return theirs();
    MPI_Offset position = 0;
    if (const int code = open->pointer.get(file, position); code != MPI_SUCCESS) return code;
    const mpiio::Transfer transfer = ours(*open, position);
    if (!transfer.handled) return theirs();
    if (transfer.code == MPI_SUCCESS && open->etype_bytes > 0)
        open->pointer.set(file, position + transfer.moved / open->etype_bytes);
    return raise(file, transfer.code);
}

template <class Ours, class Theirs>
int at_offset(const std::shared_ptr<mpiio::OpenFile>& open, MPI_File file, Ours ours, Theirs theirs) {
    if (!open || !open->takes_call()) return theirs();
    const mpiio::Transfer transfer = ours(*open);
    return transfer.handled ? raise(file, transfer.code) : theirs();
}

// For nonblocking calls: null if no thread may work for them.
std::shared_ptr<mpiio::OpenFile> find_concurrent(MPI_File file) {
    std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file);
    if (!open || open->concurrent) return open;
    open->leave(mpiio::Left::not_concurrent);
    return nullptr;
}

// Tells the program that the MPI library makes this call.
void note_left(MPI_File file, mpiio::Left why) {
    if (const std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file)) open->leave(why);
}

}  // namespace

extern "C" {

TAILRACE_INTERCEPTED int MPI_File_open(MPI_Comm communicator, const char* name, int mode, MPI_Info info,
                                       MPI_File* file) {
    const int code = PMPI_File_open(communicator, name, mode, info, file);
    if (code == MPI_SUCCESS) mpiio::adopt(communicator, name, mode, info, *file);
    return code;
}

TAILRACE_INTERCEPTED int MPI_File_close(MPI_File* file) {
    // Ours is closed first: a file that is deleted on closing should be closed everywhere before.
    int ours = MPI_SUCCESS;
    if (const std::shared_ptr<mpiio::OpenFile> open = mpiio::take(*file))
        ours = raise(*file, mpiio::let_go(*open));
    const int theirs = PMPI_File_close(file);
    return theirs != MPI_SUCCESS ? theirs : ours;
}

TAILRACE_INTERCEPTED int MPI_File_sync(MPI_File file) {
    if (const std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file)) {
        if (const tailrace_code code = tailrace_file_sync(open->file); code != TAILRACE_OK)
            return raise(file, mpiio::tell(*open, code));
    }
    return PMPI_File_sync(file);
}

// In some views MPICH does not return what it was told.
TAILRACE_INTERCEPTED int MPI_File_get_position(MPI_File file, MPI_Offset* offset) {
    const std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file);
    return open ? open->pointer.get(file, *offset) : PMPI_File_get_position(file, offset);
}

TAILRACE_INTERCEPTED int MPI_File_seek(MPI_File file, MPI_Offset offset, int whence) {
    const std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file);
    if (!open) return PMPI_File_seek(file, offset, whence);
    MPI_Offset from = 0;
    if (whence == MPI_SEEK_CUR && open->pointer.get(file, from) == MPI_SUCCESS)
        return open->pointer.set(file, from + offset);
    if (whence == MPI_SEEK_SET) return open->pointer.set(file, offset);
    open->pointer.forget();
    return PMPI_File_seek(file, offset, whence);
}

TAILRACE_INTERCEPTED int MPI_File_set_view(MPI_File file, MPI_Offset displacement, MPI_Datatype etype,
                                           MPI_Datatype filetype, const char* representation, MPI_Info info) {
    const int code = PMPI_File_set_view(file, displacement, etype, filetype, representation, info);
    if (const std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file); open && code == MPI_SUCCESS)
        mpiio::set_view(*open, displacement, etype, filetype, representation);
    return code;
}

TAILRACE_INTERCEPTED int MPI_File_set_atomicity(MPI_File file, int flag) {
    const int code = PMPI_File_set_atomicity(file, flag);
    if (const std::shared_ptr<mpiio::OpenFile> open = mpiio::find(file); open && code == MPI_SUCCESS)
        open->atomic = flag != 0;
    return code;
}

TAILRACE_INTERCEPTED int MPI_File_get_info(MPI_File file, MPI_Info* info) {
    const int code = PMPI_File_get_info(file, info);
    if (code == MPI_SUCCESS) mpiio::add_hints(mpiio::find(file).get(), *info);
    return code;
}

TAILRACE_INTERCEPTED int MPI_File_write_all(MPI_File file, const void* buffer, int count, MPI_Datatype type,
                                            MPI_Status* status) {
    return at_pointer(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::write(open, at, buffer, count, type, status);
        },
        [&] { return PMPI_File_write_all(file, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_read_all(MPI_File file, void* buffer, int count, MPI_Datatype type,
                                           MPI_Status* status) {
    return at_pointer(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::read(open, at, buffer, count, type, status);
        },
        [&] { return PMPI_File_read_all(file, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_write_at_all(MPI_File file, MPI_Offset offset, const void* buffer,
                                               int count, MPI_Datatype type, MPI_Status* status) {
    return at_offset(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::write(open, offset, buffer, count, type, status); },
        [&] { return PMPI_File_write_at_all(file, offset, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_read_at_all(MPI_File file, MPI_Offset offset, void* buffer, int count,
                                              MPI_Datatype type, MPI_Status* status) {
    return at_offset(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::read(open, offset, buffer, count, type, status); },
        [&] { return PMPI_File_read_at_all(file, offset, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_iwrite_all(MPI_File file, const void* buffer, int count, MPI_Datatype type,
                                             MPI_Request* request) {
    return at_pointer(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::start_write(open, at, buffer, count, type, request);
        },
        [&] { return PMPI_File_iwrite_all(file, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_iread_all(MPI_File file, void* buffer, int count, MPI_Datatype type,
                                            MPI_Request* request) {
    return at_pointer(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::start_read(open, at, buffer, count, type, request);
        },
        [&] { return PMPI_File_iread_all(file, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_iwrite_at_all(MPI_File file, MPI_Offset offset, const void* buffer,
                                                int count, MPI_Datatype type, MPI_Request* request) {
    return at_offset(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::start_write(open, offset, buffer, count, type, request); },
        [&] { return PMPI_File_iwrite_at_all(file, offset, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_iread_at_all(MPI_File file, MPI_Offset offset, void* buffer, int count,
                                               MPI_Datatype type, MPI_Request* request) {
    return at_offset(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::start_read(open, offset, buffer, count, type, request); },
        [&] { return PMPI_File_iread_at_all(file, offset, buffer, count, type, request); });
}

// Collective calls that the MPI library always makes.
TAILRACE_INTERCEPTED int MPI_File_write_all_begin(MPI_File file, const void* buffer, int count,
                                                  MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_write_all_begin(file, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_write_at_all_begin(MPI_File file, MPI_Offset offset, const void* buffer,
                                                     int count, MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_write_at_all_begin(file, offset, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_write_ordered(MPI_File file, const void* buffer, int count,
                                                MPI_Datatype type, MPI_Status* status) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_write_ordered(file, buffer, count, type, status);
}

TAILRACE_INTERCEPTED int MPI_File_write_ordered_begin(MPI_File file, const void* buffer, int count,
                                                      MPI_Datatype type) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_write_ordered_begin(file, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_read_all_begin(MPI_File file, void* buffer, int count, MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_read_all_begin(file, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_read_at_all_begin(MPI_File file, MPI_Offset offset, void* buffer, int count,
                                                    MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_read_at_all_begin(file, offset, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_read_ordered(MPI_File file, void* buffer, int count, MPI_Datatype type,
                                               MPI_Status* status) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_read_ordered(file, buffer, count, type, status);
}

TAILRACE_INTERCEPTED int MPI_File_read_ordered_begin(MPI_File file, void* buffer, int count,
                                                     MPI_Datatype type) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_read_ordered_begin(file, buffer, count, type);
}

#if MPI_VERSION >= 4
TAILRACE_INTERCEPTED int MPI_File_write_all_c(MPI_File file, const void* buffer, MPI_Count count,
                                              MPI_Datatype type, MPI_Status* status) {
    return at_pointer(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::write(open, at, buffer, count, type, status);
        },
        [&] { return PMPI_File_write_all_c(file, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_read_all_c(MPI_File file, void* buffer, MPI_Count count, MPI_Datatype type,
                                             MPI_Status* status) {
    return at_pointer(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::read(open, at, buffer, count, type, status);
        },
        [&] { return PMPI_File_read_all_c(file, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_write_at_all_c(MPI_File file, MPI_Offset offset, const void* buffer,
                                                 MPI_Count count, MPI_Datatype type, MPI_Status* status) {
    return at_offset(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::write(open, offset, buffer, count, type, status); },
        [&] { return PMPI_File_write_at_all_c(file, offset, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_read_at_all_c(MPI_File file, MPI_Offset offset, void* buffer,
                                                MPI_Count count, MPI_Datatype type, MPI_Status* status) {
    return at_offset(
        mpiio::find(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::read(open, offset, buffer, count, type, status); },
        [&] { return PMPI_File_read_at_all_c(file, offset, buffer, count, type, status); });
}

TAILRACE_INTERCEPTED int MPI_File_iwrite_all_c(MPI_File file, const void* buffer, MPI_Count count,
                                               MPI_Datatype type, MPI_Request* request) {
    return at_pointer(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::start_write(open, at, buffer, count, type, request);
        },
        [&] { return PMPI_File_iwrite_all_c(file, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_iread_all_c(MPI_File file, void* buffer, MPI_Count count, MPI_Datatype type,
                                              MPI_Request* request) {
    return at_pointer(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open, MPI_Offset at) {
            return mpiio::start_read(open, at, buffer, count, type, request);
        },
        [&] { return PMPI_File_iread_all_c(file, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_iwrite_at_all_c(MPI_File file, MPI_Offset offset, const void* buffer,
                                                  MPI_Count count, MPI_Datatype type, MPI_Request* request) {
    return at_offset(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::start_write(open, offset, buffer, count, type, request); },
        [&] { return PMPI_File_iwrite_at_all_c(file, offset, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_iread_at_all_c(MPI_File file, MPI_Offset offset, void* buffer,
                                                 MPI_Count count, MPI_Datatype type, MPI_Request* request) {
    return at_offset(
        find_concurrent(file), file,
        [&](mpiio::OpenFile& open) { return mpiio::start_read(open, offset, buffer, count, type, request); },
        [&] { return PMPI_File_iread_at_all_c(file, offset, buffer, count, type, request); });
}

TAILRACE_INTERCEPTED int MPI_File_write_all_begin_c(MPI_File file, const void* buffer, MPI_Count count,
                                                    MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_write_all_begin_c(file, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_write_at_all_begin_c(MPI_File file, MPI_Offset offset, const void* buffer,
                                                       MPI_Count count, MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_write_at_all_begin_c(file, offset, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_write_ordered_c(MPI_File file, const void* buffer, MPI_Count count,
                                                  MPI_Datatype type, MPI_Status* status) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_write_ordered_c(file, buffer, count, type, status);
}

TAILRACE_INTERCEPTED int MPI_File_write_ordered_begin_c(MPI_File file, const void* buffer, MPI_Count count,
                                                        MPI_Datatype type) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_write_ordered_begin_c(file, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_read_all_begin_c(MPI_File file, void* buffer, MPI_Count count,
                                                   MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_read_all_begin_c(file, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_read_at_all_begin_c(MPI_File file, MPI_Offset offset, void* buffer,
                                                      MPI_Count count, MPI_Datatype type) {
    note_left(file, mpiio::Left::split);
    return PMPI_File_read_at_all_begin_c(file, offset, buffer, count, type);
}

TAILRACE_INTERCEPTED int MPI_File_read_ordered_c(MPI_File file, void* buffer, MPI_Count count,
                                                 MPI_Datatype type, MPI_Status* status) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_read_ordered_c(file, buffer, count, type, status);
}

TAILRACE_INTERCEPTED int MPI_File_read_ordered_begin_c(MPI_File file, void* buffer, MPI_Count count,
                                                       MPI_Datatype type) {
    note_left(file, mpiio::Left::shared_pointer);
    return PMPI_File_read_ordered_begin_c(file, buffer, count, type);
}
#endif

}  // extern "C"
