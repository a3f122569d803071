// SegmentWriter: a leader's segments in the files of its group. Each goes through the commit
// protocol of shared/segment.h. prepare() begins a segment and reserves space, write() puts data
// into it, and seal() and commit() are those of the segment. After abandon() no new work begins,
// and no slot is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flush/plan.h"
#include "shared/segment.h"
#include "storage/storage.h"
#include "threads/mutex.h"
#include "threads/throttle.h"

namespace tailrace::internal {

class SegmentWriter {
  public:
    // Storage and throttle must outlive the writer.
    SegmentWriter(std::shared_ptr<const FlushPlan> plan, uint32_t leader, Storage& storage,
                  std::string directory, OpenOptions how, Throttle& throttle,
                  WorkingName working_name = unfinished_name);

    // `file` counts from 0 within the group. Different files may be prepared, sealed and committed
    // at the same time.
    uint32_t file_count() const { return static_cast<uint32_t>(files_.size()); }
    Status prepare(uint32_t file);
    Status seal(uint32_t file);
    Status commit(uint32_t file);  // failed_state unless seal() has succeeded

    // Writes a chunk of a stream, padded with zeros to the next multiple of block_bytes. The chunk
    // consists of `blocks` and, behind them, the first `buffered_bytes` of `buffer`. `blocks` are
    // whole blocks, which go to the storage without being read here. `buffer` has room for the
    // padding. Either may be empty. Thread-safe. Every file must be prepared.
    Status write(uint32_t rank, uint64_t stream_offset, std::span<const std::byte> blocks,
                 std::span<std::byte> buffer, uint64_t buffered_bytes);

    void abandon() { abandoned_ = true; }

    WrittenChunks written() const;  // so far; bytes are without padding
    double sync_seconds() const;    // the time in all syncs, summed over threads

  private:
    struct OutputFile {
        std::string path;
        std::unique_ptr<Segment> segment;  // set when prepare() has succeeded
        std::vector<Extent> extents;       // guarded by mutex_ until seal()
    };
    Status check_not_abandoned(const OutputFile& output) const;

    const std::shared_ptr<const FlushPlan> plan_;
    const uint32_t leader_;
    Storage& storage_;
    const std::string directory_;
    const OpenOptions how_;
    Throttle& throttle_;
    std::atomic<bool> abandoned_ = false;

    mutable Mutex mutex_;
    ExtentAllocator allocator_ GUARDED_BY(mutex_);
    WrittenChunks written_ GUARDED_BY(mutex_);
    std::vector<OutputFile> files_;
};

// The path of a file of the plan while it is written.
std::string working_path(const std::string& directory, const FlushPlan& plan, uint32_t file,
                         WorkingName working_name = unfinished_name);

// Removes the group's files, as far as they are there. Failures are only logged: a file that stays
// belongs to an incomplete epoch, which nobody restores and the next session removes.
void discard(Storage& storage, const std::string& directory, const FlushPlan& plan,
             WorkingName working_name = unfinished_name);

}  // namespace tailrace::internal
