#include "read/epoch_reader_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "memory/buffer_pool.h"
#include "threads/queue.h"
#include "threads/worker.h"

namespace tailrace::internal {

namespace {

// With smaller calls the storage waits in between.
constexpr uint64_t min_call_bytes = 8 << 20;
constexpr uint64_t uncached_call_bytes = 52 << 20;  // 20 calls for a GiB
constexpr uint64_t page_bytes = 4096;
// What writers wrote in pieces of min_call_bytes takes no more calls to read than to write,
// although a read call ends with a block, and a rank may read its state in a few parts.
constexpr uint64_t buffered_call_bytes = min_call_bytes + (2 << 20);
// A call, and the pages around it.
constexpr uint64_t buffer_bytes = buffered_call_bytes + 2 * page_bytes;
constexpr size_t max_warnings = 16;  // per source and call; the rest is only counted

struct Mismatch {
    size_t block = 0;
    uint32_t found = 0;
};

// What a read call has read.
struct Arrived {
    const ReadCall* call = nullptr;
    Buffer buffer;                     // not valid: the bytes are in their place already
    std::span<const std::byte> bytes;  // in the buffer, from the call's offset on
    std::vector<size_t> complete;      // blocks that are complete now
};

// Copies what was read to its place and computes the checksums. It works in the caller's thread, or
// in a thread of its own while the caller reads on. finish() ends the thread and returns the
// mismatches.
class Finisher {
  public:
    Finisher(std::span<const StreamBlock> blocks, const std::byte* throw_away, bool own_thread)
        : blocks_(blocks), throw_away_(throw_away) {
        if (!own_thread) return;
        try {
            worker_ = Worker("tr-check", {}, [this](std::stop_token) {
                while (auto arrived = queue_.pop()) {
                    try {
                        complete(*arrived);
                    } catch (...) {
                        if (!thrown_) thrown_ = std::current_exception();
                    }
                }
            });
        } catch (const std::system_error& error) {
            log(LogLevel::debug, "checksums are computed in the reading thread: {}", error.what());
        }
    }
    ~Finisher() { finish(); }
    Finisher(const Finisher&) = delete;
    Finisher& operator=(const Finisher&) = delete;

    bool has_thread() const { return worker_.running(); }

    void add(Arrived arrived) {
        if (worker_.running())
            queue_.push(std::move(arrived));
        else
            complete(arrived);
    }

    const std::vector<Mismatch>& finish() {
        queue_.close();
        worker_.join();
        return mismatches_;
    }
    // Call after finish(): rethrows what was thrown in the other thread.
    void throw_on() const {
        if (thrown_) std::rethrow_exception(thrown_);
    }

    // How many buffers can be in use: those in the queue, the one at work, and the one that is
    // being filled.
    static constexpr size_t max_buffers = 4;

  private:
    void complete(const Arrived& arrived) {
        if (arrived.buffer.valid()) {
            auto rest = arrived.bytes;
            for (const Piece& piece : arrived.call->pieces) {
                const auto bytes = rest.first(std::min(rest.size(), piece.size()));
                if (piece.data() != throw_away_ && !bytes.empty())
                    std::memcpy(piece.data(), bytes.data(), bytes.size());
                rest = rest.subspan(bytes.size());
            }
        }
        for (const size_t number : arrived.complete) {
            const StreamBlock& block = blocks_[number];
            if (!block.crc) continue;
            const uint32_t found = crc32c(block.memory);
            if (found != *block.crc) mismatches_.push_back({number, found});
        }
    }

    std::span<const StreamBlock> blocks_;
    const std::byte* const throw_away_;
    // Each entry is one read call. Two in the queue keep the thread busy without letting the caller
    // get far ahead.
    BoundedQueue<Arrived> queue_{max_buffers - 2};
    std::vector<Mismatch> mismatches_;  // belongs to the worker until it is joined
    std::exception_ptr thrown_;         // the same
    Worker worker_;
};

struct BlockFailure {
    size_t block = 0;
    Status why;
};

// One attempt: reads `blocks` from `source`, and returns those that could not be read, with the
// reason.
class Attempt {
  public:
    Attempt(ReadableFiles& files, const StreamSource& source, std::span<const StreamBlock> blocks,
            const std::function<std::string(const StreamBlock&)>& describe)
        : files_(files), source_(source), blocks_(blocks), describe_(describe), missing_(blocks.size()) {
        for (size_t b = 0; b < blocks.size(); ++b) missing_[b] = blocks[b].memory.size();
    }

