#include "mpiio/mpi_requests.h"

#include <exception>
#include <new>

#include "mpiio/mpi_files.h"
#include "threads/mutex.h"

namespace tailrace::internal::mpiio {

struct Requests::Outcome {
    bool writes = false;
    uint64_t bytes = 0;
    int code = MPI_SUCCESS;

    // MPI calls these for a generalized request: when its status is asked for, when it is freed,
    // and when it is to be cancelled, which collective calls do not allow.
    static int query(void* state, MPI_Status* status) {
        const auto* outcome = static_cast<const Outcome*>(state);
        if (status != MPI_STATUS_IGNORE) {
            set_status(status, outcome->code == MPI_SUCCESS ? outcome->bytes : 0);
            status->MPI_SOURCE = MPI_UNDEFINED;
            status->MPI_TAG = MPI_UNDEFINED;
        }
        return outcome->code;
    }
    static int release(void* state) {
        delete static_cast<Outcome*>(state);
        return MPI_SUCCESS;
    }
    static int cancel(void*, int) { return MPI_SUCCESS; }
};

int Requests::add(tailrace_io* io, bool writes, uint64_t bytes, MPI_Request* request) {
    Started started;
    started.io = io;
    started.outcome = new (std::nothrow) Outcome{writes, bytes, MPI_SUCCESS};
    if (started.outcome == nullptr) {
        (void)tailrace_io_wait(io, nullptr);
        return MPI_ERR_NO_MEM;
    }
    const int code = PMPI_Grequest_start(Outcome::query, Outcome::release, Outcome::cancel, started.outcome,
                                         &started.request);
    if (code != MPI_SUCCESS) {
        delete started.outcome;
        (void)tailrace_io_wait(io, nullptr);
        return code;
    }
    *request = started.request;
    MutexLock lock(mutex_);
    try {
        if (!thread_.running()) thread_ = Worker("tailrace-mpiio", {}, [this](std::stop_token) { work(); });
        queue_.push_back(started);
        changed_.notify_all();
    } catch (const std::exception&) {  // there is no thread or no memory, so the call waits itself
        lock.unlock();
        wait_for(started);
    }
    return MPI_SUCCESS;
}

void Requests::finish() {
    {
        MutexLock lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void Requests::wait_for(const Started& started) {
    uint64_t bytes = 0;
    const tailrace_code code = tailrace_io_wait(started.io, &bytes);
    if (!started.outcome->writes) started.outcome->bytes = bytes;
    started.outcome->code = tell(file_, code);
    PMPI_Grequest_complete(started.request);  // from here on the outcome may be freed
}

void Requests::work() {
    for (;;) {
        Started next;
        {
            MutexLock lock(mutex_);
            while (!stopping_ && queue_.empty()) changed_.wait(lock);
            if (queue_.empty()) return;
            next = queue_.front();
            queue_.pop_front();
        }
        wait_for(next);
    }
}

}  // namespace tailrace::internal::mpiio
