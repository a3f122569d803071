#include "direct/direct_epoch.h"

#include <fmt/format.h>

#include <algorithm>

#include "array/array_check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "catalog/catalog.h"
#include "shared/epoch_files.h"
#include "shared/left_intact.h"
#include "threads/executor.h"

namespace tailrace::internal {

namespace {

constexpr uint64_t block_bytes = stream_alignment;
constexpr int max_lock_tries = 10;  // at most this many saves may end while this one begins

std::vector<std::byte> padded(std::vector<std::byte> bytes) {
    bytes.resize(align_up(bytes.size(), block_bytes));
    return bytes;
}

}  // namespace

uint32_t first_file_of(uint32_t rank, uint32_t ranks, uint32_t files) {
    return static_cast<uint32_t>(uint64_t{rank} * files / ranks);
}
uint32_t last_file_of(uint32_t rank, uint32_t ranks, uint32_t files) {
    return std::max(first_file_of(rank, ranks, files) + 1, first_file_of(rank + 1, ranks, files));
}

Result<uint64_t> head_bytes(const std::vector<RegionShape>& regions, const std::vector<RegionShape>& tail) {
    PartManifest manifest;
    add_regions(manifest, regions);
    add_regions(manifest, tail);
    TAILRACE_TRY(lay_out(manifest));
    const uint64_t end = regions.empty() ? manifest.manifest_bytes
                                         : manifest.regions[regions.size() - 1].stream_offset +
                                               manifest.regions[regions.size() - 1].bytes;
    return manifest.manifest_bytes + align_up(manifest.stream_bytes - end, block_bytes);
}

DirectEpoch::DirectEpoch(Storage& storage, DirectEpochSettings settings)
    : storage_(storage), settings_(std::move(settings)) {}

Result<std::unique_ptr<DirectEpoch>> DirectEpoch::begin(Storage& storage,
                                                        const DirectEpochSettings& settings) {
    TAILRACE_TRY(check_job_name(settings.job));
    if (settings.ranks == 0 || settings.ranks > max_ranks || settings.files == 0 ||
        settings.files > uint64_t{64} * settings.ranks || settings.files > max_files)
        return Status(
            Code::invalid_argument,
            fmt::format("{} files for {} ranks: there must be at least one file, and at most 64 per rank; "
                        "nothing was written",
                        settings.files, settings.ranks));
    std::unique_ptr<DirectEpoch> epoch(new DirectEpoch(storage, settings));
    Result<std::unique_ptr<DirectoryLock>> lock = Status(Code::not_found, "");
    // Another save that ends may remove the directory in between, as those of tailrace.torch.save
    // do.
    for (int tries = 0; tries < max_lock_tries && lock.status().code() == Code::not_found; ++tries) {
        TAILRACE_TRY(storage.make_directories(settings.directory));
        lock = storage.lock_directory(settings.directory);
    }
    if (lock.ok())
        epoch->lock_ = std::move(lock).value();
    else if (lock.status().code() != Code::unsupported)
        return lock.status().with_context(fmt::format("writing epoch {}", settings.epoch));

    SharedHeader header;
    header.job = settings.job;
    header.key.epoch = settings.epoch;
    header.key.run = 1;
    TAILRACE_ASSIGN(const auto listed, list_shared(storage, settings.directory, ""));
    for (const auto& files : listed) header.key.run = std::max(header.key.run, files.key.run + 1);
    header.run_uid = random_number();
    header.file_count = settings.files;
    header.rank_count = settings.ranks;
    header.block_bytes = block_bytes;
    // In each file a rank has at most a manifest, a run and a tail.
    const uint64_t streams = settings.files < settings.ranks ? settings.ranks / settings.files + 1 : 1;
    header.index_area_bytes = align_up(index_bytes_bound(streams, 3 * streams), block_bytes);
    const Status created = epoch->create(std::move(header));
    if (!created.ok()) return created;
    return epoch;
}

Status DirectEpoch::create(SharedHeader header) {
    header_ = std::move(header);
    for (uint32_t k = 0; k < header_.file_count; ++k) {
        SharedHeader own = header_;
        own.file_index = k;
        paths_.push_back(join_path(settings_.directory,
                                   to_string(SharedFileName{own.job, own.key, k, own.file_count, true})));
        TAILRACE_ASSIGN(auto segment, Segment::begin(storage_, settings_.directory, paths_.back(), own, 0,
                                                     {Access::create_new, DirectIo::off}));
        segments_.push_back(std::move(segment));
    }
    return {};
}

DirectEpoch::~DirectEpoch() {
    if (ended_) return;
    segments_.clear();
    for (const auto& path : paths_) {
        const Status removed = remove_if_there(storage_, path);
        if (!removed.ok())
            log(LogLevel::warning, "{} was given up, and a file of it could not be removed: {}",
                to_string(header_.key), removed.message());
    }
}

Status DirectEpoch::commit(const std::vector<DirectRank>& ranks) {
    if (ended_ || ranks.size() != header_.rank_count)
        return Status(Code::invalid_argument,
                      fmt::format("{} has {} ranks, but {} were given; nothing was committed",
                                  to_string(header_.key), header_.rank_count, ended_ ? 0 : ranks.size()));
    Status written = write_and_seal(ranks);
    for (size_t k = 0; written.ok() && k < segments_.size(); ++k) written = segments_[k]->commit();
    if (!written.ok())
        return written.with_context(
            fmt::format("{} was not committed; {}", to_string(header_.key), left_intact(written)));
    ended_ = true;
    segments_.clear();
    // The epoch exists by now, so a name that cannot be given is not a failure.
    const Status named =
        name_shared_epoch(storage_, settings_.directory, settings_.job, header_.key, header_.file_count);
    if (!named.ok())
        log(LogLevel::warning, "{} is committed, but its files keep their unfinished names: {}",
            to_string(header_.key), named.message());
    remove_replaced();
    return {};
}

Result<DirectEpoch::Stream> DirectEpoch::make_stream(const DirectRank& from, uint32_t rank, uint32_t ranks,
                                                     uint64_t run_bytes) {
    Stream stream;
    PartManifest& manifest = stream.manifest;
    manifest.rank = rank;
    manifest.rank_count = ranks;
    add_regions(manifest, from.regions);
    for (const auto& tail : from.tail) {
        if (tail.shape.bytes != tail.content.size())
            return Status(Code::invalid_argument,
                          fmt::format("region '{}' of rank {} has {} bytes, but {} were given",
                                      tail.shape.name, rank, tail.shape.bytes, tail.content.size()));
        add_regions(manifest, {tail.shape});
    }
    TAILRACE_TRY(lay_out(manifest));
    stream.tail_start = manifest.manifest_bytes + run_bytes;
    for (size_t i = 0; i < manifest.regions.size(); ++i) {
        std::vector<uint32_t>& crcs = manifest.regions[i].block_crcs;
        if (i < from.regions.size()) {
            if (i >= from.crcs.size() || from.crcs[i].size() != crcs.size())
                return Status(Code::invalid_argument,
                              fmt::format("region '{}' of rank {} came without its checksums",
                                          manifest.regions[i].name, rank));
            crcs = from.crcs[i];
            continue;
        }
        const std::span<const std::byte> content(from.tail[i - from.regions.size()].content);
        for (size_t block = 0; block < crcs.size(); ++block) {
            const size_t start = block * check_block_bytes;
            crcs[block] =
                crc32c(content.subspan(start, std::min<size_t>(check_block_bytes, content.size() - start)));
        }
    }
    stream.encoded = encode(manifest);
    stream.info = {rank, manifest.stream_bytes, manifest.manifest_bytes, crc32c(stream.encoded)};
    return stream;
}

// The bytes of the regions that came with their content.
std::vector<std::byte> DirectEpoch::tail_of(const DirectRank& from, const Stream& stream) {
    std::vector<std::byte> tail(stream.manifest.stream_bytes - stream.tail_start);
    for (size_t i = 0; i < from.tail.size(); ++i) {
        const auto& content = from.tail[i].content;
        const Region& region = stream.manifest.regions[from.regions.size() + i];
        std::copy(content.begin(), content.end(),
                  tail.begin() + static_cast<std::ptrdiff_t>(region.stream_offset - stream.tail_start));
    }
    return tail;
}

Status DirectEpoch::write_and_seal(const std::vector<DirectRank>& ranks) {
    std::vector<FileContent> files(header_.file_count);
    for (auto& file : files) file.end = file.front = data_start();
    TAILRACE_ASSIGN(const auto streams, locate_data(ranks, files));
    std::vector<const PartManifest*> manifests;
    for (const Stream& stream : streams) manifests.push_back(&stream.manifest);
    if (const auto fault = check_arrays(manifests)) return fault->refusal();
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
        const uint32_t file = first_file_of(rank, header_.rank_count, header_.file_count);
        TAILRACE_TRY(put(rank, 0, streams[rank].encoded, *segments_[file], files[file]));
        TAILRACE_TRY(put(rank, streams[rank].tail_start, tail_of(ranks[rank], streams[rank]),
                         *segments_[file], files[file]));
    }
    // Everything but the slots, also the names, is durable before the first slot is written.
    for (uint32_t k = 0; k < header_.file_count; ++k)
        TAILRACE_TRY(segments_[k]->seal(std::move(files[k].index), files[k].end));
    return {};
}

