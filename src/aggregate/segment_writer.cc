#include "aggregate/segment_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/invariant.h"
#include "base/log.h"
#include "base/units.h"
#include "threads/mutex.h"

namespace tailrace::internal {

SegmentWriter::SegmentWriter(std::shared_ptr<const FlushPlan> plan, uint32_t leader, Storage& storage,
                             std::string directory, OpenOptions how, Throttle& throttle,
                             WorkingName working_name)
    : plan_(std::move(plan)),
      leader_(leader),
      storage_(storage),
      directory_(std::move(directory)),
      how_(how),
      throttle_(throttle),
      allocator_(*plan_, leader) {
    for (uint32_t k = plan_->group.first_file; k < plan_->group.last_file; ++k) {
        OutputFile output;
        output.path = working_path(directory_, *plan_, k, working_name);
        files_.push_back(std::move(output));
    }
}

Status SegmentWriter::prepare(uint32_t file) {
    OutputFile& output = files_[file];
    TAILRACE_TRY(check_not_abandoned(output));
    const uint32_t number = plan_->group.first_file + file;
    TAILRACE_ASSIGN(output.segment,
                    Segment::begin(storage_, directory_, output.path, plan_->header(number), leader_, how_));
    const uint64_t length = expected_file_bytes(*plan_, number);
    // Reserving takes space for holes, too. So it is done only if holes are at most a quarter of
    // the data.
    if (output.segment->header().leader_count == 1 || length / 5 * 4 <= plan_->bytes()) {
        TAILRACE_TRY(reserve_if_possible(output.segment->file(), 0, length));
    }
    return Status();
}

Status SegmentWriter::write(uint32_t rank, uint64_t stream_offset, std::span<const std::byte> blocks,
                            std::span<std::byte> buffer, uint64_t buffered_bytes) {
    const uint64_t bytes = blocks.size() + buffered_bytes, padded = align_up(bytes, plan_->block_bytes);
    INVARIANT(blocks.size() % plan_->block_bytes == 0 && padded - blocks.size() <= buffer.size());
    TAILRACE_TRY(check_not_abandoned(files_.front()));
    const std::span<std::byte> rest = buffer.first(padded - blocks.size());
    std::memset(rest.data() + buffered_bytes, 0, rest.size() - buffered_bytes);
    if (!throttle_.pass(padded)) return Status(Code::aborted, "the writers were told to stop");

    std::vector<ExtentAllocator::Placed> placed;
    {
        MutexLock lock(mutex_);
        placed = allocator_.allocate(rank, stream_offset, bytes);
        for (const auto& piece : placed) files_[piece.file].extents.push_back(piece.extent);
        written_.add(rank, stream_offset, bytes);
    }
    for (const auto& piece : placed) {
        const uint64_t begin = piece.extent.stream_offset - stream_offset;
        const uint64_t end = begin + align_up(piece.extent.bytes, plan_->block_bytes);
        INVARIANT(piece.extent.stream_offset >= stream_offset && end <= padded);
        INVARIANT(piece.extent.file_offset % plan_->block_bytes == 0);
        // Where `blocks` end and `rest` begins.
        const uint64_t border = std::clamp<uint64_t>(blocks.size(), begin, end);
        File& file = files_[piece.file].segment->file();
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
    TAILRACE_TRY(check_not_abandoned(output));
    SegmentIndex index;
    index.streams = plan_->streams();
    uint64_t end = 0;
    {
        MutexLock lock(mutex_);
        index.extents = std::move(output.extents);
        end = allocator_.file_end(file);
    }
    return output.segment->seal(std::move(index), end);
}

Status SegmentWriter::commit(uint32_t file) {
    OutputFile& output = files_[file];
    TAILRACE_TRY(check_not_abandoned(output));
    return output.segment->commit();
}

Status SegmentWriter::check_not_abandoned(const OutputFile& output) const {
    if (!abandoned_) return Status();
    return Status(Code::aborted, fmt::format("{} was given up", output.path));
}

WrittenChunks SegmentWriter::written() const {
    MutexLock lock(mutex_);
    return written_;
}

double SegmentWriter::sync_seconds() const {
    double sum = 0;
    for (const OutputFile& output : files_)
        if (output.segment) sum += output.segment->sync_seconds();
    return sum;
}

std::string working_path(const std::string& directory, const FlushPlan& plan, uint32_t file,
                         WorkingName working_name) {
    return join_path(directory, working_name({plan.job, plan.key, file, plan.file_count, false}));
}

void discard(Storage& storage, const std::string& directory, const FlushPlan& plan,
             WorkingName working_name) {
    for (uint32_t k = plan.group.first_file; k < plan.group.last_file; ++k) {
        const Status removed = remove_if_there(storage, working_path(directory, plan, k, working_name));
        if (!removed.ok())
            log(LogLevel::warning, "{} failed, and a file of it could not be removed: {}",
                to_string(plan.key), removed.message());
    }
}

}  // namespace tailrace::internal