    std::vector<BlockFailure> run() {
        ReadLimits limits;
        uint64_t total = 0;
        for (uint64_t bytes : missing_) total += bytes;
        const bool checks = std::any_of(blocks_.begin(), blocks_.end(),
                                        [](const StreamBlock& block) { return block.crc.has_value(); });
        const Route route =
            source_.extents.empty() ? Route::cached : files_.route(source_.extents.front().file);
        const auto throw_away = std::make_unique<std::byte[]>(limits.gap_bytes);
        // Declared before the finisher, because its thread uses them.
        std::vector<ReadCall> calls;
        std::unique_ptr<BufferPool> buffers;
        Finisher finisher(blocks_, throw_away.get(),
                          (checks || route == Route::direct) && total > second_thread_bytes);
        if (route == Route::direct && finisher.has_thread()) {
            auto made = BufferPool::create(Finisher::max_buffers, buffer_bytes, page_bytes);
            if (made.ok()) buffers = std::move(*made);
        }
        // Through buffers, a call reads as much as a buffer holds. Otherwise calls are so short
        // that no more than an eighth of the checksums is left to do when the last byte has come.
        // Uncached calls are few, because the disk waits between them.
        const uint64_t shortest = route == Route::uncached ? uncached_call_bytes : buffered_call_bytes;
        limits.call_bytes =
            std::min(limits.call_bytes, buffers ? buffered_call_bytes : std::max(total / 8, shortest));
        calls = plan_reads(source_.extents, blocks_, limits, std::span(throw_away.get(), limits.gap_bytes));
        for (size_t c = 0; c < calls.size(); ++c) {
            const ReadCall* next = c + 1 < calls.size() ? &calls[c + 1] : nullptr;
            finisher.add(read(calls[c], next, buffers.get()));
        }
        for (const Mismatch& mismatch : finisher.finish()) add_mismatch(mismatch);
        finisher.throw_on();
        std::stable_sort(failures_.begin(), failures_.end(),
                         [](const BlockFailure& a, const BlockFailure& b) { return a.block < b.block; });
        // A block that is cut by an extent's end may have failed in two calls.
        const auto same_block = [](const BlockFailure& a, const BlockFailure& b) {
            return a.block == b.block;
        };
        failures_.erase(std::unique(failures_.begin(), failures_.end(), same_block), failures_.end());
        return std::move(failures_);
    }

  private:
    Arrived read(const ReadCall& call, const ReadCall* next, BufferPool* buffers) {
        Arrived arrived;
        arrived.call = &call;
        uint64_t got = 0;
        Status why;
        auto file = files_.open(call.file);
        if (file.ok()) {
            (*file)->will_read(call.offset, call.bytes);
            if (next != nullptr && next->file == call.file) (*file)->will_read(next->offset, next->bytes);
            auto read = fill(**file, call, buffers, arrived);
            if (read.ok())
                got = *read;
            else
                why = read.status();
        } else {
            why = file.status();
        }
        if (why.ok() && got < call.bytes) {
            why = Status(
                Code::corrupt,
                fmt::format("'{}' is truncated: it ends at offset {}, but {} bytes belong at offset {}",
                            files_.path(call.file), call.offset + got, call.bytes, call.offset));
        }
        for (const ReadCall::Share& share : call.shares) {
            if (share.end > got) {
                fail(share.block, why);
                continue;
            }
            missing_[share.block] -= share.bytes;
            if (missing_[share.block] == 0) arrived.complete.push_back(share.block);
        }
        return arrived;
    }

    // Reads the call's bytes to their places or, if there are buffers, whole pages into a buffer.
    // What is in the page cache is always read to its place. Returns how many of the call's bytes
    // there were. If one call ends in the page in which the next begins, that page is read once.
    Result<uint64_t> fill(File& file, const ReadCall& call, BufferPool* buffers, Arrived& arrived) {
        const uint64_t before = call.offset % page_bytes;
        const uint64_t whole_pages = align_up(before + call.bytes, page_bytes);
        if (buffers != nullptr && whole_pages <= buffer_bytes &&
            file.read_route(call.offset, call.bytes) == Route::direct)
            arrived.buffer = buffers->try_take();
        if (!arrived.buffer.valid()) {
            TAILRACE_ASSIGN(const size_t got, file.read_pieces(call.pieces, call.offset));
            return got;
        }
        const auto memory = arrived.buffer.memory();
        const uint64_t start = call.offset - before;
        const uint64_t known =
            last_page_.empty() || last_file_ != call.file || last_start_ != start ? 0 : page_bytes;
        std::copy_n(last_page_.begin(), known, memory.begin());
        uint64_t got = known;
        if (known < whole_pages) {
            TAILRACE_ASSIGN(const size_t more,
                            file.read_at(memory.subspan(known, whole_pages - known), start + known));
            got += more;
        }
        last_page_.clear();
        if (got == whole_pages) {
            const auto page = memory.subspan(whole_pages - page_bytes, page_bytes);
            last_page_.assign(page.begin(), page.end());
            last_file_ = call.file;
            last_start_ = start + whole_pages - page_bytes;
        }
        const uint64_t ours = std::min(got - std::min<uint64_t>(got, before), call.bytes);
        arrived.bytes = memory.subspan(before, ours);
        return ours;
    }

