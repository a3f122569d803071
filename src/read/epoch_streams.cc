#include "read/epoch_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <tuple>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "format/table.h"
#include "storage/system_path.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

constexpr size_t max_open_files = 64;
constexpr uint32_t manifest_region = 0xffffffffu;  // StreamBlock::region of the manifest itself

}  // namespace

Result<Memory> allocate(uint64_t bytes, std::string_view what) {
    Memory memory(new (std::nothrow) std::byte[bytes]);
    if (memory == nullptr)
        return Status(Code::out_of_memory,
                      fmt::format("no memory for {} ({}); nothing was read", what, format_bytes(bytes)));
    return memory;
}

// ---- sources ------------------------------------------------------------------------------------

EpochStreams::EpochStreams(Storage& local, Storage& shared, EpochSources sources, DirectIo direct)
    : key_(sources.key),
      rank_count_(sources.rank_count),
      files_(max_open_files),
      streams_(sources.rank_count),
      infos_(sources.rank_count),
      shared_(shared),
      direct_(direct),
      run_uid_(sources.local_parts.empty() ? 0 : sources.local_parts.front().header.run_uid),
      find_shared_(sources.shared ? nullptr : std::move(sources.find_shared)) {
    for (const CapturedPart& part : sources.local_parts) add_part(local, part, sources.shared);
    if (sources.shared) add_shared(*sources.shared);
}

void EpochStreams::add_part(Storage& local, const CapturedPart& part,
                            const std::optional<SharedEpoch>& shared) {
    const StreamInfo info = shared_stream(part.header);
    // All sources of a rank hold one stream with one manifest. A part that says otherwise is of
    // another run.
    const StreamInfo* other = nullptr;
    if (shared)
        other = &shared->streams[info.rank].info;
    else if (!streams_[info.rank].empty())
        other = &infos_[info.rank];
    if ((other != nullptr && !(*other == info)) || (shared && shared->run_uid != part.header.run_uid)) {
        log(LogLevel::warning, "captured part '{}' is not what was committed as {}, and is passed over",
            part.path, name());
        return;
    }
    infos_[info.rank] = info;
    streams_[info.rank].push_back(
        {"the captured part",
         {StreamExtent{files_.add({&local, part.path, DirectIo::off, {}}), part.offset + part_header_bytes, 0,
                       part.header.stream.stream_bytes}}});
}

void EpochStreams::add_shared(const SharedEpoch& shared) {
    shared_dir_ = parent_of(shared.paths.front());
    job_ = shared.job;
    std::vector<uint32_t> numbers;
    for (const std::string& path : shared.paths) numbers.push_back(files_.add({&shared_, path, direct_, {}}));
    for (const StreamMap& stream : shared.streams) {
        StreamSource source{"the shared files", stream.extents};
        for (StreamExtent& extent : source.extents) extent.file = numbers[extent.file];
        infos_[stream.info.rank] = stream.info;
        streams_[stream.info.rank].push_back(std::move(source));
    }
}

std::string EpochStreams::name_of(uint32_t rank) const {
    return fmt::format("rank {} of {}", rank, name());
}

Status EpochStreams::check(uint32_t rank) const {
    if (rank >= rank_count_)
        return Status(Code::not_found,
                      fmt::format("there is no {}: it was saved by {} ranks", name_of(rank), rank_count_));
    if (streams_[rank].empty())
        return Status(Code::not_found,
                      fmt::format("nothing of {} is in a tier that can be read from here", name_of(rank)));
    return Status();
}

Result<std::vector<uint32_t>> EpochStreams::ranks_in_file_order() const {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
        TAILRACE_TRY(check(rank));
        ranks.push_back(rank);
    }
    const auto place = [&](uint32_t rank) {  // an index may name a stream without bytes
        const auto& extents = streams_[rank].front().extents;
        return extents.empty() ? std::pair(0u, uint64_t{0})
                               : std::pair(extents[0].file, extents[0].file_offset);
    };
    std::sort(ranks.begin(), ranks.end(), [&](uint32_t a, uint32_t b) { return place(a) < place(b); });
    return ranks;
}

// ---- manifests ----------------------------------------------------------------------------------

Result<const SavedRank*> EpochStreams::saved(uint32_t rank) {
    {
        MutexLock lock(mutex_);
        auto found = saved_.find(rank);
        if (found != saved_.end()) return found->second.get();
    }
    TAILRACE_ASSIGN(auto made, read_saved(rank));
    MutexLock lock(mutex_);
    // Another thread's may have come first.
    return saved_.try_emplace(rank, std::move(made)).first->second.get();
}

Result<std::unique_ptr<SavedRank>> EpochStreams::read_saved(uint32_t rank) {
    TAILRACE_ASSIGN(const auto bytes, read_manifest(rank));
    return decode_saved(rank, bytes);
}

