// Nonblocking collective transfers as requests of the MPI library: generalized requests, which MPI_Wait,
// MPI_Test and their kin take like any other. tailrace's background thread does the work; a thread here waits
// for it and completes the requests, in the order in which they were started.
//
// Only with MPI_THREAD_MULTIPLE: the requests are completed beside whatever the program does.
//
// A failure comes out of MPI_Wait (or its kin) as that of every generalized request does: through the error
// handler that the MPI library takes for them, MPI_COMM_WORLD's or MPI_COMM_SELF's, not through the file's.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>

#include "tailrace_mpi_collective.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal::mpiio {

struct OpenFile;

// Those of one file, which is told of failures. add() is called by the program's threads, as the file's other
// calls are.
class Requests {
  public:
    explicit Requests(OpenFile& file) : file_(file) {}
    ~Requests() { finish(); }
    Requests(const Requests&) = delete;
    Requests& operator=(const Requests&) = delete;

    // Takes over a call that was started, and makes the request that ends with it. `bytes`: what a write
    // moves; a read says itself. An error of MPI, for want of memory, say: the call has been waited for then.
    int add(tailrace_io* io, bool writes, uint64_t bytes, MPI_Request* request);

    // Returns when every request is complete; none can be added afterwards.
    void finish();

  private:
    struct Outcome;  // what a request has for its status; the request's own, freed with it
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
    Worker thread_;  // from the first request on
};

}  // namespace tailrace::internal::mpiio
