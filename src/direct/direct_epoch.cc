#include "direct/direct_epoch.h"

#include <fmt/format.h>

#include <algorithm>

#include "array/array_check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "catalog/catalog.h"
#include "catalog/stream_cover.h"
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

// The index as a reader will get it, by the reader's own rules.
Result<SegmentIndex> as_read(SegmentIndex index, const SharedHeader& header, uint64_t end) {
    normalize(index.extents);
    const auto encoded = encode(index);
    LeaderSlot slot;
    slot.index_bytes = encoded.size();
    slot.index_crc = crc32c(encoded);
    for (const Extent& extent : index.extents) slot.data_bytes += extent.bytes;
    return decode_segment_index(encoded, header, slot, end);
}

}  // namespace

uint32_t first_file_of(uint32_t rank, uint32_t ranks, uint32_t files) {
    return static_cast<uint32_t>(uint64_t{rank} * files / ranks);
}
uint32_t last_file_of(uint32_t rank, uint32_t ranks, uint32_t files) {
    return std::max(first_file_of(rank, ranks, files) + 1, first_file_of(rank + 1, ranks, files));
}

Result<CheckedArrays> CheckedArrays::check(const std::vector<std::vector<RegionShape>>& ranks) {
    CheckedArrays checked;
    std::vector<PartManifest> manifests;
    for (const auto& regions : ranks) {
        PartManifest& manifest = manifests.emplace_back();
        manifest.has_checksums = false;
        manifest.rank = static_cast<uint32_t>(manifests.size() - 1);
        manifest.rank_count = static_cast<uint32_t>(ranks.size());
        add_regions(manifest, regions);
        TAILRACE_TRY(lay_out(manifest));
        checked.digests_.push_back(shapes_digest(regions));
    }
    std::vector<const PartManifest*> all;
    for (const PartManifest& manifest : manifests) all.push_back(&manifest);
    if (const auto fault = check_arrays(all)) return fault->refusal();
    return checked;
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
            fmt::format("{} for {}: there must be at least one file, and at most 64 per rank; nothing was "
                        "written",
                        counted(settings.files, "file"), counted(settings.ranks, "rank")));
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
    if (is_committed_) return;
    segments_.clear();
    for (const auto& path : paths_) {
        const Status removed = remove_if_there(storage_, path);
        if (!removed.ok())
            log(LogLevel::warning, "{} was given up, and a file of it could not be removed: {}",
                to_string(header_.key), removed.message());
    }
}

Status DirectEpoch::commit(const std::vector<DirectEntry>& ranks, const CheckedArrays& checked) {
    const auto refused = [&](const std::string& why) {
        return Status(Code::invalid_argument,
                      fmt::format("{} {}; nothing was committed", to_string(header_.key), why));
    };
    if (has_begun_to_commit_)
        return Status(Code::failed_state,
                      fmt::format("{} was committed, or could not be committed, by an earlier "
                                  "call; nothing was changed",
                                  to_string(header_.key)));
    if (ranks.size() != header_.rank_count)
        return refused(fmt::format("has {} ranks, but {} were given", header_.rank_count, ranks.size()));
    std::vector<WrittenRank> all;
    std::vector<RankStream> left;  // whose heads are to be written
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
        if (const auto* from = std::get_if<DirectRank>(&ranks[rank])) {
            auto stream = RankStream::make(*from, rank, header_.rank_count);
            if (!stream.ok()) return refused("cannot be written: " + stream.status().message());
            all.push_back({stream->info(), shapes_digest(from->regions), stream->data()});
            left.push_back(std::move(*stream));
        } else {
            all.push_back(std::get<WrittenRank>(ranks[rank]));
        }
        const uint32_t files = last_file_of(rank, header_.rank_count, header_.file_count) -
                               first_file_of(rank, header_.rank_count, header_.file_count);
        if (all.back().info.rank != rank || all.back().files.size() != files)
            return refused(fmt::format("has {} files for rank {}, but {} of rank {} were given", files, rank,
                                       all.back().files.size(), all.back().info.rank));
        if (checked.digests().size() != ranks.size() || checked.digests()[rank] != all.back().shapes_digest)
            return refused(fmt::format("was checked with other regions of rank {}", rank));
    }
    has_begun_to_commit_ = true;
    Status written = write_and_seal(all, left);
    for (size_t k = 0; written.ok() && k < segments_.size(); ++k) written = segments_[k]->commit();
    if (!written.ok())
        return written.with_context(
            fmt::format("{} was not committed; {}", to_string(header_.key), left_intact(written)));
    is_committed_ = true;
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

Status DirectEpoch::write_and_seal(const std::vector<WrittenRank>& ranks,
                                   const std::vector<RankStream>& left) {
    std::vector<FileContent> files(header_.file_count);
    for (auto& file : files) file.end = file.front = data_start();
    for (const WrittenRank& rank : ranks) locate(rank, files);
    for (const RankStream& stream : left) {
        const uint32_t rank = stream.info().rank;
        const uint32_t file = first_file_of(rank, header_.rank_count, header_.file_count);
        TAILRACE_TRY(put(rank, 0, stream.manifest(), *segments_[file], files[file]));
        TAILRACE_TRY(put(rank, stream.tail_start(), stream.tail(), *segments_[file], files[file]));
    }
    const Status readable = check_readable(ranks, files);
    if (!readable.ok())
        return Status(Code::invalid_argument, "ranks have written to wrong places: " + readable.message());
    // Everything but the slots, also the names, is durable before the first slot is written.
    for (uint32_t k = 0; k < header_.file_count; ++k)
        TAILRACE_TRY(segments_[k]->seal(std::move(files[k].index), files[k].end));
    return {};
}

// Ranks say where they have written. What a reader would refuse is refused before the commit.
Status DirectEpoch::check_readable(const std::vector<WrittenRank>& ranks,
                                   const std::vector<FileContent>& files) const {
    std::vector<StreamMap> streams;
    for (const WrittenRank& rank : ranks) streams.push_back({rank.info, {}});
    for (uint32_t k = 0; k < header_.file_count; ++k) {
        TAILRACE_ASSIGN(const auto index, as_read(files[k].index, segments_[k]->header(), files[k].end));
        for (const Extent& extent : index.extents)
            streams[extent.rank].extents.push_back(
                {k, extent.file_offset, extent.stream_offset, extent.bytes});
    }
    for (StreamMap& stream : streams) {
        std::ranges::sort(stream.extents, {}, &StreamExtent::stream_offset);
        TAILRACE_TRY(check_cover(stream, paths_,
                                 first_file_of(stream.info.rank, header_.rank_count, header_.file_count)));
    }
    return {};
}

// Notes what a rank has written, and where.
void DirectEpoch::locate(const WrittenRank& rank, std::vector<FileContent>& files) const {
    const uint32_t first = first_file_of(rank.info.rank, header_.rank_count, header_.file_count);
    for (size_t i = 0; i < rank.files.size(); ++i) {
        FileContent& file = files[first + i];
        file.index.streams.push_back(rank.info);
        file.end = std::max(file.end, rank.files[i].end);
        for (const Extent& extent : rank.files[i].extents) {
            file.index.extents.push_back(extent);
            file.data_start = std::min(file.data_start, extent.file_offset);
        }
    }
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