Status EpochStreams::keep_manifest(uint32_t rank, std::span<const std::byte> bytes) {
    TAILRACE_TRY(check(rank));
    if (bytes.size() != infos_[rank].manifest_bytes || crc32c(bytes) != infos_[rank].manifest_crc)
        return Status(Code::corrupt,
                      fmt::format("{} bytes given as the table of regions of {} are not that table",
                                  bytes.size(), name_of(rank)));
    TAILRACE_ASSIGN(auto made, decode_saved(rank, bytes));
    MutexLock lock(mutex_);
    saved_.try_emplace(rank, std::move(made));
    return Status();
}

Result<std::vector<std::byte>> EpochStreams::read_manifest(uint32_t rank) {
    auto bytes = read_own_manifest(rank);
    if (bytes.ok()) return bytes;
    EpochStreams* spare = spare_for(rank);
    return spare != nullptr ? spare->read_manifest(rank) : bytes;
}

Result<std::vector<std::byte>> EpochStreams::read_own_manifest(uint32_t rank) {
    TAILRACE_TRY(check(rank));
    const StreamInfo& info = infos_[rank];
    if (info.manifest_bytes == 0 || info.manifest_bytes > info.stream_bytes)
        return Status(Code::corrupt,
                      fmt::format("the table of regions of {} cannot have {} bytes in a stream of {}",
                                  name_of(rank), info.manifest_bytes, info.stream_bytes));
    TAILRACE_ASSIGN(const auto sources, sources_of_manifest(rank));
    std::vector<std::byte> bytes;
    try {
        bytes.resize(info.manifest_bytes);
    } catch (const std::bad_alloc&) {
        return Status(Code::out_of_memory, fmt::format("no memory for the table of regions of {} ({})",
                                                       name_of(rank), format_bytes(info.manifest_bytes)));
    }
    TAILRACE_TRY(read_blocks(files_, sources, {StreamBlock{0, bytes, info.manifest_crc, manifest_region}},
                             [&](const StreamBlock& block) { return describe(rank, nullptr, block); }));
    return bytes;
}

Result<std::span<const StreamSource>> EpochStreams::sources_of_manifest(uint32_t rank) {
    const std::span<const StreamSource> sources = streams_[rank];
    const StreamInfo& info = infos_[rank];
    const std::string what = fmt::format("table of regions of {}", name_of(rank));
    std::string reasons;
    for (size_t s = 0; s < sources.size(); ++s) {
        const auto only = sources.subspan(s, 1);
        const Status confirmed =
            confirm_table(TableKind::manifest, info.manifest_bytes, info.manifest_crc, what,
                          [&](std::span<std::byte> piece, uint64_t offset) -> Result<size_t> {
                              TAILRACE_TRY(read_blocks(
                                  files_, only, {StreamBlock{offset, piece, std::nullopt, manifest_region}},
                                  [&](const StreamBlock& block) { return describe(rank, nullptr, block); }));
                              return piece.size();
                          });
        if (confirmed.ok()) return sources.subspan(s);
        log(LogLevel::warning, "{}: {}", only.front().tier, confirmed.message());
        reasons +=
            fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", only.front().tier, confirmed.message());
    }
    return Status(Code::corrupt, reasons);
}

Result<std::unique_ptr<SavedRank>> EpochStreams::decode_saved(uint32_t rank,
                                                              std::span<const std::byte> bytes) const {
    const StreamInfo& info = infos_[rank];
    auto decoded = decode_manifest(bytes);
    if (!decoded.ok())
        return decoded.status().with_context(fmt::format("the table of regions of {}", name_of(rank)));
    auto saved = std::make_unique<SavedRank>();
    saved->manifest = std::move(*decoded);
    const PartManifest& manifest = saved->manifest;
    if (manifest.rank != rank || manifest.rank_count != rank_count_ ||
        manifest.stream_bytes - apart_bytes(manifest) != info.stream_bytes ||
        manifest.manifest_bytes != info.manifest_bytes)
        return Status(
            Code::corrupt,
            fmt::format("the table of regions of {} is that of rank {} of {}, {} bytes, not of {} "
                        "ranks, {} bytes",
                        name_of(rank), manifest.rank, manifest.rank_count,
                        manifest.stream_bytes - apart_bytes(manifest), rank_count_, info.stream_bytes));
    saved->region_by_name.reserve(manifest.regions.size());
    for (uint32_t r = 0; r < manifest.regions.size(); ++r)
        saved->region_by_name.emplace(manifest.regions[r].name, r);
    return saved;
}

// ---- files that lie apart -----------------------------------------------------------------------

std::vector<StreamExtent> EpochStreams::extents_apart(const PartManifest& manifest) {
    if (!apart_) apart_ = place_of_originals(shared_, shared_dir_, job_, key_);
    std::vector<StreamExtent> extents;
    for (size_t r = first_region_apart(manifest); r < manifest.regions.size(); ++r) {
        const Region& region = manifest.regions[r];
        if (region.bytes == 0) continue;
        const std::string name(*file_of_region(region));
        const uint32_t file =
            files_.add({&shared_, join_path(apart_->directory, name), direct_,
                        apart_->otherwise.empty() ? std::string() : join_path(apart_->otherwise, name)});
        extents.push_back({file, 0, region.stream_offset, region.bytes});
    }
    return extents;
}