// Makes the streams of all ranks, and notes where the data that ranks have written lies in the
// files.
Result<std::vector<DirectEpoch::Stream>> DirectEpoch::locate_data(const std::vector<DirectRank>& ranks,
                                                                  std::vector<FileContent>& files) const {
    std::vector<Stream> streams;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
        const DirectRank& from = ranks[rank];
        const uint32_t first_file = first_file_of(rank, header_.rank_count, header_.file_count);
        const uint32_t last_file = last_file_of(rank, header_.rank_count, header_.file_count);
        TAILRACE_ASSIGN(const auto layout, lay_out_regions(from.regions, last_file - first_file));
        TAILRACE_ASSIGN(auto stream, make_stream(from, rank, header_.rank_count, layout.bytes));
        if (from.file_offsets.size() != layout.runs.size())
            return Status(Code::invalid_argument, fmt::format("rank {} wrote {} runs instead of {}", rank,
                                                              from.file_offsets.size(), layout.runs.size()));
        for (uint32_t run = 0; run < layout.runs.size(); ++run) {
            const RegionRun& cut = layout.runs[run];
            FileContent& file = files[first_file + run];
            file.index.streams.push_back(stream.info);
            if (cut.first == cut.last) continue;
            const uint64_t start = stream.manifest.manifest_bytes + cut.start;
            const uint64_t end = cut.last < from.regions.size()
                                     ? stream.manifest.manifest_bytes + layout.offsets[cut.last]
                                     : stream.tail_start;
            if (end > start) file.index.extents.push_back({rank, start, end - start, from.file_offsets[run]});
            file.end = std::max(file.end, from.file_offsets[run] + cut.bytes);
            file.data_start = std::min(file.data_start, from.file_offsets[run]);
        }
        streams.push_back(std::move(stream));
    }
    return streams;
}

