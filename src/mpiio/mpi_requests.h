// Nonblocking collective transfers as requests of the MPI library. They are generalized requests,
// which MPI_Wait, MPI_Test and similar calls take like any other. tailrace's background thread does
// the work. A thread here waits for it and completes the requests, in the order in which they were
// started.
//
// Only with MPI_THREAD_MULTIPLE, because the requests are completed beside whatever the program
// does.
//
// A failure comes out of MPI_Wait (or a similar call), as with every generalized request. It goes
// through the error handler that the MPI library takes for them, MPI_COMM_WORLD's or
// MPI_COMM_SELF's, not through the file's.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>

#include "tailrace_mpi_collective.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal::mpiio {

struct OpenFile;

// The requests of one file, which is told of failures. The program's threads call add(), as they
// call the file's other functions.
class Requests {
  public:
    explicit Requests(OpenFile& file) : file_(file) {}
    ~Requests() { finish(); }
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;

    // Takes over a call that was started, and makes the request that ends with it. `bytes`: the
    // bytes that a write moves; a read tells them itself. Returns an error of MPI, for example if
    // there is no memory. Then the call has been waited for.
    int add(tailrace_io* io, bool writes, uint64_t bytes, MPI_Request* request);

    // Returns when every request is complete. None can be added afterwards.
    void finish();

  private:
    struct Outcome;  // the values for a request's status; the request owns it and frees it
    struct Started {
        tailrace_io* io = nullptr;
        MPI_Request request = MPI_REQUEST_NULL;
        Outcome* outcome = nullptr;
    };
    void wait_for(const Started& started);
    void work();

    OpenFile& file_;
    Mutex mutex_;
    Condition changed_;
    std::deque<Started> queue_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    Worker thread_;  // starts with the first request
};

}  // namespace tailrace::internal::mpiio
