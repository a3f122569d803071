#include "aggregate/segment_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "base/wall_clock.h"

namespace tailrace {

SegmentWriter::SegmentWriter(std::shared_ptr<const FlushPlan> plan, uint32_t leader, Storage& storage,
                             std::string directory, DirectIo direct, Throttle& throttle)
    : plan_(std::move(plan)),
      leader_(leader),
      storage_(storage),
      directory_(std::move(directory)),
      direct_(direct),
      throttle_(throttle),
      allocator_(*plan_, leader) {
    for (uint32_t k = plan_->group.first_file; k < plan_->group.last_file; ++k) {
        OutputFile output;
        output.header = plan_->header(k);
        output.path = unfinished_path(directory_, *plan_, k);
        files_.push_back(std::move(output));
    }
}

Status SegmentWriter::prepare(uint32_t file) {
    OutputFile& output = files_[file];
    TAILRACE_TRY(check_not_abandoned(output));
    // Every leader of the file comes here and may be the first: all write the same header.
    TAILRACE_ASSIGN(output.file, storage_.open(output.path, {Access::write, direct_}));
    TAILRACE_TRY(empty_slot(output));
    TAILRACE_TRY(output.file->write_at(encode(output.header), 0));
    const uint64_t length = expected_file_bytes(*plan_, plan_->group.first_file + file);
    // Reserving takes space for holes too: a quarter of the data at most.
    if (output.header.leader_count == 1 || length / 5 * 4 <= plan_->bytes()) {
        const Status reserved = output.file->reserve(length);
        if (!reserved.ok() && reserved.code() != Code::unsupported) return reserved;
    }
    return Status();
}

// Files of earlier attempts are removed before their epoch is flushed again (shared/epoch_files.h). This is
// the second line: where a file is there under this name all the same, and be it another leader's, what its
// slot says is gone for good before any data of ours come.
Status SegmentWriter::empty_slot(const OutputFile& output) {
    const uint64_t offset = slot_offset(output.header, leader_);
    const std::vector<std::byte> empty(output.header.block_bytes);
    TAILRACE_ASSIGN(const uint64_t bytes_before, output.file->size());
    TAILRACE_TRY(output.file->write_at(empty, offset));
    return bytes_before <= offset ? Status() : sync(*output.file);
}

Status SegmentWriter::write(uint32_t rank, uint64_t stream_offset, std::span<const std::byte> blocks,
                            std::span<std::byte> buffer, uint64_t buffered_bytes) {
    const uint64_t bytes = blocks.size() + buffered_bytes, padded = align_up(bytes, plan_->block_bytes);
    assert(blocks.size() % plan_->block_bytes == 0 && padded - blocks.size() <= buffer.size());
    TAILRACE_TRY(check_not_abandoned(files_.front()));
    const std::span<std::byte> rest = buffer.first(padded - blocks.size());
    std::memset(rest.data() + buffered_bytes, 0, rest.size() - buffered_bytes);
    if (!throttle_.pass(padded)) return Status(Code::aborted, "the writers were told to stop");

    std::vector<ExtentAllocator::Placed> placed;
    {
        std::lock_guard lock(mutex_);
        placed = allocator_.allocate(rank, stream_offset, bytes);
        for (const auto& piece : placed) files_[piece.file].extents.push_back(piece.extent);
        data_bytes_ += bytes;
    }
    for (const auto& piece : placed) {
        const uint64_t begin = piece.extent.stream_offset - stream_offset;
        const uint64_t end = begin + align_up(piece.extent.bytes, plan_->block_bytes);
        const uint64_t border = std::clamp<uint64_t>(blocks.size(), begin, end);  // of blocks and rest
        File& file = *files_[piece.file].file;
        if (begin < border)
            TAILRACE_TRY(file.write_at(blocks.subspan(begin, border - begin), piece.extent.file_offset));
        if (border < end)
            TAILRACE_TRY(file.write_at(rest.subspan(border - blocks.size(), end - border),
                                       piece.extent.file_offset + (border - begin)));
    }
    return Status();
}

Status SegmentWriter::seal(uint32_t file) {
    OutputFile& output = files_[file];
    const SharedHeader& header = output.header;
    TAILRACE_TRY(check_not_abandoned(output));

    SegmentIndex index;
    index.streams = plan_->streams();
    uint64_t end = 0;
    {
        std::lock_guard lock(mutex_);
        index.extents = std::move(output.extents);
        end = allocator_.file_end(file);
    }
    normalize(index.extents);
    if (header.leader_count == 1) TAILRACE_TRY(output.file->truncate(end));

    LeaderSlot slot;
    for (const Extent& extent : index.extents) slot.data_bytes += extent.bytes;
    std::vector<std::byte> encoded = encode(index);
    if (encoded.size() > header.index_area_bytes) {
        return Status(Code::failed_state,
                      fmt::format("the index of leader {} in {} takes {} bytes, and {} were set aside for it",
                                  leader_, output.path, encoded.size(), header.index_area_bytes));
    }
    slot.index_bytes = encoded.size();
    slot.index_crc = crc32c(encoded);
    encoded.resize(align_up(encoded.size(), header.block_bytes));  // whole blocks, so that it may go directly
    TAILRACE_TRY(output.file->write_at(encoded, index_offset(header, leader_)));
    // Everything that the slot vouches for is durable before it: data, index, header and the file's name.
    TAILRACE_TRY(sync(*output.file));
    TAILRACE_TRY(storage_.sync_directory(directory_));
    output.slot = slot;
    return Status();
}

Status SegmentWriter::commit(uint32_t file) {
    OutputFile& output = files_[file];
    const SharedHeader& header = output.header;
    TAILRACE_TRY(check_not_abandoned(output));
    if (!output.slot)
        return Status(Code::failed_state,
                      fmt::format("{} cannot be committed: it is not sealed", output.path));
    LeaderSlot& slot = *output.slot;
    slot.leader = leader_;
    slot.committed_unix_ms = unix_ms_now();
    slot.run_uid = header.run_uid;
    slot.key = header.key;
    TAILRACE_TRY(output.file->write_at(encode(slot, header.block_bytes), slot_offset(header, leader_)));
    return sync(*output.file);
}

Status SegmentWriter::sync(File& file) {
    const auto start = std::chrono::steady_clock::now();
    Status status = file.sync();
    const auto spent = std::chrono::steady_clock::now() - start;
    sync_ns_ += static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
    return status;
}

Status SegmentWriter::check_not_abandoned(const OutputFile& output) const {
    if (!abandoned_) return Status();
    return Status(Code::aborted, fmt::format("{} was given up", output.path));
}

uint64_t SegmentWriter::data_bytes() const {
    std::lock_guard lock(mutex_);
    return data_bytes_;
}

double SegmentWriter::sync_seconds() const {
    return static_cast<double>(sync_ns_.load()) * 1e-9;
}

std::string unfinished_path(const std::string& directory, const FlushPlan& plan, uint32_t file) {
    return join_path(directory, to_string(SharedFileName{plan.job, plan.key, file, plan.file_count, true}));
}

void discard(Storage& storage, const std::string& directory, const FlushPlan& plan) {
    for (uint32_t k = plan.group.first_file; k < plan.group.last_file; ++k) {
        const Status removed = storage.remove(unfinished_path(directory, plan, k));
        if (!removed.ok() && removed.code() != Code::not_found)
            log(LogLevel::warning, "{} failed and its file stays behind: {}", to_string(plan.key),
                removed.message());
    }
}

}  // namespace tailrace