std::span<const StreamSource> EpochStreams::sources_of(const SavedRank& saved) {
    const PartManifest& manifest = saved.manifest;
    const std::vector<StreamSource>& known = streams_[manifest.rank];
    const auto end_of = [](const StreamSource& source) {
        const auto& extents = source.extents;
        return extents.empty() ? 0 : extents.back().stream_offset + extents.back().bytes;
    };
    const auto is_whole = [&](const StreamSource& source) { return end_of(source) == manifest.stream_bytes; };
    if (std::all_of(known.begin(), known.end(), is_whole)) return known;
    MutexLock lock(apart_mutex_);
    const auto [place, fresh] = with_apart_.try_emplace(manifest.rank);
    if (!fresh) return place->second;
    for (StreamSource source : known) {
        if (!is_whole(source)) {
            // Otherwise it is a part whose header does not fit its table.
            const bool is_shared =
                end_of(source) == infos_[manifest.rank].stream_bytes && !shared_dir_.empty();
            if (!is_shared) continue;
            const auto apart = extents_apart(manifest);
            source.extents.insert(source.extents.end(), apart.begin(), apart.end());
        }
        place->second.push_back(std::move(source));
    }
    return place->second;
}

// ---- blocks -------------------------------------------------------------------------------------

StreamBlock block_of(const PartManifest& manifest, uint32_t region, uint64_t block, std::byte* memory) {
    const Region& of = manifest.regions[region];
    const uint64_t from = block * check_block_bytes;
    const uint64_t bytes = std::min<uint64_t>(check_block_bytes, of.bytes - from);
    std::optional<uint32_t> crc;
    if (manifest.has_checksums) crc = of.block_crcs[block];
    return StreamBlock{of.stream_offset + from, std::span(memory, bytes), crc, region};
}

uint64_t block_count(const Region& region) {
    return region.bytes / check_block_bytes + (region.bytes % check_block_bytes != 0 ? 1 : 0);
}

Status EpochStreams::read(const SavedRank& saved, std::vector<StreamBlock> blocks) {
    const uint32_t rank = saved.manifest.rank;
    const auto named = [&](const StreamBlock& block) { return describe(rank, &saved.manifest, block); };
    const auto sources = sources_of(saved);
    if (!find_shared_) return read_blocks(files_, sources, std::move(blocks), named);
    Status status = read_blocks(files_, sources, blocks, named);
    if (status.ok()) return status;
    EpochStreams* spare = spare_for(rank);
    return spare != nullptr ? spare->read(saved, std::move(blocks)) : status;
}

std::optional<RegionPlace> EpochStreams::place_of(const SavedRank& saved, const Region& region) {
    const auto sources = sources_of(saved);
    if (sources.empty() || region.bytes == 0) return std::nullopt;
    const StreamExtent* extent = &extent_at(sources.front().extents, region.stream_offset);
    const uint64_t end = region.stream_offset + region.bytes;
    const RegionPlace place{files_.path(extent->file),
                            extent->file_offset + (region.stream_offset - extent->stream_offset)};
    for (; extent->stream_offset + extent->bytes < end; ++extent) {  // the extents cover the stream
        const StreamExtent& next = extent[1];
        if (next.file != extent->file || next.file_offset != extent->file_offset + extent->bytes)
            return std::nullopt;
    }
    return place;
}

EpochStreams* EpochStreams::spare_for(uint32_t rank) {
    if (!find_shared_ || rank >= rank_count_) return nullptr;
    MutexLock lock(spare_mutex_);
    if (spare_ == nullptr) {
        auto found = find_shared_();
        if (found.ok() && (found->run_uid != run_uid_ || found->streams.size() != rank_count_))
            found = Status(Code::corrupt, fmt::format("the shared files of {} are of another run", name()));
        if (!found.ok()) {
            log(LogLevel::info, "the shared files do not serve {} either: {}", name_of(rank),
                found.status().message());
            return nullptr;
        }
        EpochSources sources{key_, rank_count_, {}, std::move(*found)};
        spare_ = std::make_unique<EpochStreams>(shared_, shared_, std::move(sources), direct_);
    }
    if (!(spare_->infos_[rank] == infos_[rank])) return nullptr;
    log(LogLevel::warning, "{} is read from the shared files in place of its captured part", name_of(rank));
    return spare_.get();
}

// How messages name the block.
std::string EpochStreams::describe(uint32_t rank, const PartManifest* manifest,
                                   const StreamBlock& block) const {
    if (block.region == manifest_region || manifest == nullptr)
        return fmt::format("the table of regions of {}", name_of(rank));
    const Region& region = manifest->regions[block.region];
    const uint64_t from = block.stream_offset - region.stream_offset;
    return fmt::format("bytes {} to {} of region '{}' of {}", from, from + block.memory.size(), region.name,
                       name_of(rank));
}

}  // namespace tailrace::internal
