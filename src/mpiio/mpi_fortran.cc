// The Fortran names of the calls in mpi_calls.cc. Open MPI's Fortran bindings call the PMPI names
// of C, so taking the C names would not reach them. Arguments come by reference, and handles as
// integers. A character string is padded with blanks, and its length comes after all other
// arguments.
//
// mpi_file_open_ and similar names are those of mpif.h and `use mpi`, as gfortran, flang and ifort
// write them. With Open MPI, `use mpi_f08` goes through ompi_file_open_f and similar names.
#include <mpi.h>

#include <string>
#include <string_view>

#include "mpiio/mpi_intercepted.h"

// MPI_BOTTOM in Fortran is a variable, and the bindings pass its address. These are its possible
// addresses; a program without Fortran has none.
extern "C" {
#ifdef OPEN_MPI
extern int mpi_fortran_bottom, mpi_fortran_bottom_, mpi_fortran_bottom__, MPI_FORTRAN_BOTTOM;
#pragma weak mpi_fortran_bottom
#pragma weak mpi_fortran_bottom_
#pragma weak mpi_fortran_bottom__
#pragma weak MPI_FORTRAN_BOTTOM
#else
extern void* MPIR_F_MPI_BOTTOM;
#pragma weak MPIR_F_MPI_BOTTOM
#endif
}

namespace {

// A buffer as C expects it.
void* in_c(void* buffer) {
#ifdef OPEN_MPI
    for (const void* bottom :
         {&mpi_fortran_bottom, &mpi_fortran_bottom_, &mpi_fortran_bottom__, &MPI_FORTRAN_BOTTOM})
        if (bottom != nullptr && buffer == bottom) return MPI_BOTTOM;
#else
    if (&MPIR_F_MPI_BOTTOM != nullptr && MPIR_F_MPI_BOTTOM != nullptr && buffer == MPIR_F_MPI_BOTTOM)
        return MPI_BOTTOM;
#endif
    return buffer;
}

std::string trimmed(const char* text, size_t length) {
    std::string_view padded(text, length);
    const size_t last = padded.find_last_not_of(' ');
    return std::string(padded.substr(0, last == std::string_view::npos ? 0 : last + 1));
}

// A C status for a Fortran one, which the destructor fills.
class Status {
  public:
    explicit Status(MPI_Fint* target) : target_(target) {
        if (!ignored()) MPI_Status_f2c(target_, &status_);
    }
    ~Status() {
        if (!ignored()) MPI_Status_c2f(&status_, target_);
    }
    Status(const Status&) = delete;
    Status& operator=(const Status&) = delete;
    MPI_Status* get() { return ignored() ? MPI_STATUS_IGNORE : &status_; }

