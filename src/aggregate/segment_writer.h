// SegmentWriter: a leader's segments in the files of its group. Each goes through the commit protocol of
// shared/segment.h: prepare() begins it and takes the space, write() puts data into it, seal() and commit()
// are the segment's. abandon() keeps work that has not begun from beginning, and slots from being written.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "aggregate/throttle.h"
#include "flush/plan.h"
#include "shared/segment.h"
#include "storage/storage.h"
#include "threads/mutex.h"

namespace tailrace::internal {

class SegmentWriter {
  public:
    // Storage and throttle must outlive the writer.
    SegmentWriter(std::shared_ptr<const FlushPlan> plan, uint32_t leader, Storage& storage,
                  std::string directory, DirectIo direct, Throttle& throttle);

    // `file` counts from 0 within the group. Different files may be prepared, sealed, and committed, at once.
    uint32_t file_count() const { return static_cast<uint32_t>(files_.size()); }
    Status prepare(uint32_t file);
    Status seal(uint32_t file);
    Status commit(uint32_t file);  // failed_state unless seal() went well

    // Writes a chunk of a stream, padded with zeros to the next multiple of block_bytes. The chunk is
    // `blocks`, whole ones that are handed to the storage without being looked at, and behind them the first
    // `buffered_bytes` of `buffer`, which is long enough to be padded there. Either may be empty.
    // Thread-safe. Every file must be prepared.
    Status write(uint32_t rank, uint64_t stream_offset, std::span<const std::byte> blocks,
                 std::span<std::byte> buffer, uint64_t buffered_bytes);

    void abandon() { abandoned_ = true; }

    uint64_t data_bytes() const;  // written so far, without padding
    double sync_seconds() const;  // in all syncs, summed over threads
    const std::string& directory() const { return directory_; }

  private:
    struct OutputFile {
        std::string path;
        std::unique_ptr<Segment> segment;  // since prepare() went well
        std::vector<Extent> extents;       // guarded by mutex_ until seal
    };
    Status check_not_abandoned(const OutputFile& output) const;

    const std::shared_ptr<const FlushPlan> plan_;
    const uint32_t leader_;
    Storage& storage_;
    const std::string directory_;
    const DirectIo direct_;
    Throttle& throttle_;
    std::atomic<bool> abandoned_ = false;

    mutable Mutex mutex_;
    ExtentAllocator allocator_ GUARDED_BY(mutex_);
    uint64_t data_bytes_ GUARDED_BY(mutex_) = 0;
    std::vector<OutputFile> files_;
};

// The name of a file of the plan while it is written.
std::string unfinished_path(const std::string& directory, const FlushPlan& plan, uint32_t file);

// Removes what there is of the group's files. Failures are logged: what stays behind is an incomplete epoch,
// which nobody restores and the next session removes.
void discard(Storage& storage, const std::string& directory, const FlushPlan& plan);

}  // namespace tailrace::internal
