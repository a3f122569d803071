// How an epoch is read (the reading of single blocks is in epoch_reader_stream):
//
//   manifest(rank)   the head of the rank's stream, checked and kept
//   read_regions     the regions' check blocks, straight into the targets
//   read_box         which rank's piece serves which part of the box (assign_parts), then part by part: long
//                    rows straight into the box, short rows through a bounded scratch buffer
//   verify           the whole stream in batches through one bounded buffer
#include "checkpoint/epoch_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/epoch_reader_files.h"
#include "checkpoint/epoch_reader_stream.h"
#include "checkpoint/hyperslab.h"
#include "config/nearest.h"

namespace tailrace {

namespace {

constexpr size_t most_open_files = 64;
constexpr uint64_t scratch_bytes = 32 << 20;       // what read_box and verify() hold at most
constexpr uint64_t verify_call_bytes = 8 << 20;    // small, so that checking overlaps reading in a batch
constexpr uint64_t long_row_bytes = 1 << 20;       // rows from here on are read straight into a box
constexpr uint32_t manifest_region = 0xffffffffu;  // StreamBlock::region of the manifest itself

using Memory = std::unique_ptr<std::byte[]>;

// Sizes come from files: asking for too much is a failure, not an exception. Not zeroed.
Result<Memory> allocate(uint64_t bytes, std::string_view what) {
    Memory memory(new (std::nothrow) std::byte[bytes]);
    if (memory == nullptr)
        return Status(Code::out_of_memory,
                      fmt::format("no memory for {} ({}); nothing was read", what, format_bytes(bytes)));
    return memory;
}

struct RankEntry {
    PartManifest manifest;
    std::unordered_map<std::string_view, uint32_t> region_by_name;
};

struct ArrayPieceRef {
    uint32_t rank = 0;
    uint32_t region = 0;
};

struct ArrayEntry {
    GlobalArray array;
    std::vector<ArrayPieceRef> pieces;  // ascending by rank
    std::optional<uint32_t> differing;  // the first rank whose piece has another type or global shape
};

Box box_of(const ArrayPiece& piece) {
    return Box{piece.offset, piece.local_shape};
}

std::string box_text(const Box& box) {
    std::vector<std::string> ranges;
    for (size_t d = 0; d < box.shape.size(); ++d)
        ranges.push_back(fmt::format("{}:{}", box.offset[d], box.offset[d] + box.shape[d]));
    return fmt::format("[{}]", fmt::join(ranges, ", "));
}

// What one rank's piece gives to a box.
struct BoxPart {
    ArrayPieceRef from;
    Box part;
};

class Reader final : public EpochReader {
  public:
    Reader(Storage& local, Storage& shared, EpochSources sources, DirectIo direct)
        : sources_(std::move(sources)), files_(most_open_files) {
        add_sources(local, shared, direct);
    }

    EpochKey key() const override { return sources_.key; }
    uint32_t rank_count() const override { return sources_.rank_count; }

    Result<const PartManifest*> manifest(uint32_t rank) override;
    Result<uint64_t> region_bytes(uint32_t rank, std::string_view name) override;
    Status read_regions(uint32_t rank, std::span<const RegionTarget> targets) override;
    Result<std::vector<GlobalArray>> arrays() override;
    Status read_box(std::string_view name, std::span<const uint64_t> offset, std::span<const uint64_t> shape,
                    std::span<std::byte> memory) override;
    Status verify(uint32_t rank, const std::function<void(uint64_t)>& progress) override;

  private:
    using ArrayTable = std::vector<ArrayEntry>;

    void add_sources(Storage& local, Storage& shared, DirectIo direct);
    Result<const std::vector<StreamSource>*> sources_of(uint32_t rank) const;
    std::string describe(uint32_t rank, const PartManifest* manifest, const StreamBlock& block) const;
    std::string what(uint32_t rank) const {
        return fmt::format("rank {} of {}", rank, to_string(sources_.key));
    }

    Result<std::unique_ptr<RankEntry>> read_entry(uint32_t rank);
    Result<const RankEntry*> entry(uint32_t rank);
    Result<uint32_t> region_number(const RankEntry& entry, std::string_view name) const;
    Result<const ArrayTable*> array_table();
    Status read_rank_blocks(const RankEntry& entry, std::vector<StreamBlock> blocks,
                            const ReadLimits& limits = {});

