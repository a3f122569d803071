#include "capture/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <system_error>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/stream_copy.h"
#include "base/units.h"
#include "shared/left_intact.h"

namespace tailrace {

namespace {

// One piece of work: large enough that taking it costs nothing, small enough that threads end together.
constexpr uint64_t piece_bytes = 4 * MiB;
// Below this much per thread, waking a helper costs more than it brings.
constexpr uint64_t worth_a_thread_bytes = 8 * MiB;
static_assert(piece_bytes % check_block_bytes == 0);

void zero(std::span<std::byte> bytes) {
    if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
}

}  // namespace

// ---- CopyTeam ----------------------------------------------------------------------------------------

CopyTeam::CopyTeam(size_t helpers) {
    helpers_.reserve(helpers);
    try {
        while (helpers_.size() < helpers)
            helpers_.emplace_back("tailrace copy", Priority{},
                                  [this](const std::stop_token& stop) { help(stop); });
    } catch (const std::system_error& error) {
        // Those there are wait for work that the caller alone can do as well.
        log(LogLevel::info, "regions are copied by {} threads, not {}: {}", threads(), helpers + 1,
            error.what());
    }
}

CopyTeam::~CopyTeam() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    has_work_.notify_all();
}

void CopyTeam::take(std::unique_lock<std::mutex>& lock) {
    while (next_ < count_) {
        const size_t mine = next_++;
        const auto* work = work_;
        lock.unlock();
        std::exception_ptr thrown;
        try {
            (*work)(mine);
        } catch (...) {
            thrown = std::current_exception();
        }
        lock.lock();
        if (thrown && !thrown_) thrown_ = thrown;
        if (++finished_ == count_) done_.notify_all();
    }
}

void CopyTeam::help(const std::stop_token&) {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        has_work_.wait(lock, [&] { return stopping_ || next_ < count_; });
        take(lock);
    }
}

