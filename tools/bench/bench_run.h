// Runs one case of the benchmark with the library's own code: the plan, the allocator and the commit protocol
// (SegmentWriter), the storage engines, the buffer pool and the reader of captured parts. What is not the
// library's is the hand that gives chunks to the writers, since nothing is received here.
//
// Steps, each timed apart:
//   1. prepare   the files are made and their space is taken
//   2. write     every writer: received chunks first, from buffers filled before; then local chunks, read
//                from the parts; until all writers have finished
//   3. commit    index, sync, slot, sync (without the syncs when the case is not durable)
// Before step 1 the parts are read out of the page cache where they are on a disk. After step 3 the files are
// removed, and what a run that was not durable has left in memory is written out, so that the next run does
// not pay for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "bench/bench_case.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

struct BenchResult {
    uint64_t received_bytes = 0, local_bytes = 0;
    uint64_t block_bytes = 0;  // used
    std::string engine;        // used
    double prepare_seconds = 0, write_seconds = 0, commit_seconds = 0;
    // Writers' own times, summed over them; the least and the most that one spent in write calls.
    double read_seconds = 0, buffer_wait_seconds = 0, least_writer_seconds = 0, most_writer_seconds = 0;
    uint64_t dirty_bytes = 0;  // of the whole system, not yet on a disk when the run ended

    double seconds() const { return prepare_seconds + write_seconds + commit_seconds; }
    // Of everything, from the first call to durable, in bytes per second.
    double rate() const { return static_cast<double>(received_bytes + local_bytes) / seconds(); }
    // The measure of the paper: received bytes by the time of the writers.
    double received_rate() const {
        return write_seconds > 0 ? static_cast<double>(received_bytes) / write_seconds : 0;
    }
};

// The directories of the benchmark: one of its own in the shared directory, one for the parts. Both are
// removed by the destructor, and what a killed benchmark has left there by the next one. Directories that
// hold anything else, whatever they are called, are left alone.
class BenchSpace {
  public:
    struct OwnDirectory {
        std::string path;                     // empty until it is ours
        std::unique_ptr<DirectoryLock> lock;  // none where the file system has no locks
    };

    // `storage` makes both directories and outlives the space.
    static Result<std::unique_ptr<BenchSpace>> create(Storage& storage, const std::string& shared_dir,
                                                      const std::string& local_dir);
    ~BenchSpace();

    // no_space or out_of_memory, with how much there is, unless `bench` fits beside a margin. Nothing is
    // written before.
    Status check_room(const BenchCase& bench);
    // The parts of the leader's own processes: made when there are none of these sizes.
    Result<std::vector<std::string>> parts(const BenchCase& bench, const std::atomic<bool>& stop);

    Storage& storage() { return storage_; }
    const std::string& shared_dir() const { return shared_.path; }

  private:
    explicit BenchSpace(Storage& storage) : storage_(storage) {}
    void remove_parts();

    Storage& storage_;
    OwnDirectory shared_, local_;
    std::vector<uint64_t> part_bytes_;
    std::vector<std::string> parts_;
};

// `stop` ends the run early, with `aborted`; `on_bytes` is called from the first writer with what all have
// written since it was called last. Files are removed in any case. `shared` is the storage under test.
Result<BenchResult> run_case(const BenchCase& bench, BenchSpace& space, Storage& shared,
                             const std::atomic<bool>& stop, const std::function<void(uint64_t)>& on_bytes);

}  // namespace tailrace::internal::tool
