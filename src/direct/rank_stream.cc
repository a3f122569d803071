#include "direct/rank_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/fnv.h"
#include "base/units.h"

namespace tailrace::internal {

Result<uint64_t> head_bytes(const std::vector<RegionShape>& regions, const std::vector<RegionShape>& tail) {
    PartManifest manifest;
    add_regions(manifest, regions);
    add_regions(manifest, tail);
    TAILRACE_TRY(lay_out(manifest));
    const uint64_t end = regions.empty() ? manifest.manifest_bytes
                                         : manifest.regions[regions.size() - 1].stream_offset +
                                               manifest.regions[regions.size() - 1].bytes;
    return manifest.manifest_bytes + align_up(manifest.stream_bytes - end, stream_alignment);
}

uint64_t shapes_digest(const std::vector<RegionShape>& regions) {
    PartManifest manifest;
    manifest.has_checksums = false;
    add_regions(manifest, regions);
    if (!lay_out(manifest).ok()) return 0;
    const auto encoded = encode(manifest);
    return fnv1a_64({reinterpret_cast<const char*>(encoded.data()), encoded.size()});
}

Result<RankStream> RankStream::make(const DirectRank& from, uint32_t rank, uint32_t ranks) {
    const auto run_count = static_cast<uint32_t>(from.file_offsets.size());
    TAILRACE_ASSIGN(const auto layout, lay_out_regions(from.regions, run_count));
    PartManifest manifest;
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

    RankStream stream;
    stream.tail_start_ = manifest.manifest_bytes + layout.bytes;
    stream.tail_.resize(manifest.stream_bytes - stream.tail_start_);
    for (size_t i = 0; i < manifest.regions.size(); ++i) {
        const Region& region = manifest.regions[i];
        std::vector<uint32_t>& crcs = manifest.regions[i].block_crcs;
        if (i < from.regions.size()) {
            if (i >= from.crcs.size() || from.crcs[i].size() != crcs.size())
                return Status(
                    Code::invalid_argument,
                    fmt::format("region '{}' of rank {} came without its checksums", region.name, rank));
            crcs = from.crcs[i];
            continue;
        }
        const std::span<const std::byte> content(from.tail[i - from.regions.size()].content);
        for (size_t block = 0; block < crcs.size(); ++block) {
            const size_t start = block * check_block_bytes;
            crcs[block] =
                crc32c(content.subspan(start, std::min<size_t>(check_block_bytes, content.size() - start)));
        }
        std::ranges::copy(content, stream.tail_.begin() + static_cast<std::ptrdiff_t>(region.stream_offset -
                                                                                      stream.tail_start_));
    }
    stream.encoded_ = encode(manifest);
    stream.info_ = {rank, manifest.stream_bytes, manifest.manifest_bytes, crc32c(stream.encoded_)};

    for (uint32_t run = 0; run < run_count; ++run) {
        const RegionRun& cut = layout.runs[run];
        auto& in_file = stream.data_.emplace_back();
        if (cut.first == cut.last) continue;
        const uint64_t start = manifest.manifest_bytes + cut.start;
        const uint64_t end = cut.last < from.regions.size()
                                 ? manifest.manifest_bytes + layout.offsets[cut.last]
                                 : stream.tail_start_;
        if (end > start) in_file.extents.push_back({rank, start, end - start, from.file_offsets[run]});
        in_file.end = from.file_offsets[run] + cut.bytes;
    }
    return stream;
}

Result<WrittenRank> write_stream(Storage& storage, uint32_t rank, uint32_t ranks,
                                 const std::vector<RegionShape>& regions, std::vector<RegionTail> tail,
                                 std::span<const std::span<const std::byte>> memory, const StreamPlace& place,
                                 const DirectWriteOptions& options) {
    if (place.runs.empty())
        return Status(Code::invalid_argument, fmt::format("rank {} has no file; nothing was written", rank));
    const auto run_count = static_cast<uint32_t>(place.runs.size());
    TAILRACE_ASSIGN(const auto layout, lay_out_regions(regions, run_count));
    TAILRACE_ASSIGN(auto runs, copy_runs(storage, layout, memory, place.runs, options));
    DirectRank from{regions, std::move(runs.crcs), {}, std::move(tail)};
    for (const RunPlace& run : place.runs) from.file_offsets.push_back(run.file_offset);
    TAILRACE_ASSIGN(const auto stream, RankStream::make(from, rank, ranks));

    WrittenRank written{stream.info(), shapes_digest(regions), stream.data()};
    auto& first = written.files.front();
    std::vector<std::byte> head = stream.manifest();
    first.extents.push_back({rank, 0, head.size(), place.head_offset});
    if (!stream.tail().empty()) {
        first.extents.push_back(
            {rank, stream.tail_start(), stream.tail().size(), place.head_offset + head.size()});
        head.insert(head.end(), stream.tail().begin(), stream.tail().end());
    }
    head.resize(align_up(head.size(), stream_alignment));
    first.end = std::max(first.end, place.head_offset + head.size());
    TAILRACE_ASSIGN(auto file, storage.open(place.runs.front().path, {Access::write, DirectIo::off}));
    TAILRACE_TRY(file->write_at(head, place.head_offset));
    runs.files.push_back(std::move(file));
    TAILRACE_TRY(runs.sync());
    return written;
}

}  // namespace tailrace::internal
