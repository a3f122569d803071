// The individual file pointer of one file. The MPI library keeps it, and other calls move it. In
// some views MPICH does not return what it was told. So the place where our calls left it is kept
// here, together with what the MPI library has said since. As long as that has not changed, ours is
// right.
//
// Positions are in etypes of the view. Thread-safe.
#pragma once

#include <mpi.h>

#include <optional>

#include "threads/mutex.h"

namespace tailrace::internal::mpiio {

class FilePointer {
  public:
    // Returns an error of the MPI library.
    int get(MPI_File file, MPI_Offset& position) {
        MutexLock lock(mutex_);
        if (const int code = PMPI_File_get_position(file, &position); code != MPI_SUCCESS) return code;
        if (left_ && left_->reported == position) position = left_->position;
        return MPI_SUCCESS;
    }

    int set(MPI_File file, MPI_Offset position) {
        MutexLock lock(mutex_);
        left_.reset();
        if (const int code = PMPI_File_seek(file, position, MPI_SEEK_SET); code != MPI_SUCCESS) return code;
        Left left{position, position};
        PMPI_File_get_position(file, &left.reported);
        left_ = left;
        return MPI_SUCCESS;
    }

    // From now on the MPI library's position counts.
    void forget() {
        MutexLock lock(mutex_);
        left_.reset();
    }

  private:
    struct Left {
        MPI_Offset position = 0, reported = 0;
    };
    Mutex mutex_;
    std::optional<Left> left_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal::mpiio