    Result<std::vector<BoxPart>> assign_parts(const ArrayEntry& array, const Box& box);
    Status read_part(const BoxPart& part, const Box& box, std::span<std::byte> memory);
    Status read_long_rows(const RankEntry& entry, const Region& region, uint32_t number, const Box& part,
                          const Box& box, std::span<std::byte> memory);
    Status read_short_rows(const RankEntry& entry, const Region& region, uint32_t number, const Box& part,
                           const Box& box, std::span<std::byte> memory);

    const EpochSources sources_;
    ReadableFiles files_;
    std::vector<std::vector<StreamSource>> streams_;  // by rank, nearest first
    std::vector<StreamInfo> infos_;                   // by rank; valid where streams_ has a source

    std::mutex mutex_;  // guards what follows; entries and the table stay where they are once made
    std::unordered_map<uint32_t, std::unique_ptr<RankEntry>> entries_;
    std::unique_ptr<ArrayTable> arrays_;
};

// ---- sources and manifests ---------------------------------------------------------------------------

void Reader::add_sources(Storage& local, Storage& shared, DirectIo direct) {
    streams_.resize(sources_.rank_count);
    infos_.resize(sources_.rank_count);
    for (const LocalPart& part : sources_.local_parts) {
        const StreamInfo& info = part.header.stream;
        // One stream of a rank has one manifest: a part that says otherwise is of another run.
        const StreamInfo* other = nullptr;
        if (sources_.shared)
            other = &sources_.shared->streams[info.rank].info;
        else if (!streams_[info.rank].empty())
            other = &infos_[info.rank];
        if ((other != nullptr && !(*other == info)) ||
            (sources_.shared && sources_.shared->run_uid != part.header.run_uid)) {
            log(LogLevel::warning, "captured part '{}' is not what was committed as {}: passed over",
                part.path, to_string(sources_.key));
            continue;
        }
        infos_[info.rank] = info;
        streams_[info.rank].push_back({"the captured part",
                                       {StreamExtent{files_.add(local, part.path, DirectIo::off),
                                                     part_header_bytes, 0, info.stream_bytes}}});
    }
    if (!sources_.shared) return;
    std::vector<uint32_t> numbers;
    for (const auto& path : sources_.shared->paths) numbers.push_back(files_.add(shared, path, direct));
    for (const StreamMap& stream : sources_.shared->streams) {
        StreamSource source{"the shared files", stream.extents};
        for (StreamExtent& extent : source.extents) extent.file = numbers[extent.file];
        infos_[stream.info.rank] = stream.info;
        streams_[stream.info.rank].push_back(std::move(source));
    }
}

Result<const std::vector<StreamSource>*> Reader::sources_of(uint32_t rank) const {
    if (rank >= sources_.rank_count)
        return Status(Code::not_found, fmt::format("there is no {}: it was saved by {} ranks", what(rank),
                                                   sources_.rank_count));
    if (streams_[rank].empty())
        return Status(Code::not_found,
                      fmt::format("nothing of {} is in a tier that can be read from here", what(rank)));
    return &streams_[rank];
}

std::string Reader::describe(uint32_t rank, const PartManifest* manifest, const StreamBlock& block) const {
    if (block.region == manifest_region || manifest == nullptr)
        return fmt::format("the table of regions of {}", what(rank));
    const Region& region = manifest->regions[block.region];
    const uint64_t from = block.stream_offset - region.stream_offset;
    return fmt::format("bytes {} to {} of region '{}' of {}", from, from + block.memory.size(), region.name,
                       what(rank));
}

Result<std::unique_ptr<RankEntry>> Reader::read_entry(uint32_t rank) {
    TAILRACE_ASSIGN(const auto* sources, sources_of(rank));
    const StreamInfo& info = infos_[rank];
    if (info.manifest_bytes == 0 || info.manifest_bytes > info.stream_bytes)
        return Status(Code::corrupt,
                      fmt::format("the table of regions of {} cannot have {} bytes in a stream of {}",
                                  what(rank), info.manifest_bytes, info.stream_bytes));
    TAILRACE_ASSIGN(auto memory,
                    allocate(info.manifest_bytes, fmt::format("the table of regions of {}", what(rank))));
    const std::span bytes(memory.get(), info.manifest_bytes);
    TAILRACE_TRY(read_blocks(files_, *sources, {StreamBlock{0, bytes, info.manifest_crc, manifest_region}},
                             {}, [&](const StreamBlock& block) { return describe(rank, nullptr, block); }));
    auto decoded = decode_manifest(bytes);
    if (!decoded.ok())
        return decoded.status().with_context(fmt::format("the table of regions of {}", what(rank)));
    auto entry = std::make_unique<RankEntry>();
    entry->manifest = std::move(*decoded);
    const PartManifest& manifest = entry->manifest;
    if (manifest.rank != rank || manifest.rank_count != sources_.rank_count ||
        manifest.stream_bytes != info.stream_bytes || manifest.manifest_bytes != info.manifest_bytes)
        return Status(Code::corrupt,
                      fmt::format("the table of regions of {} is that of rank {} of {}, {} bytes, not of {} "
                                  "ranks, {} bytes",
                                  what(rank), manifest.rank, manifest.rank_count, manifest.stream_bytes,
                                  sources_.rank_count, info.stream_bytes));
    entry->region_by_name.reserve(manifest.regions.size());
    for (uint32_t r = 0; r < manifest.regions.size(); ++r)
        entry->region_by_name.emplace(manifest.regions[r].name, r);
    return entry;
}

Result<const RankEntry*> Reader::entry(uint32_t rank) {
    {
        std::lock_guard lock(mutex_);
        auto found = entries_.find(rank);
        if (found != entries_.end()) return found->second.get();
    }
    TAILRACE_ASSIGN(auto made, read_entry(rank));
    std::lock_guard lock(mutex_);
    return entries_.try_emplace(rank, std::move(made)).first->second.get();  // the first one made counts
}

Result<const PartManifest*> Reader::manifest(uint32_t rank) {
    TAILRACE_ASSIGN(const RankEntry* found, entry(rank));
    return &found->manifest;
}

Result<uint32_t> Reader::region_number(const RankEntry& entry, std::string_view name) const {
    auto found = entry.region_by_name.find(name);
    if (found != entry.region_by_name.end()) return found->second;
    const std::string missing = fmt::format("{} has no region '{}'", what(entry.manifest.rank), name);
    if (entry.manifest.regions.empty()) return Status(Code::not_found, missing + "; it saved none");
    std::vector<std::string_view> names;
    for (const Region& region : entry.manifest.regions) names.push_back(region.name);
    return Status(Code::not_found, fmt::format("{}; the nearest of its {} regions is '{}'", missing,
                                               names.size(), nearest_name(name, names)));
}

Result<uint64_t> Reader::region_bytes(uint32_t rank, std::string_view name) {
    TAILRACE_ASSIGN(const RankEntry* found, entry(rank));
    TAILRACE_ASSIGN(const uint32_t number, region_number(*found, name));
    return found->manifest.regions[number].bytes;
}

// ---- regions -----------------------------------------------------------------------------------------

StreamBlock block_of(const PartManifest& manifest, uint32_t number, uint64_t block, std::byte* memory) {
    const Region& region = manifest.regions[number];
    const uint64_t from = block * check_block_bytes;
    const uint64_t bytes = std::min<uint64_t>(check_block_bytes, region.bytes - from);
    std::optional<uint32_t> crc;
    if (manifest.has_checksums) crc = region.block_crcs[block];
    return StreamBlock{region.stream_offset + from, std::span(memory, bytes), crc, number};
}

uint64_t block_count(const Region& region) {
    return region.bytes / check_block_bytes + (region.bytes % check_block_bytes != 0 ? 1 : 0);
}

Status Reader::read_rank_blocks(const RankEntry& entry, std::vector<StreamBlock> blocks,
                                const ReadLimits& limits) {
    const uint32_t rank = entry.manifest.rank;
    TAILRACE_ASSIGN(const auto* sources, sources_of(rank));
    return read_blocks(files_, *sources, std::move(blocks), limits,
                       [&](const StreamBlock& block) { return describe(rank, &entry.manifest, block); });
}

Status Reader::read_regions(uint32_t rank, std::span<const RegionTarget> targets) {
    TAILRACE_ASSIGN(const RankEntry* found, entry(rank));
    std::vector<StreamBlock> blocks;
    for (const RegionTarget& target : targets) {
        TAILRACE_ASSIGN(const uint32_t number, region_number(*found, target.name));
        const Region& region = found->manifest.regions[number];
        if (region.bytes != target.memory.size())
            return Status(Code::invalid_argument,
                          fmt::format("region '{}' of {} has {} bytes, the memory given for it {}; nothing "
                                      "was read",
                                      region.name, what(rank), region.bytes, target.memory.size()));
        for (uint64_t b = 0; b < block_count(region); ++b)
            blocks.push_back(
                block_of(found->manifest, number, b, target.memory.data() + b * check_block_bytes));
    }
    return read_rank_blocks(*found, std::move(blocks));
}

Status Reader::verify(uint32_t rank, const std::function<void(uint64_t)>& progress) {
    // Not from the cache: the table of regions is part of what is checked.
    TAILRACE_ASSIGN(const auto fresh, read_entry(rank));
    const PartManifest& manifest = fresh->manifest;
    uint64_t reported = 0;
    const auto report_up_to = [&](uint64_t stream_offset) {
        if (progress && stream_offset > reported) progress(stream_offset - reported);
        reported = std::max(reported, stream_offset);
    };
    report_up_to(manifest.manifest_bytes);

    TAILRACE_ASSIGN(auto scratch, allocate(std::min(scratch_bytes, manifest.stream_bytes),
                                           fmt::format("checking {}", what(rank))));
    Status first_failure;
    size_t failed_batches = 0;
    std::vector<StreamBlock> batch;
    uint64_t batch_bytes = 0;
    const auto check_batch = [&] {
        if (batch.empty()) return;
        const uint64_t end = batch.back().stream_offset + batch.back().memory.size();
        const ReadLimits limits{.call_bytes = verify_call_bytes};
        // Goes on after a failure, so that the log names everything that is damaged.
        if (Status status = read_rank_blocks(*fresh, std::move(batch), limits); !status.ok())
            if (failed_batches++ == 0) first_failure = status;
        batch.clear();
        batch_bytes = 0;
        report_up_to(end);
    };
    for (uint32_t number = 0; number < manifest.regions.size(); ++number) {
        for (uint64_t b = 0; b < block_count(manifest.regions[number]); ++b) {
            if (batch_bytes + check_block_bytes > std::min(scratch_bytes, manifest.stream_bytes))
                check_batch();
            batch.push_back(block_of(manifest, number, b, scratch.get() + batch_bytes));
            batch_bytes += batch.back().memory.size();
        }
    }
    check_batch();
    report_up_to(manifest.stream_bytes);
    if (failed_batches > 1)
        return Status(first_failure.code(), fmt::format("{}; {} later stretches are damaged as well",
                                                        first_failure.message(), failed_batches - 1));
    return first_failure;
}

// ---- global arrays -----------------------------------------------------------------------------------

Result<const Reader::ArrayTable*> Reader::array_table() {
    {
        std::lock_guard lock(mutex_);
        if (arrays_ != nullptr) return arrays_.get();
    }
    // In the order in which the manifests lie in the files.
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < sources_.rank_count; ++rank) {
        TAILRACE_TRY(sources_of(rank).status());
        ranks.push_back(rank);
    }
    std::sort(ranks.begin(), ranks.end(), [&](uint32_t a, uint32_t b) {
        const StreamExtent& head_a = streams_[a].front().extents.front();
        const StreamExtent& head_b = streams_[b].front().extents.front();
        return std::tie(head_a.file, head_a.file_offset) < std::tie(head_b.file, head_b.file_offset);
    });
    for (uint32_t rank : ranks) TAILRACE_TRY(entry(rank).status());