  private:
    bool ignored() const { return target_ == MPI_F_STATUS_IGNORE; }
    MPI_Fint* target_;
    MPI_Status status_{};
};

void open(MPI_Fint* communicator, const char* name, MPI_Fint* mode, MPI_Fint* info, MPI_Fint* file,
          MPI_Fint* error, size_t length) {
    MPI_File opened = MPI_FILE_NULL;
    *error = MPI_File_open(MPI_Comm_f2c(*communicator), trimmed(name, length).c_str(), *mode,
                           MPI_Info_f2c(*info), &opened);
    if (*error == MPI_SUCCESS) *file = MPI_File_c2f(opened);
}

void close(MPI_Fint* file, MPI_Fint* error) {
    MPI_File handle = MPI_File_f2c(*file);
    *error = MPI_File_close(&handle);
    if (*error == MPI_SUCCESS) *file = MPI_File_c2f(MPI_FILE_NULL);
}

void sync(MPI_Fint* file, MPI_Fint* error) {
    *error = MPI_File_sync(MPI_File_f2c(*file));
}

void set_view(MPI_Fint* file, MPI_Offset* displacement, MPI_Fint* etype, MPI_Fint* filetype,
              const char* representation, MPI_Fint* info, MPI_Fint* error, size_t length) {
    *error =
        MPI_File_set_view(MPI_File_f2c(*file), *displacement, MPI_Type_f2c(*etype), MPI_Type_f2c(*filetype),
                          trimmed(representation, length).c_str(), MPI_Info_f2c(*info));
}

void seek(MPI_Fint* file, MPI_Offset* offset, MPI_Fint* whence, MPI_Fint* error) {
    *error = MPI_File_seek(MPI_File_f2c(*file), *offset, *whence);
}

void get_position(MPI_Fint* file, MPI_Offset* offset, MPI_Fint* error) {
    *error = MPI_File_get_position(MPI_File_f2c(*file), offset);
}

void set_atomicity(MPI_Fint* file, MPI_Fint* flag, MPI_Fint* error) {
    *error = MPI_File_set_atomicity(MPI_File_f2c(*file), *flag != 0 ? 1 : 0);
}

void get_info(MPI_Fint* file, MPI_Fint* info, MPI_Fint* error) {
    MPI_Info handle = MPI_INFO_NULL;
    *error = MPI_File_get_info(MPI_File_f2c(*file), &handle);
    if (*error == MPI_SUCCESS) *info = MPI_Info_c2f(handle);
}

template <class Call>
void at_pointer(Call call, MPI_Fint* file, void* buffer, MPI_Fint* count, MPI_Fint* type, MPI_Fint* status,
                MPI_Fint* error) {
    Status c_status(status);
    *error = call(MPI_File_f2c(*file), in_c(buffer), *count, MPI_Type_f2c(*type), c_status.get());
}

template <class Call>
void at_offset(Call call, MPI_Fint* file, MPI_Offset* offset, void* buffer, MPI_Fint* count, MPI_Fint* type,
               MPI_Fint* status, MPI_Fint* error) {
    Status c_status(status);
    *error = call(MPI_File_f2c(*file), *offset, in_c(buffer), *count, MPI_Type_f2c(*type), c_status.get());
}

template <class Call>
void begin_at_pointer(Call call, MPI_Fint* file, void* buffer, MPI_Fint* count, MPI_Fint* type,
                      MPI_Fint* error) {
    *error = call(MPI_File_f2c(*file), in_c(buffer), *count, MPI_Type_f2c(*type));
}

template <class Call>
void begin_at_offset(Call call, MPI_Fint* file, MPI_Offset* offset, void* buffer, MPI_Fint* count,
                     MPI_Fint* type, MPI_Fint* error) {
    *error = call(MPI_File_f2c(*file), *offset, in_c(buffer), *count, MPI_Type_f2c(*type));
}

template <class Call>
void start_at_pointer(Call call, MPI_Fint* file, void* buffer, MPI_Fint* count, MPI_Fint* type,
                      MPI_Fint* request, MPI_Fint* error) {
    MPI_Request started = MPI_REQUEST_NULL;
    *error = call(MPI_File_f2c(*file), in_c(buffer), *count, MPI_Type_f2c(*type), &started);
    if (*error == MPI_SUCCESS) *request = MPI_Request_c2f(started);
}

template <class Call>
void start_at_offset(Call call, MPI_Fint* file, MPI_Offset* offset, void* buffer, MPI_Fint* count,
                     MPI_Fint* type, MPI_Fint* request, MPI_Fint* error) {
    MPI_Request started = MPI_REQUEST_NULL;
    *error = call(MPI_File_f2c(*file), *offset, in_c(buffer), *count, MPI_Type_f2c(*type), &started);
    if (*error == MPI_SUCCESS) *request = MPI_Request_c2f(started);
}

}  // namespace