// Writes bytes in front of the file's data where they fit, otherwise behind it.
Status DirectEpoch::put(uint32_t rank, uint64_t stream_offset, std::vector<std::byte> bytes, Segment& segment,
                        FileContent& file) {
    if (bytes.empty()) return {};
    const uint64_t size = bytes.size();
    const auto whole = padded(std::move(bytes));
    // In a file without data, the room in front has no end.
    const bool fits = file.data_start >= file.front && whole.size() <= file.data_start - file.front;
    uint64_t& next = fits ? file.front : file.end;
    const uint64_t offset = next;
    next += whole.size();
    file.end = std::max(file.end, next);
    file.index.extents.push_back({rank, stream_offset, size, offset});
    return segment.file().write_at(whole, offset);
}

void DirectEpoch::remove_replaced() {
    const auto listed = list_shared(storage_, settings_.directory, settings_.job);
    if (!listed.ok()) return;
    for (const auto& files : *listed) {
        if (files.key == header_.key) continue;
        const bool complete = load_shared_epoch(storage_, files).ok();
        if (complete ? files.key.epoch != header_.key.epoch : !has_unfinished(files)) continue;
        const Status removed = remove_shared_epoch(storage_, settings_.directory, settings_.job, files.key);
        if (!removed.ok())
            log(LogLevel::warning, "{} in {} has been replaced, but could not be removed: {}",
                to_string(files.key), settings_.directory, removed.message());
    }
}

}  // namespace tailrace::internal