    auto table = std::make_unique<ArrayTable>();
    std::unordered_map<std::string_view, size_t> by_name;
    for (uint32_t rank = 0; rank < sources_.rank_count; ++rank) {
        TAILRACE_ASSIGN(const PartManifest* saved, manifest(rank));
        for (uint32_t r = 0; r < saved->regions.size(); ++r) {
            const Region& region = saved->regions[r];
            if (!region.array) continue;
            const ArrayPiece& piece = *region.array;
            auto [found, is_new] = by_name.try_emplace(region.name, table->size());
            if (is_new) table->push_back({{region.name, piece.type, piece.global_shape, false}, {}, {}});
            ArrayEntry& array = (*table)[found->second];
            if (piece.type == array.array.type && piece.global_shape == array.array.shape)
                array.pieces.push_back({rank, r});
            else if (!array.differing)
                array.differing = rank;
        }
    }
    for (ArrayEntry& array : *table) {
        const Box whole{std::vector<uint64_t>(array.array.shape.size(), 0), array.array.shape};
        array.array.complete = !array.differing && assign_parts(array, whole).ok();
    }
    std::lock_guard lock(mutex_);
    if (arrays_ == nullptr) arrays_ = std::move(table);
    return arrays_.get();
}

Result<std::vector<GlobalArray>> Reader::arrays() {
    TAILRACE_ASSIGN(const ArrayTable* table, array_table());
    std::vector<GlobalArray> found;
    for (const ArrayEntry& array : *table) found.push_back(array.array);
    return found;
}

// Goes through the pieces by rank and gives each what is still open of the box: so every element comes from
// the lowest rank that saved it, and what is left over at the end was saved by nobody.
Result<std::vector<BoxPart>> Reader::assign_parts(const ArrayEntry& array, const Box& box) {
    std::vector<BoxPart> parts;
    if (box.elements() == 0 && std::count(box.shape.begin(), box.shape.end(), 0) > 0) return parts;
    std::vector<Box> open{box};
    for (const ArrayPieceRef& from : array.pieces) {
        if (open.empty()) break;
        TAILRACE_ASSIGN(const RankEntry* saved, entry(from.rank));
        const Box piece = box_of(*saved->manifest.regions[from.region].array);
        const auto common = intersect(box, piece);
        if (!common) continue;
        std::vector<Box> still_open;
        std::vector<BoxPart> given;
        uint64_t given_elements = 0;
        for (const Box& hole : open) {
            if (auto part = intersect(hole, piece)) {
                given_elements += part->elements();
                given.push_back({from, std::move(*part)});
            }
            for (Box& rest : subtract(hole, piece)) still_open.push_back(std::move(rest));
        }
        // Nothing of it was taken before: one part, however the open boxes were cut.
        if (given_elements == common->elements()) given = {BoxPart{from, *common}};
        for (BoxPart& part : given) parts.push_back(std::move(part));
        open = std::move(still_open);
    }
    if (!open.empty())
        return Status(Code::corrupt,
                      fmt::format("elements {} of array '{}' of {} were saved by no rank",
                                  box_text(open.front()), array.array.name, to_string(sources_.key)));
    return parts;
}

Status Reader::read_box(std::string_view name, std::span<const uint64_t> offset,
                        std::span<const uint64_t> shape, std::span<std::byte> memory) {
    TAILRACE_ASSIGN(const ArrayTable* table, array_table());
    auto array = std::find_if(table->begin(), table->end(),
                              [&](const ArrayEntry& entry) { return entry.array.name == name; });
    if (array == table->end()) {
        const std::string missing = fmt::format("{} has no array '{}'", to_string(sources_.key), name);
        if (table->empty()) return Status(Code::not_found, missing + ", and none at all");
        std::vector<std::string_view> names;
        for (const ArrayEntry& entry : *table) names.push_back(entry.array.name);
        return Status(Code::not_found, fmt::format("{}; the nearest of its {} arrays is '{}'", missing,
                                                   names.size(), nearest_name(name, names)));
    }
    const Box box{{offset.begin(), offset.end()}, {shape.begin(), shape.end()}};
    const GlobalArray& global = array->array;
    if (offset.size() != global.shape.size() || shape.size() != global.shape.size())
        return Status(Code::invalid_argument,
                      fmt::format("array '{}' has {} dimensions; the box has {} offsets and {} extents", name,
                                  global.shape.size(), offset.size(), shape.size()));
    for (size_t d = 0; d < shape.size(); ++d)
        if (offset[d] > global.shape[d] || shape[d] > global.shape[d] - offset[d])
            return Status(Code::invalid_argument,
                          fmt::format("a box at {} of extent {} in dimension {} does not lie in array '{}', "
                                      "which has {} there",
                                      offset[d], shape[d], d, name, global.shape[d]));
    // Fits 64 bits, for the box lies within the whole, which does (check_array_piece).
    const uint64_t bytes = box.elements() * element_bytes(global.type);
    if (bytes != memory.size())
        return Status(
            Code::invalid_argument,
            fmt::format("box {} of array '{}' has {} bytes, the memory given for it {}; nothing was read",
                        box_text(box), name, bytes, memory.size()));
    if (array->differing)
        return Status(
            Code::corrupt,
            fmt::format("array '{}' of {}: rank {} saved it with another type or "
                        "global shape than rank {}; its pieces can be read as regions",
                        name, to_string(sources_.key), *array->differing, array->pieces.front().rank));
    TAILRACE_ASSIGN(auto parts, assign_parts(*array, box));
    for (const BoxPart& part : parts) TAILRACE_TRY(read_part(part, box, memory));
    return Status();
}

Status Reader::read_part(const BoxPart& part, const Box& box, std::span<std::byte> memory) {
    TAILRACE_ASSIGN(const RankEntry* saved, entry(part.from.rank));
    const Region& region = saved->manifest.regions[part.from.region];
    const uint64_t run_elements = common_run_elements(part.part, box_of(*region.array), box);
    const uint64_t run_bytes = run_elements * element_bytes(region.array->type);
    const bool single = run_elements == part.part.elements();
    if (single || run_bytes >= long_row_bytes)
        return read_long_rows(*saved, region, part.from.region, part.part, box, memory);
    return read_short_rows(*saved, region, part.from.region, part.part, box, memory);
}

// Check blocks that lie wholly in a row are read where they belong; those at its ends go through memory of
// their own, from which the row's share is copied.
Status Reader::read_long_rows(const RankEntry& entry, const Region& region, uint32_t number, const Box& part,
                              const Box& box, std::span<std::byte> memory) {
    struct Edge {
        Memory memory;
        uint64_t from = 0;  // within the block
        std::span<std::byte> target;
    };
    std::vector<Edge> edges;
    std::vector<StreamBlock> blocks;
    Status status;
    const auto flush = [&] {
        if (status.ok()) status = read_rank_blocks(entry, std::move(blocks));
        blocks.clear();
        if (status.ok())
            for (const Edge& edge : edges)
                std::memcpy(edge.target.data(), edge.memory.get() + edge.from, edge.target.size());
        edges.clear();
    };
    const uint64_t width = element_bytes(region.array->type);
    for_each_common_run(
        part, box_of(*region.array), box, [&](uint64_t start, uint64_t target_start, uint64_t count) {
            if (!status.ok()) return;
            const uint64_t from = start * width, to = from + count * width;
            std::byte* const target = memory.data() + target_start * width;
            for (uint64_t b = from / check_block_bytes; b * check_block_bytes < to; ++b) {
                const uint64_t block_from = b * check_block_bytes;
                const uint64_t block_to = std::min<uint64_t>(block_from + check_block_bytes, region.bytes);
                if (block_from >= from && block_to <= to) {
                    blocks.push_back(block_of(entry.manifest, number, b, target + (block_from - from)));
                    continue;
                }
                auto own = allocate(block_to - block_from, "the edge of a box");
                if (!own.ok()) {
                    status = own.status();
                    return;
                }
                const uint64_t share_from = std::max(from, block_from), share_to = std::min(to, block_to);
                blocks.push_back(block_of(entry.manifest, number, b, own->get()));
                edges.push_back({std::move(*own), share_from - block_from,
                                 std::span(target + (share_from - from), share_to - share_from)});
            }
            if (edges.size() * check_block_bytes >= scratch_bytes) flush();
        });
    flush();
    return status;
}

// The part's rows, in the order in which they lie in the region, pull check blocks through one scratch
// buffer: first the list of all blocks that any row touches, then batch by batch.
Status Reader::read_short_rows(const RankEntry& entry, const Region& region, uint32_t number, const Box& part,
                               const Box& box, std::span<std::byte> memory) {
    const uint64_t width = element_bytes(region.array->type);
    const Box piece = box_of(*region.array);
    std::vector<uint64_t> needed;  // block numbers, ascending
    for_each_run(piece, part, [&](uint64_t start, uint64_t count) {
        const uint64_t last = ((start + count) * width - 1) / check_block_bytes;
        uint64_t b = start * width / check_block_bytes;
        if (!needed.empty()) b = std::max(b, needed.back() + 1);
        for (; b <= last; ++b) needed.push_back(b);
    });

    const uint64_t slots = std::min<uint64_t>(needed.size(), scratch_bytes / check_block_bytes);
    TAILRACE_ASSIGN(auto scratch, allocate(slots * check_block_bytes, "the rows of a box"));
    size_t batch_first = 0, batch_count = 0;  // of `needed`: what lies in the scratch now, one slot each
    size_t cursor = 0;                        // within the batch: the block the last row came from
    Status status;
    const auto load_next = [&] {
        batch_first += batch_count;
        batch_count = std::min<size_t>(slots, needed.size() - batch_first);
        cursor = 0;
        std::vector<StreamBlock> blocks;
        for (size_t i = 0; i < batch_count; ++i)
            blocks.push_back(block_of(entry.manifest, number, needed[batch_first + i],
                                      scratch.get() + i * check_block_bytes));
        status = read_rank_blocks(entry, std::move(blocks));
    };
    for_each_common_run(part, piece, box, [&](uint64_t start, uint64_t target_start, uint64_t count) {
        uint64_t from = start * width;
        uint64_t left = count * width;
        std::byte* target = memory.data() + target_start * width;
        while (status.ok() && left > 0) {
            const uint64_t b = from / check_block_bytes;
            while (cursor < batch_count && needed[batch_first + cursor] < b) ++cursor;
            if (cursor == batch_count) {
                load_next();
                continue;
            }
            const uint64_t into = from - b * check_block_bytes;
            const uint64_t bytes = std::min<uint64_t>(left, check_block_bytes - into);
            std::memcpy(target, scratch.get() + cursor * check_block_bytes + into, bytes);
            target += bytes;
            from += bytes;
            left -= bytes;
        }
    });
    return status;
}

}  // namespace