// Every call, under the name that `name_of` makes of it.
#define TAILRACE_FORTRAN_CALLS(name_of)                                                                      \
    TAILRACE_INTERCEPTED void name_of(open)(MPI_Fint * communicator, const char* name, MPI_Fint* mode,       \
                                            MPI_Fint* info, MPI_Fint* file, MPI_Fint* error,                 \
                                            size_t length) {                                                 \
        open(communicator, name, mode, info, file, error, length);                                           \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(close)(MPI_Fint * file, MPI_Fint * error) {                            \
        close(file, error);                                                                                  \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(sync)(MPI_Fint * file, MPI_Fint * error) {                             \
        sync(file, error);                                                                                   \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(set_view)(                                                             \
        MPI_Fint * file, MPI_Offset * displacement, MPI_Fint * etype, MPI_Fint * filetype,                   \
        const char* representation, MPI_Fint* info, MPI_Fint* error, size_t length) {                        \
        set_view(file, displacement, etype, filetype, representation, info, error, length);                  \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(seek)(MPI_Fint * file, MPI_Offset * offset, MPI_Fint * whence,         \
                                            MPI_Fint * error) {                                              \
        seek(file, offset, whence, error);                                                                   \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(get_position)(MPI_Fint * file, MPI_Offset * offset,                    \
                                                    MPI_Fint * error) {                                      \
        get_position(file, offset, error);                                                                   \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(set_atomicity)(MPI_Fint * file, MPI_Fint * flag, MPI_Fint * error) {   \
        set_atomicity(file, flag, error);                                                                    \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(get_info)(MPI_Fint * file, MPI_Fint * info, MPI_Fint * error) {        \
        get_info(file, info, error);                                                                         \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(write_all)(MPI_Fint * file, void* buffer, MPI_Fint* count,             \
                                                 MPI_Fint* type, MPI_Fint* status, MPI_Fint* error) {        \
        at_pointer(MPI_File_write_all, file, buffer, count, type, status, error);                            \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(read_all)(MPI_Fint * file, void* buffer, MPI_Fint* count,              \
                                                MPI_Fint* type, MPI_Fint* status, MPI_Fint* error) {         \
        at_pointer(MPI_File_read_all, file, buffer, count, type, status, error);                             \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(write_at_all)(MPI_Fint * file, MPI_Offset * offset, void* buffer,      \
                                                    MPI_Fint* count, MPI_Fint* type, MPI_Fint* status,       \
                                                    MPI_Fint* error) {                                       \
        at_offset(MPI_File_write_at_all, file, offset, buffer, count, type, status, error);                  \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(read_at_all)(MPI_Fint * file, MPI_Offset * offset, void* buffer,       \
                                                   MPI_Fint* count, MPI_Fint* type, MPI_Fint* status,        \
                                                   MPI_Fint* error) {                                        \
        at_offset(MPI_File_read_at_all, file, offset, buffer, count, type, status, error);                   \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(iwrite_all)(MPI_Fint * file, void* buffer, MPI_Fint* count,            \
                                                  MPI_Fint* type, MPI_Fint* request, MPI_Fint* error) {      \
        start_at_pointer(MPI_File_iwrite_all, file, buffer, count, type, request, error);                    \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(iread_all)(MPI_Fint * file, void* buffer, MPI_Fint* count,             \
                                                 MPI_Fint* type, MPI_Fint* request, MPI_Fint* error) {       \
        start_at_pointer(MPI_File_iread_all, file, buffer, count, type, request, error);                     \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(iwrite_at_all)(MPI_Fint * file, MPI_Offset * offset, void* buffer,     \
                                                     MPI_Fint* count, MPI_Fint* type, MPI_Fint* request,     \
                                                     MPI_Fint* error) {                                      \
        start_at_offset(MPI_File_iwrite_at_all, file, offset, buffer, count, type, request, error);          \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(iread_at_all)(MPI_Fint * file, MPI_Offset * offset, void* buffer,      \
                                                    MPI_Fint* count, MPI_Fint* type, MPI_Fint* request,      \
                                                    MPI_Fint* error) {                                       \
        start_at_offset(MPI_File_iread_at_all, file, offset, buffer, count, type, request, error);           \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(write_all_begin)(MPI_Fint * file, void* buffer, MPI_Fint* count,       \
                                                       MPI_Fint* type, MPI_Fint* error) {                    \
        begin_at_pointer(MPI_File_write_all_begin, file, buffer, count, type, error);                        \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(write_ordered_begin)(MPI_Fint * file, void* buffer, MPI_Fint* count,   \
                                                           MPI_Fint* type, MPI_Fint* error) {                \
        begin_at_pointer(MPI_File_write_ordered_begin, file, buffer, count, type, error);                    \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(write_at_all_begin)(MPI_Fint * file, MPI_Offset * offset,              \
                                                          void* buffer, MPI_Fint* count, MPI_Fint* type,     \
                                                          MPI_Fint* error) {                                 \
        begin_at_offset(MPI_File_write_at_all_begin, file, offset, buffer, count, type, error);              \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(write_ordered)(MPI_Fint * file, void* buffer, MPI_Fint* count,         \
                                                     MPI_Fint* type, MPI_Fint* status, MPI_Fint* error) {    \
        at_pointer(MPI_File_write_ordered, file, buffer, count, type, status, error);                        \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(read_all_begin)(MPI_Fint * file, void* buffer, MPI_Fint* count,        \
                                                      MPI_Fint* type, MPI_Fint* error) {                     \
        begin_at_pointer(MPI_File_read_all_begin, file, buffer, count, type, error);                         \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(read_ordered_begin)(MPI_Fint * file, void* buffer, MPI_Fint* count,    \
                                                          MPI_Fint* type, MPI_Fint* error) {                 \
        begin_at_pointer(MPI_File_read_ordered_begin, file, buffer, count, type, error);                     \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(read_at_all_begin)(MPI_Fint * file, MPI_Offset * offset, void* buffer, \
                                                         MPI_Fint* count, MPI_Fint* type, MPI_Fint* error) { \
        begin_at_offset(MPI_File_read_at_all_begin, file, offset, buffer, count, type, error);               \
    }                                                                                                        \
    TAILRACE_INTERCEPTED void name_of(read_ordered)(MPI_Fint * file, void* buffer, MPI_Fint* count,          \
                                                    MPI_Fint* type, MPI_Fint* status, MPI_Fint* error) {     \
        at_pointer(MPI_File_read_ordered, file, buffer, count, type, status, error);                         \
    }

#define TAILRACE_MPIFH_NAME(call) mpi_file_##call##_
#define TAILRACE_OMPI_NAME(call) ompi_file_##call##_f

extern "C" {
TAILRACE_FORTRAN_CALLS(TAILRACE_MPIFH_NAME)
#ifdef OPEN_MPI
TAILRACE_FORTRAN_CALLS(TAILRACE_OMPI_NAME)
#endif
}
