// Runs one case of the benchmark with the library's own code: the plan, the allocator and the
// commit protocol (shared/segment.h), the storage engines, the buffer pool and the reader of
// captured parts. Only the code that hands chunks to the writers is the benchmark's, because
// nothing is received here.
//
// Steps, each timed separately:
//
//   1. prepare   make the files and reserve their space
//   2. write     every writer writes received chunks first, from buffers that were filled before, then local
//                chunks, which it reads from the parts; the step ends when all writers have finished
//   3. commit    index, sync, slot, sync (without the syncs if the case is not durable)
//
// Before step 1 the parts are dropped from the page cache if they are on a disk. After step 3 the
// files are removed. Data that a run without syncs has left in memory are written out, so that the
// next run does not pay for them.
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
    // The writers' own times, summed over all of them; the least and the most that one writer spent
    // in write calls.
    double read_seconds = 0, buffer_wait_seconds = 0, least_writer_seconds = 0, most_writer_seconds = 0;
    uint64_t dirty_bytes = 0;  // of the whole system: not yet on a disk when the run ended

    double seconds() const { return prepare_seconds + write_seconds + commit_seconds; }
    // All bytes / time from the first call until durable, in bytes per second.
    double rate() const { return static_cast<double>(received_bytes + local_bytes) / seconds(); }
    // As the paper measures it: received bytes / time of the writers.
    double received_rate() const {
        return write_seconds > 0 ? static_cast<double>(received_bytes) / write_seconds : 0;
    }
};

// The directories of the benchmark: its own one in the shared directory, and one for the parts. The
// destructor removes both. The next benchmark removes what a killed one has left there. Directories
// that hold anything else are left alone, whatever their names are.
class BenchSpace {
  public:
    struct OwnDirectory {
        std::string path;                     // empty until we have made it
        std::unique_ptr<DirectoryLock> lock;  // none where the file system has no locks
    };

    // `storage` makes both directories and outlives the space.
    static Result<std::unique_ptr<BenchSpace>> create(Storage& storage, const std::string& shared_dir,
                                                      const std::string& local_dir);
    ~BenchSpace();

    // no_space or out_of_memory, with the space that there is, unless `bench` fits with a margin.
    // Nothing is written before this check.
    Status check_room(const BenchCase& bench);
    // The parts of the leader's own processes. They are made if there are none of these sizes.
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

// `stop` ends the run early, with `aborted`. The first writer calls `on_bytes` with the bytes that
// all writers have written since its last call. The files are removed in any case. `shared` is the
// storage under test.
Result<BenchResult> run_case(const BenchCase& bench, BenchSpace& space, Storage& shared,
                             const std::atomic<bool>& stop, const std::function<void(uint64_t)>& on_bytes);

}  // namespace tailrace::internal::tool
