// lay_out_regions lets the format lay out the stream, and cuts it into runs. write_runs cuts the
// runs into chunks as large as a buffer. Threads take chunk after chunk: copy, checksum, write.
//
// A check block may begin in one chunk and end in the next. The chunk in which it begins computes
// its checksum: the whole source is in memory, so no other thread's result is needed.
#include "direct/direct_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <system_error>

#include "base/caught.h"
#include "base/crc32c.h"
#include "base/units.h"
#include "memory/buffer_pool.h"
#include "memory/stream_copy.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal {

void add_regions(PartManifest& manifest, const std::vector<RegionShape>& shapes) {
    for (const RegionShape& shape : shapes) {
        Region region;
        region.name = shape.name;
        region.bytes = shape.bytes;
        region.array = shape.array;
        manifest.regions.push_back(std::move(region));
    }
}

Result<RegionLayout> lay_out_regions(const std::vector<RegionShape>& regions, uint32_t run_count) {
    PartManifest manifest;
    manifest.has_checksums = false;
    add_regions(manifest, regions);
    TAILRACE_TRY(internal::lay_out(manifest));
    RegionLayout layout;
    for (const Region& region : manifest.regions)
        layout.offsets.push_back(region.stream_offset - manifest.manifest_bytes);
    layout.bytes = regions.empty() ? 0 : layout.offsets.back() + regions.back().bytes;

    // A region belongs to the run in whose equal share of the bytes it starts.
    uint32_t region = 0;
    for (uint32_t run = 0; run < run_count; ++run) {
        const double share_end = static_cast<double>(layout.bytes) * (run + 1) / run_count;
        RegionRun cut{region, region, 0, 0};
        while (region < regions.size() &&
               (run + 1 == run_count || static_cast<double>(layout.offsets[region]) < share_end))
            ++region;
        cut.last = region;
        if (cut.first < cut.last) {
            cut.start = layout.offsets[cut.first];
            const uint64_t end = cut.last < regions.size() ? layout.offsets[cut.last] : layout.bytes;
            cut.bytes = align_up(end - cut.start, stream_alignment);
        }
        layout.runs.push_back(cut);
    }
    return layout;
}

namespace {

struct Chunk {
    size_t run = 0;
    uint64_t within = 0;  // offset from the run's start
    uint64_t bytes = 0;
};

// What the threads of one call share.
class Job {
  public:
    Job(const RegionLayout& layout, std::span<const std::span<const std::byte>> memory,
        const std::vector<RunPlace>& places, uint64_t buffer_bytes)
        : layout_(layout), memory_(memory), places_(places) {
        for (const auto& region : memory)
            crcs_.emplace_back((region.size() + check_block_bytes - 1) / check_block_bytes);
        for (size_t run = 0; run < layout.runs.size(); ++run)
            for (uint64_t within = 0; within < layout.runs[run].bytes; within += buffer_bytes)
                chunks_.push_back({run, within, std::min(buffer_bytes, layout.runs[run].bytes - within)});
    }

    Status open(Storage& storage, DirectIo direct) {
        for (size_t run = 0; run < places_.size(); ++run) {
            auto& file = files_.emplace_back();
            if (layout_.runs[run].bytes == 0) continue;
            TAILRACE_ASSIGN(file, storage.open(places_[run].path, {Access::write, direct}));
            // A write that makes its file longer keeps all others out of the file, and here several
            // threads and ranks write. And a full disk is found before anything is written.
            TAILRACE_TRY(reserve_if_possible(*file, places_[run].file_offset, layout_.runs[run].bytes));
        }
        return {};
    }

    // Works until no chunk is left, or something has failed.
    void work(std::span<std::byte> buffer) {
        for (size_t next = next_++; next < chunks_.size() && !failed_; next = next_++) {
            const Chunk& chunk = chunks_[next];
            fill(chunk, buffer);
            fail(files_[chunk.run]->write_at(buffer.first(chunk.bytes),
                                             places_[chunk.run].file_offset + chunk.within));
        }
    }

    void fail(const Status& status) {
        if (status.ok()) return;
        const MutexLock lock(mutex_);
        if (failure_.ok()) failure_ = status;
        failed_ = true;
    }

    // What was written, when no thread works any more.
    Result<UnsyncedRuns> finish() {
        const MutexLock lock(mutex_);
        TAILRACE_TRY(failure_);
        UnsyncedRuns runs{std::move(crcs_), {}};
        for (auto& file : files_)
            if (file) runs.files.push_back(std::move(file));
        return runs;
    }

    size_t chunk_count() const { return chunks_.size(); }

