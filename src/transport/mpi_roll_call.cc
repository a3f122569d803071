#include "transport/mpi_roll_call.h"

#include <fmt/format.h>

#include <string>

namespace tailrace::internal {

namespace {

constexpr int reporters = 2;
constexpr size_t most_named = 8;

}  // namespace

void MpiRollCall::begin(Clock::time_point now) {
    ++call_;
    began_ = now;
    said_ = reported_ = false;
    here_.clear();
}

void MpiRollCall::waiting(Clock::time_point now, std::string_view attempted) {
    if (size_ < 2 || !warn_ || now - began_ < patience_) return;
    if (!said_) say_here();
    if (rank_ >= reporters || reported_) return;
    hear();
    // By now the others have had the time to say that they are here.
    if (now - began_ >= patience_ + patience_ / 2) report(attempted);
}

void MpiRollCall::say_here() {
    said_ = true;
    for (int reporter = 0; reporter < reporters && reporter < size_; ++reporter) {
        if (reporter == rank_) continue;
        // A failure will show in the collective itself.
        MPI_Request request = MPI_REQUEST_NULL;
        if (MPI_Isend(&said_calls_.emplace_back(call_), 1, MPI_UINT64_T, reporter, tag_, communicator_,
                      &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

void MpiRollCall::hear() {
    for (;;) {
        int found = 0;
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, tag_, communicator_, &found, &status) != MPI_SUCCESS || found == 0)
            return;
        uint64_t call = 0;
        if (MPI_Recv(&call, 1, MPI_UINT64_T, status.MPI_SOURCE, tag_, communicator_, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS)
            return;
        if (call == call_) here_.insert(status.MPI_SOURCE);
    }
}

void MpiRollCall::report(std::string_view attempted) {
    reported_ = true;
    if (rank_ != 0 && here_.contains(0)) return;  // rank 0 says it
    here_.insert(rank_);
    const size_t missing = static_cast<size_t>(size_) - here_.size();
    if (missing == 0) return;  // all have come, and the call itself takes long
    std::string named;
    size_t count = 0;
    for (int rank = 0; rank < size_ && count < most_named; ++rank) {
        if (here_.contains(rank)) continue;
        named += fmt::format("{}{}", count == 0 ? "" : ", ", rank);
        ++count;
    }
    if (missing > count) named += fmt::format(" and {} more", missing - count);
    warn_(
        fmt::format("{}: waited {:.1f} s for rank{} {}, of {}. Every rank must make the same collective "
                    "calls of tailrace in "
                    "the same order; below MPI_THREAD_MULTIPLE save, wait and wait_all are collective, too. "
                    "The wait goes on",
                    attempted, std::chrono::duration<double>(Clock::now() - began_).count(),
                    missing == 1 ? "" : "s", named, size_));
}

}  // namespace tailrace::internal