// ---- opening -----------------------------------------------------------------------------------------

Result<std::unique_ptr<EpochReader>> EpochReader::open(Storage& local, Storage& shared, EpochSources sources,
                                                       DirectIo direct) {
    const std::string name = to_string(sources.key);
    if (sources.rank_count == 0 || sources.rank_count > max_ranks)
        return Status(Code::invalid_argument,
                      fmt::format("{} cannot be opened for {} ranks", name, sources.rank_count));
    for (const LocalPart& part : sources.local_parts) {
        const PartHeader& header = part.header;
        if (header.key != sources.key || header.rank_count != sources.rank_count ||
            header.stream.rank >= sources.rank_count)
            return Status(
                Code::invalid_argument,
                fmt::format("captured part '{}' is rank {} of {} of {}, not one of the {} ranks of {}",
                            part.path, header.stream.rank, header.rank_count, to_string(header.key),
                            sources.rank_count, name));
    }
    if (sources.shared) {
        const SharedEpoch& epoch = *sources.shared;
        bool fits = epoch.key == sources.key && epoch.rank_count == sources.rank_count &&
                    epoch.streams.size() == sources.rank_count;
        for (size_t rank = 0; fits && rank < epoch.streams.size(); ++rank)
            fits = epoch.streams[rank].info.rank == rank;
        if (!fits)
            return Status(Code::invalid_argument,
                          fmt::format("the shared files given are {} with {} ranks, not {} with {}",
                                      to_string(epoch.key), epoch.streams.size(), name, sources.rank_count));
    }
    return std::unique_ptr<EpochReader>(std::make_unique<Reader>(local, shared, std::move(sources), direct));
}

}  // namespace tailrace
