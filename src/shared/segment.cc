#include "shared/segment.h"

#include <fmt/format.h>

#include <chrono>

#include "base/crc32c.h"
#include "base/invariant.h"
#include "base/units.h"
#include "threads/executor.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

Result<std::unique_ptr<Segment>> Segment::begin(Storage& storage, const std::string& directory,
                                                const std::string& path, const SharedHeader& header,
                                                uint32_t leader, const OpenOptions& how) {
    std::unique_ptr<Segment> segment(new Segment(storage, directory, path, header, leader));
    TAILRACE_ASSIGN(segment->file_, storage.open(path, how));
    TAILRACE_TRY(segment->empty_slot());
    TAILRACE_TRY(segment->file_->write_at(encode(header), 0));
    return segment;
}

// Files of earlier attempts are removed before their epoch is written again (shared/epoch_files.h).
// This is the second line of defence: if a file of this name is there all the same, perhaps another
// leader's, then its slot must be empty for good before any new data comes.
Status Segment::empty_slot() {
    const uint64_t offset = slot_offset(header_, leader_);
    const std::vector<std::byte> empty(header_.block_bytes);
    TAILRACE_ASSIGN(const uint64_t bytes_before, file_->size());
    TAILRACE_TRY(file_->write_at(empty, offset));
    return bytes_before <= offset ? Status() : sync();
}

Status Segment::seal(SegmentIndex index, uint64_t end) {
    INVARIANT(!slot_);  // sealed once
    normalize(index.extents);
    if (header_.leader_count == 1) TAILRACE_TRY(file_->truncate(end));

    LeaderSlot slot;
    for (const Extent& extent : index.extents) slot.data_bytes += extent.bytes;
    std::vector<std::byte> encoded = encode(index);
    if (encoded.size() > header_.index_area_bytes)
        return Status(
            Code::failed_state,
            fmt::format("the index of leader {} in {} takes {} bytes, but only {} were reserved for it",
                        leader_, path_, encoded.size(), header_.index_area_bytes));
    slot.index_bytes = encoded.size();
    slot.index_crc = crc32c(encoded);
    encoded.resize(align_up(encoded.size(), header_.block_bytes));  // whole blocks suit direct I/O
    TAILRACE_TRY(file_->write_at(encoded, index_offset(header_, leader_)));
    // The slot vouches for data, index, header and the file's name. So all of them become durable
    // before it.
    TAILRACE_TRY(sync());
    TAILRACE_TRY(storage_.sync_directory(directory_));
    slot_ = slot;
    return {};
}

Status Segment::commit() {
    if (!slot_)
        return Status(Code::failed_state, fmt::format("{} cannot be committed: it is not sealed", path_));
    INVARIANT(slot_->index_bytes > 0 && slot_->index_bytes <= header_.index_area_bytes);
    note_step("slot of leader in epoch is written", leader_, header_.key.epoch);
    slot_->leader = leader_;
    slot_->committed_unix_ms = unix_ms_now();
    slot_->run_uid = header_.run_uid;
    slot_->key = header_.key;
    TAILRACE_TRY(file_->write_at(encode(*slot_, header_.block_bytes), slot_offset(header_, leader_)));
    return sync();
}

Status Segment::sync() {
    const auto start = SteadyClock::now();
    Status status = file_->sync();
    sync_seconds_ += std::chrono::duration<double>(SteadyClock::now() - start).count();
    return status;
}

}  // namespace tailrace::internal