  private:
    void fill(const Chunk& chunk, std::span<std::byte> buffer) {
        const RegionRun& run = layout_.runs[chunk.run];
        // These two count as layout_.offsets do.
        const uint64_t from = run.start + chunk.within, to = from + chunk.bytes;
        const auto begin = layout_.offsets.begin();
        auto region =
            static_cast<size_t>(std::upper_bound(begin + run.first, begin + run.last, from) - begin - 1);
        uint64_t filled = from;
        for (; region < run.last && layout_.offsets[region] < to; ++region) {
            const uint64_t start = layout_.offsets[region];
            const uint64_t end = start + memory_[region].size();
            if (end <= from) continue;
            const uint64_t first = std::max(start, from), last = std::min(end, to);
            if (first > filled) std::memset(buffer.data() + (filled - from), 0, first - filled);
            copy(region, first - start, last - start, buffer.data() + (first - from));
            filled = std::max(filled, last);
        }
        if (filled < to) std::memset(buffer.data() + (filled - from), 0, to - filled);
    }

    // Copies the bytes [from, to) of a region, and computes the checksums of the blocks that begin
    // there.
    void copy(size_t region, uint64_t from, uint64_t to, std::byte* target) {
        const std::span<const std::byte> memory = memory_[region];
        for (uint64_t at = from; at < to;) {
            const uint64_t block = at / check_block_bytes;
            const uint64_t block_end = std::min<uint64_t>((block + 1) * check_block_bytes, memory.size());
            const uint64_t end = std::min(block_end, to);
            if (at != block * check_block_bytes) {
                stream_copy(memory.subspan(at, end - at), target);
            } else {
                uint32_t crc = stream_copy_crc32c(memory.subspan(at, end - at), target);
                if (end < block_end) crc = crc32c(memory.subspan(end, block_end - end), crc);
                crcs_[region][block] = crc;
            }
            target += end - at;
            at = end;
        }
    }

    const RegionLayout& layout_;
    const std::span<const std::span<const std::byte>> memory_;
    const std::vector<RunPlace>& places_;
    std::vector<Chunk> chunks_;
    std::vector<std::unique_ptr<File>> files_;  // by run; null for an empty run
    std::vector<std::vector<uint32_t>> crcs_;   // one thread writes each element
    std::atomic<size_t> next_ = 0;
    std::atomic<bool> failed_ = false;
    Mutex mutex_;
    Status failure_ GUARDED_BY(mutex_);
};

}  // namespace

Status UnsyncedRuns::sync() {
    for (const auto& file : files) TAILRACE_TRY(file->sync());
    return {};
}

Result<UnsyncedRuns> copy_runs(Storage& storage, const RegionLayout& layout,
                               std::span<const std::span<const std::byte>> memory,
                               const std::vector<RunPlace>& places, const DirectWriteOptions& options) {
    if (memory.size() != layout.offsets.size() || places.size() != layout.runs.size())
        return Status(
            Code::invalid_argument,
            fmt::format("{} regions in {} places do not fit a layout of {} in {}; nothing was written",
                        memory.size(), places.size(), layout.offsets.size(), layout.runs.size()));
    if (options.buffer_bytes == 0 || options.buffer_bytes % stream_alignment != 0)
        return Status(Code::invalid_argument,
                      fmt::format("buffer_bytes = {}: a multiple of {} is expected; nothing was written",
                                  options.buffer_bytes, stream_alignment));
    Job job(layout, memory, places, options.buffer_bytes);
    TAILRACE_TRY(job.open(storage, options.direct));
    const size_t threads = std::clamp<size_t>(options.threads, 1, std::max<size_t>(1, job.chunk_count()));
    TAILRACE_ASSIGN(auto pool, BufferPool::create(threads, options.buffer_bytes, stream_alignment));
    try {
        std::vector<Worker> workers;
        for (size_t i = 0; i < threads; ++i)
            workers.emplace_back("tailrace-direct", Priority{options.nice, options.nice > 0},
                                 [&job, &pool](const std::stop_token&) {
                                     const Buffer buffer = pool->try_take();
                                     job.fail(catching([&] { job.work(buffer.memory()); }));
                                 });
    } catch (const std::system_error& error) {
        return Status(Code::out_of_memory, fmt::format("starting threads to write: {}", error.what()));
    }
    return job.finish();
}

Result<std::vector<std::vector<uint32_t>>> write_runs(Storage& storage, const RegionLayout& layout,
                                                      std::span<const std::span<const std::byte>> memory,
                                                      const std::vector<RunPlace>& places,
                                                      const DirectWriteOptions& options) {
    TAILRACE_ASSIGN(auto runs, copy_runs(storage, layout, memory, places, options));
    TAILRACE_TRY(runs.sync());
    return std::move(runs.crcs);
}

}  // namespace tailrace::internal