void CopyTeam::run(size_t count, const std::function<void(size_t)>& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = finished_ = 0;
    has_work_.notify_all();
    take(lock);
    done_.wait(lock, [&] { return finished_ == count_; });
    count_ = next_ = 0;
    work_ = nullptr;
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

// ---- Capture -----------------------------------------------------------------------------------------

// A run of the stream that one thread copies: a part of one large region, or several small regions whole.
struct Capture::Piece {
    size_t first_region = 0, last_region = 0;  // [first, last)
    uint64_t region_offset = 0;                // within the region, when it is a single one
    uint64_t bytes = 0;                        // of it; 0: several regions, whole
};

struct Capture::Sink {
    std::span<std::byte> mapping;  // of header and stream; or else
    File* file = nullptr;
};

Capture::Capture(Storage& storage, Options options) : storage_(storage), options_(std::move(options)) {}
Capture::~Capture() = default;

Status Capture::with_space(Status failure, uint64_t needed) const {
    if (failure.code() != Code::no_space) return failure;
    auto space = storage_.space(options_.directory);
    const std::string free = space.ok() ? format_bytes(space->free_bytes) : "an unknown amount";
    return Status(Code::no_space, fmt::format("{} (this part needs {}; {} is free in {})", failure.message(),
                                              format_bytes(needed), free, options_.directory));
}

PartManifest Capture::manifest_of(const PartHeader& header, std::span<const RegionSource> regions) const {
    PartManifest manifest;
    manifest.rank = header.stream.rank;
    manifest.rank_count = header.rank_count;
    manifest.has_checksums = options_.checksum;
    for (const auto& region : regions) {
        auto& entry = manifest.regions.emplace_back();
        entry.name = region.name;
        entry.bytes = region.memory.size();
        entry.array = region.array;
    }
    return manifest;
}

Status Capture::check(const PartHeader& header, std::span<const RegionSource> regions) const {
    auto manifest = manifest_of(header, regions);
    return lay_out(manifest);
}

// Somebody may have removed the directory since the session began.
Result<std::unique_ptr<File>> Capture::open_unfinished(const std::string& path) {
    auto file = storage_.open(path, {Access::write, DirectIo::off});
    if (file.status().code() != Code::not_found) return file;
    TAILRACE_TRY(storage_.make_directories(options_.directory));
    log(LogLevel::warning, "{} was removed, with what was captured there before, and is made again",
        options_.directory);
    return storage_.open(path, {Access::write, DirectIo::off});
}

Result<OwnPart> Capture::capture(PartHeader header, std::span<const RegionSource> regions,
                                 std::optional<OwnPart> recycled) {
    auto manifest = manifest_of(header, regions);
    PartFileName name{header.job, header.key, header.stream.rank, true};
    const auto unfinished_path = join_path(options_.directory, to_string(name));

    Result<OwnPart> part = Status(Code::aborted, "not tried");
    const std::string recycled_path = recycled ? recycled->path : std::string();
    try {
        if (auto laid_out = lay_out(manifest); laid_out.ok())
            part = write_part(header, manifest, regions, std::move(recycled), unfinished_path);
        else
            part = laid_out;
    } catch (const std::bad_alloc&) {
        part = Status(Code::out_of_memory, "there is no memory for the tables or the small regions");
    }
    if (part.ok()) return part;

    // The failed part must not linger; neither must the one it was to replace, whose turn was over.
    for (const auto& path : {unfinished_path, recycled_path}) {
        if (path.empty()) continue;
        auto removed = storage_.remove(path);
        if (!removed.ok() && removed.code() != Code::not_found)
            log(LogLevel::info, "after a failed capture, {} stays behind: {}", path, removed.message());
    }
    return with_space(part.status(), part_header_bytes + manifest.stream_bytes)
        .with_context(fmt::format("capturing {} of rank {} in {}; {}", to_string(header.key),
                                  header.stream.rank, options_.directory, left_intact(part.status())));
}

// Whether the space of a part that is no longer needed goes to the new one, which it then is called. Much
// larger than needed, it would hold space that nobody uses. Somebody may have removed or cut it meanwhile:
// memory beyond a file's end cannot be touched (SIGBUS). So its length is asked for once nobody finds it
// under a part's name any more. Who cuts an unfinished file, or one that was opened before, while it is
// copied into still ends the program; only writing instead of mapping, at twice the cost, could prevent that.
bool Capture::take_over(const OwnPart& recycled, uint64_t file_bytes, const std::string& unfinished_path) {
    if (recycled.mapping.empty() || recycled.mapping.size() / 2 > file_bytes) return false;
    if (!storage_.rename(recycled.path, unfinished_path).ok()) return false;
    const auto bytes = recycled.file->size();
    return bytes.ok() && *bytes >= recycled.mapping.size();
}

Result<OwnPart> Capture::write_part(const PartHeader& header, PartManifest& manifest,
                                    std::span<const RegionSource> regions, std::optional<OwnPart> recycled,
                                    const std::string& unfinished_path) {
    const uint64_t file_bytes = part_header_bytes + manifest.stream_bytes;
    OwnPart part;
    part.key = header.key;

    // 1. A file under the unfinished name, and where the stream goes.
    Sink sink;
    if (recycled && take_over(*recycled, file_bytes, unfinished_path)) {
        part.file = std::move(recycled->file);
        part.mapping = recycled->mapping;
        zero(part.mapping.first(part_header_bytes));
        if (part.mapping.size() < file_bytes) {
            // Opened again, so that the old mapping goes before the larger one comes. The pages stay.
            part.mapping = {};
            TAILRACE_TRY(part.file->close());
            TAILRACE_ASSIGN(part.file, storage_.open(unfinished_path, {Access::write, DirectIo::off}));
        }
    } else {
        if (recycled)
            if (auto removed = storage_.remove(recycled->path); removed.code() != Code::not_found)
                TAILRACE_TRY(removed);
        recycled.reset();
        TAILRACE_ASSIGN(part.file, open_unfinished(unfinished_path));
    }
    if (part.mapping.size() < file_bytes) {
        // Somewhat more than needed, so that the next, slightly larger epoch still fits.
        auto mapping = part.file->map(align_up(file_bytes + file_bytes / 64, 64 * KiB));
        if (mapping.status().code() == Code::no_space) mapping = part.file->map(file_bytes);
        if (mapping.ok())
            part.mapping = *mapping;
        else if (mapping.status().code() == Code::unsupported)
            part.mapping = {};
        else
            return mapping.status();
    }
    sink.mapping = part.mapping;
    sink.file = part.file.get();
    if (sink.mapping.empty()) {
        TAILRACE_TRY(part.file->truncate(0));  // something of that name may have been left by a crash
        auto reserved = part.file->reserve(file_bytes);
        if (!reserved.ok() && reserved.code() != Code::unsupported) return reserved;
    }

    // 2. The regions, their checksums into the manifest; then the manifest; then the header.
    TAILRACE_TRY(copy_regions(manifest, regions, sink));
    const auto manifest_bytes = encode(manifest);
    part.stream = {manifest.rank, manifest.stream_bytes, manifest.manifest_bytes, crc32c(manifest_bytes)};
    auto full_header = header;
    full_header.stream = part.stream;
    const auto header_bytes = encode(full_header);
    if (!sink.mapping.empty()) {
        std::memcpy(sink.mapping.data() + part_header_bytes, manifest_bytes.data(), manifest_bytes.size());
        std::memcpy(sink.mapping.data(), header_bytes.data(), header_bytes.size());
    } else {
        TAILRACE_TRY(sink.file->write_at(manifest_bytes, part_header_bytes));
        TAILRACE_ASSIGN(const uint64_t written, sink.file->size());
        if (written < file_bytes) TAILRACE_TRY(sink.file->truncate(file_bytes));  // ends with an empty region
        if (options_.sync) TAILRACE_TRY(sink.file->sync());
        TAILRACE_TRY(sink.file->write_at(header_bytes, 0));
    }
    if (options_.sync) TAILRACE_TRY(sink.file->sync());

    // 3. The final name.
    part.path =
        join_path(options_.directory, to_string(PartFileName{header.job, header.key, manifest.rank, false}));
    if (part.mapping.empty()) {
        TAILRACE_TRY(part.file->close());
        part.file.reset();
    }
    TAILRACE_TRY(storage_.rename(unfinished_path, part.path));
    if (options_.sync) TAILRACE_TRY(storage_.sync_directory(options_.directory));
    return part;
}

Status Capture::copy_regions(PartManifest& manifest, std::span<const RegionSource> regions,
                             const Sink& sink) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < regions.size();) {
        const uint64_t bytes = regions[i].memory.size();
        if (bytes >= large_region_bytes) {
            for (uint64_t at = 0; at < bytes; at += piece_bytes)
                pieces.push_back({i, i + 1, at, std::min(piece_bytes, bytes - at)});
            ++i;
            continue;
        }
        Piece small{i, i, 0, 0};
        const uint64_t start = manifest.regions[i].stream_offset;
        while (i < regions.size() && regions[i].memory.size() < large_region_bytes &&
               manifest.regions[i].stream_offset + regions[i].memory.size() - start <= piece_bytes)
            ++i;
        small.last_region = i;
        pieces.push_back(small);
    }

    std::mutex failure_mutex;
    Status failure;
    auto fail = [&](const Status& status) {
        std::lock_guard lock(failure_mutex);
        if (failure.ok()) failure = status;
    };
    auto copy_region = [&](size_t index, uint64_t from, uint64_t bytes, std::byte* target) {
        auto& crcs = manifest.regions[index].block_crcs;
        const std::byte* const memory = regions[index].memory.data();
        const Strides& strides = regions[index].strides;
        if (!options_.checksum) {
            stream_gather(memory, strides, from, {target, bytes}, nullptr);
            return;
        }
        for (uint64_t at = 0; at < bytes; at += check_block_bytes) {
            const auto block =
                std::span(target, bytes).subspan(at).first(std::min<uint64_t>(check_block_bytes, bytes - at));
            stream_gather(memory, strides, from + at, block, &crcs[(from + at) / check_block_bytes]);
        }
    };
    // Small regions side by side, with zeros between, into memory that stands for the stream from `start`.
    auto copy_small = [&](const Piece& piece, uint64_t start, std::byte* target) {
        uint64_t at = start;
        for (size_t i = piece.first_region; i < piece.last_region; ++i) {
            const auto& region = manifest.regions[i];
            zero({target + (at - start), static_cast<size_t>(region.stream_offset - at)});
            copy_region(i, 0, region.bytes, target + (region.stream_offset - start));
            at = region.stream_offset + region.bytes;
        }
    };
    auto write_large = [&](const Piece& piece) {
        const auto& region = regions[piece.first_region];
        auto& entry = manifest.regions[piece.first_region];
        auto source = region.memory.subspan(piece.region_offset, piece.bytes);
        std::vector<std::byte> gathered;
        if (!region.strides.one_block()) {
            gathered.resize(piece.bytes);
            gather(region.memory.data(), region.strides, piece.region_offset, gathered);
            source = gathered;
        }
        if (options_.checksum)
            for (uint64_t at = 0; at < piece.bytes; at += check_block_bytes)
                entry.block_crcs[(piece.region_offset + at) / check_block_bytes] =
                    crc32c(source.subspan(at, std::min<uint64_t>(check_block_bytes, piece.bytes - at)));
        return sink.file->write_at(source, part_header_bytes + entry.stream_offset + piece.region_offset);
    };
    auto do_piece = [&](size_t number) {
        const auto& piece = pieces[number];
        const uint64_t start = manifest.regions[piece.first_region].stream_offset;
        const auto& last = manifest.regions[piece.last_region - 1];
        if (!sink.mapping.empty()) {
            std::byte* stream = sink.mapping.data() + part_header_bytes;
            if (piece.bytes > 0)
                copy_region(piece.first_region, piece.region_offset, piece.bytes,
                            stream + start + piece.region_offset);
            else
                copy_small(piece, start, stream + start);
        } else if (piece.bytes > 0) {
            if (auto written = write_large(piece); !written.ok()) fail(written);
        } else if (const uint64_t bytes = last.stream_offset + last.bytes - start; bytes > 0) {
            std::vector<std::byte> staged(bytes);
            copy_small(piece, start, staged.data());
            if (auto written = sink.file->write_at(staged, part_header_bytes + start); !written.ok())
                fail(written);
        }
    };

    uint64_t total = 0;
    for (const auto& region : regions) total += region.memory.size();
    const uint64_t useful = std::min<uint64_t>(options_.threads, total / worth_a_thread_bytes);
    if (useful > 1 && !team_) team_ = std::make_unique<CopyTeam>(options_.threads - 1);
    if (useful > 1)
        team_->run(pieces.size(), do_piece);
    else
        for (size_t i = 0; i < pieces.size() && failure.ok(); ++i) do_piece(i);
    // A recycled mapping holds another epoch's bytes in the gaps; nobody shall read them.
    if (!sink.mapping.empty()) {
        uint64_t at = manifest.manifest_bytes;
        for (const auto& region : manifest.regions) {
            zero(sink.mapping.subspan(part_header_bytes + at, region.stream_offset - at));
            at = region.stream_offset + region.bytes;
        }
        zero(sink.mapping.subspan(part_header_bytes + at, manifest.stream_bytes - at));
    }
    return failure;
}

}  // namespace tailrace
