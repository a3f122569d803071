#include "capture/capture.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstring>
#include <new>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "format/original_files.h"

namespace tailrace::internal {

Capture::Capture(Storage& storage, Options options) : storage_(storage), options_(std::move(options)) {}
Capture::~Capture() = default;

Status Capture::with_space(Status failure, uint64_t needed) const {
    if (failure.code() != Code::no_space) return failure;
    struct rlimit largest {};
    if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < needed)
        return Status(Code::no_space,
                      fmt::format("{} (this part needs {}, but the process may write files of {} "
                                  "at most: ulimit -f)",
                                  failure.message(), format_bytes(needed), format_bytes(largest.rlim_cur)));
    auto space = storage_.space(options_.directory);
    const std::string free = space.ok() ? format_bytes(space->free_bytes) : "an unknown amount";
    return Status(Code::no_space,
                  fmt::format("{} (this part needs {}; {} is free in {}; keep_local says how many epochs "
                              "are kept there, and local_dir where)",
                              failure.message(), format_bytes(needed), free, options_.directory));
}

PartManifest Capture::manifest_of(const PartHeader& header, std::span<const RegionSource> regions) const {
    PartManifest manifest;
    manifest.rank = header.stream.rank;
    manifest.rank_count = header.rank_count;
    manifest.has_checksums = options_.checksum;
    for (const auto& region : regions) {
        auto& entry = manifest.regions.emplace_back();
        entry.name = region.name;
        entry.bytes = region.bytes();
        entry.array = region.array;
        manifest.files_apart |= region.name == original_files_region;
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
    log(LogLevel::warning,
        "somebody has removed {} and the epochs that were captured there; the directory is made again",
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

    // Remove the failed part. Remove the recycled part as well: its epoch is no longer needed, and
    // its content may be lost already.
    for (const auto& path : {unfinished_path, recycled_path}) {
        if (path.empty()) continue;
        auto removed = remove_if_there(storage_, path);
        if (!removed.ok())
            log(LogLevel::info, "{} could not be removed after a failed capture: {}", path,
                removed.message());
    }
    return with_space(part.status(), part_header_bytes + manifest.stream_bytes)
        .with_context(fmt::format("capturing {} of rank {} in {}", to_string(header.key), header.stream.rank,
                                  options_.directory));
}

// Renames a part that is no longer needed to the new part's unfinished name, and returns whether
// the new part can use its space. A part of more than twice the size is refused, because it would
// hold space that nobody uses.
//
// Somebody may have removed or truncated the file meanwhile, and memory beyond a file's end cannot
// be touched (SIGBUS). So the length is checked after the rename, when nobody finds the file under
// a part's name any more. One risk remains: a process that truncates the file later, by its
// unfinished name or through a descriptor opened before, still ends the program. Only writing
// instead of mapping could prevent that, and it costs twice as much.
bool Capture::take_over(const OwnPart& recycled, uint64_t file_bytes, const std::string& unfinished_path) {
    if (recycled.mapping.empty() || recycled.mapping.size() / 2 > file_bytes) return false;
    if (!storage_.rename(recycled.path, unfinished_path).ok()) return false;
    const auto bytes = recycled.file->size();
    return bytes.ok() && *bytes >= recycled.mapping.size();
}

Result<OwnPart> Capture::write_part(const PartHeader& header, PartManifest& manifest,
                                    std::span<const RegionSource> regions, std::optional<OwnPart> recycled,
                                    const std::string& unfinished_path) {
    OwnPart part;
    part.key = header.key;
    const uint64_t file_bytes = part_header_bytes + manifest.stream_bytes;
    TAILRACE_TRY(open_file(part, std::move(recycled), file_bytes, unfinished_path));

    RegionCopy copy(manifest, regions, {part.mapping, part.file.get()});
    const bool together = copy.useful_threads(options_.threads) > 1;
    if (together && !team_) team_ = std::make_unique<CopyTeam>(options_.threads - 1);
    TAILRACE_TRY(copy.run(together ? team_.get() : nullptr));
    TAILRACE_TRY(write_tables(header, manifest, part));

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

// Opens a file under the unfinished name. The file is mapped with room for the part where that is
// possible. Elsewhere its space is reserved.
Status Capture::open_file(OwnPart& part, std::optional<OwnPart> recycled, uint64_t file_bytes,
                          const std::string& unfinished_path) {
    if (recycled && take_over(*recycled, file_bytes, unfinished_path)) {
        part.file = std::move(recycled->file);
        part.mapping = recycled->mapping;
        std::memset(part.mapping.data(), 0, part_header_bytes);
        if (part.mapping.size() < file_bytes) {
            // Close and open the file, so that the old mapping goes before the larger one comes.
            // The pages stay.
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
    if (part.mapping.size() < file_bytes) TAILRACE_TRY(map_file(part, file_bytes));
    if (!part.mapping.empty()) return {};
    TAILRACE_TRY(part.file->truncate(0));  // a crash may have left a file of this name
    return reserve_if_possible(*part.file, 0, file_bytes);
}

Status Capture::map_file(OwnPart& part, uint64_t file_bytes) const {
    // Map a little more than needed, so that the next, slightly larger epoch still fits.
    auto mapping = part.file->map(align_up(file_bytes + file_bytes / 64, 64 * KiB));
    if (mapping.status().code() == Code::no_space) mapping = part.file->map(file_bytes);
    part.mapping = mapping.ok() ? *mapping : std::span<std::byte>();
    return mapping.status().code() == Code::unsupported ? Status() : mapping.status();
}

// Writes the manifest, which has the regions' checksums by now, and then the header.
Status Capture::write_tables(const PartHeader& header, const PartManifest& manifest, OwnPart& part) const {
    const auto manifest_bytes = encode(manifest);
    part.stream = {manifest.rank, manifest.stream_bytes, manifest.manifest_bytes, crc32c(manifest_bytes)};
    part.apart_bytes = apart_bytes(manifest);
    part.names_apart = names_apart(manifest);
    auto full_header = header;
    full_header.stream = part.stream;
    full_header.apart_bytes = part.apart_bytes;
    const auto header_bytes = encode(full_header);
    if (!part.mapping.empty()) {
        std::memcpy(part.mapping.data() + part_header_bytes, manifest_bytes.data(), manifest_bytes.size());
        std::memcpy(part.mapping.data(), header_bytes.data(), header_bytes.size());
    } else {
        const uint64_t file_bytes = part_header_bytes + manifest.stream_bytes;
        TAILRACE_TRY(part.file->write_at(manifest_bytes, part_header_bytes));
        TAILRACE_ASSIGN(const uint64_t written, part.file->size());
        // The file is still shorter if the stream ends with an empty region.
        if (written < file_bytes) TAILRACE_TRY(part.file->truncate(file_bytes));
        if (options_.sync) TAILRACE_TRY(part.file->sync());
        TAILRACE_TRY(part.file->write_at(header_bytes, 0));
    }
    return options_.sync ? part.file->sync() : Status();
}

}  // namespace tailrace::internal