    void fail(size_t block, const Status& why) {
        failures_.push_back({block, why.with_context(describe_(blocks_[block]))});
    }

    void add_mismatch(const Mismatch& mismatch) {
        const StreamBlock& block = blocks_[mismatch.block];
        const StreamExtent& extent = extent_at(source_.extents, block.stream_offset);
        failures_.push_back(
            {mismatch.block,
             Status(Code::corrupt,
                    fmt::format("{}: checksum mismatch in '{}' at offset {}, {} bytes: expected {:08x}, "
                                "computed {:08x}",
                                describe_(block), files_.path(extent.file),
                                extent.file_offset + (block.stream_offset - extent.stream_offset),
                                block.memory.size(), *block.crc, mismatch.found))});
    }

    ReadableFiles& files_;
    const StreamSource& source_;
    std::span<const StreamBlock> blocks_;
    const std::function<std::string(const StreamBlock&)>& describe_;
    std::vector<uint64_t> missing_;     // bytes of each block not yet read
    std::vector<std::byte> last_page_;  // of the last call that went into a buffer
    uint32_t last_file_ = 0;
    uint64_t last_start_ = 0;  // the page's offset in the file
    std::vector<BlockFailure> failures_;
};

// Logs one warning for each region that failed, with the reason of its first block.
void warn(std::span<const BlockFailure> failures, std::span<const StreamBlock> blocks,
          const StreamSource& source, const StreamSource* next) {
    if (!log_enabled(LogLevel::warning)) return;
    const std::string then = next != nullptr ? fmt::format("; reading it from {}", next->tier) : "";
    size_t warnings = 0;
    for (size_t f = 0; f < failures.size();) {
        const uint32_t region = blocks[failures[f].block].region;
        size_t of_region = 1;
        while (f + of_region < failures.size() && blocks[failures[f + of_region].block].region == region)
            ++of_region;
        if (++warnings > max_warnings) {
            log(LogLevel::warning, "{} more blocks failed in {}{}", failures.size() - f, source.tier, then);
            return;
        }
        const std::string more =
            of_region > 1 ? fmt::format(" (and {} more blocks of it)", of_region - 1) : "";
        log(LogLevel::warning, "{}: {}{}{}", source.tier, failures[f].why.message(), more, then);
        f += of_region;
    }
}

// The code for several failures: the common one if they agree, otherwise corrupt. A file that was
// there when the epoch was opened, and is gone now, is also damage. It does not mean that the epoch
// was not found.
Code combined_code(std::span<const Status> reasons) {
    const Code first = reasons.front().code();
    const bool agree =
        std::all_of(reasons.begin(), reasons.end(), [&](const Status& why) { return why.code() == first; });
    return agree && first != Code::not_found ? first : Code::corrupt;
}

}  // namespace

Status read_blocks(ReadableFiles& files, std::span<const StreamSource> sources,
                   std::vector<StreamBlock> blocks,
                   const std::function<std::string(const StreamBlock&)>& describe) {
    if (blocks.empty()) return Status();
    std::vector<Status> reasons;
    for (size_t s = 0; s < sources.size(); ++s) {
        auto failures = Attempt(files, sources[s], blocks, describe).run();
        if (failures.empty()) return Status();
        warn(failures, blocks, sources[s], s + 1 < sources.size() ? &sources[s + 1] : nullptr);
        const std::string more =
            failures.size() > 1 ? fmt::format(" (and {} more blocks)", failures.size() - 1) : "";
        reasons.push_back(
            Status(failures.front().why.code(),
                   fmt::format("{}: {}{}", sources[s].tier, failures.front().why.message(), more)));
        std::vector<StreamBlock> left;
        left.reserve(failures.size());
        for (const BlockFailure& failure : failures) left.push_back(blocks[failure.block]);
        blocks = std::move(left);
    }
    std::string sentence;
    if (reasons.empty())
        return Status(Code::corrupt,
                      fmt::format("{}: no captured part or shared file holds all of the rank's data",
                                  describe(blocks.front())));
    for (const Status& why : reasons) sentence += (sentence.empty() ? "" : "; ") + why.message();
    return Status(combined_code(reasons), sentence);
}

}  // namespace tailrace::internal
