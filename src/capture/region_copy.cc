#include "capture/region_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/invariant.h"
#include "base/units.h"
#include "format/part_file.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// A piece is large enough that taking it costs nothing, and small enough that threads end together.
constexpr uint64_t piece_bytes = 4 * MiB;
// Waking a helper for less than this costs more than it gains.
constexpr uint64_t worth_a_thread_bytes = 8 * MiB;
static_assert(piece_bytes % check_block_bytes == 0);

void zero(std::span<std::byte> bytes) {
    if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
}

}  // namespace

RegionCopy::RegionCopy(PartManifest& manifest, std::span<const RegionSource> regions, const PartSink& sink)
    : manifest_(manifest), regions_(regions), sink_(sink) {}

uint32_t RegionCopy::useful_threads(uint32_t most) const {
    uint64_t total = 0;
    for (const auto& region : regions_) total += region.bytes();
    return static_cast<uint32_t>(std::min<uint64_t>(most, total / worth_a_thread_bytes));
}

Status RegionCopy::run(CopyTeam* team) {
    const std::vector<Piece> all = pieces();
    const auto copy_one = [&](size_t number) {
        const Status copied = copy(all[number]);
        if (copied.ok()) return;
        MutexLock lock(mutex_);
        if (failure_.ok()) failure_ = copied;
    };
    if (team != nullptr)
        team->run(all.size(), copy_one);
    else
        for (size_t i = 0; i < all.size() && failure().ok(); ++i) copy_one(i);
    zero_gaps();
    TAILRACE_TRY(failure());
    // A file that was written to since it was read has bytes of two times in the copy.
    for (const auto& region : regions_)
        if (region.file) TAILRACE_TRY(region.file->open().status());
    return {};
}

Status RegionCopy::failure() {
    MutexLock lock(mutex_);
    return failure_;
}

// Cuts large regions into pieces. Small regions that lie side by side share a piece.
std::vector<RegionCopy::Piece> RegionCopy::pieces() const {
    std::vector<Piece> all;
    for (size_t i = 0; i < regions_.size();) {
        const uint64_t bytes = regions_[i].bytes();
        if (bytes >= large_region_bytes) {
            for (uint64_t at = 0; at < bytes; at += piece_bytes)
                all.push_back({i, i + 1, at, std::min(piece_bytes, bytes - at)});
            ++i;
            continue;
        }
        Piece small{i, i, 0, 0};
        const uint64_t start = manifest_.regions[i].stream_offset;
        while (i < regions_.size() && regions_[i].bytes() < large_region_bytes &&
               manifest_.regions[i].stream_offset + regions_[i].bytes() - start <= piece_bytes)
            ++i;
        small.last_region = i;
        all.push_back(small);
    }
    return all;
}

Status RegionCopy::copy(const Piece& piece) {
    const bool large = piece.bytes > 0;
    if (sink_.mapping.empty()) return large ? write_large(piece) : write_small(piece);
    const auto &first = manifest_.regions[piece.first_region],
               &last = manifest_.regions[piece.last_region - 1];
    const uint64_t end =
        large ? first.stream_offset + piece.region_offset + piece.bytes : last.stream_offset + last.bytes;
    INVARIANT(part_header_bytes + end <= sink_.mapping.size());
    std::byte* const start = sink_.mapping.data() + part_header_bytes + first.stream_offset;
    return large ? copy_region(piece.first_region, piece.region_offset, piece.bytes,
                               start + piece.region_offset)
                 : copy_small(piece, start);
}

Status RegionCopy::copy_region(size_t index, uint64_t from, uint64_t bytes, std::byte* target) {
    if (regions_[index].file) return read_file(index, from, bytes, target);
    auto& crcs = manifest_.regions[index].block_crcs;
    const std::byte* const memory = regions_[index].memory.data();
    const Strides& strides = regions_[index].strides;
    if (!manifest_.has_checksums) {
        stream_gather(memory, strides, from, {target, bytes}, nullptr);
        return {};
    }
    for (uint64_t at = 0; at < bytes; at += check_block_bytes) {
        const auto block =
            std::span(target, bytes).subspan(at).first(std::min<uint64_t>(check_block_bytes, bytes - at));
        stream_gather(memory, strides, from + at, block, &crcs[(from + at) / check_block_bytes]);
    }
    return {};
}

// The file is read and not mapped: if somebody cuts it short meanwhile, that is an error, and not the end
// of the program. The checksum follows each block while the caches hold it.
Status RegionCopy::read_file(size_t index, uint64_t from, uint64_t bytes, std::byte* target) {
    auto& region = manifest_.regions[index];
    if (bytes == 0) return {};
    TAILRACE_ASSIGN(const auto file, regions_[index].file->open());
    for (uint64_t at = 0; at < bytes; at += check_block_bytes) {
        const auto block =
            std::span(target, bytes).subspan(at).first(std::min<uint64_t>(check_block_bytes, bytes - at));
        TAILRACE_ASSIGN(const size_t got, file->read_at(block, from + at));
        if (got < block.size())
            return Status(Code::io_error, fmt::format("'{}' ended after {} bytes while its {} bytes were "
                                                      "captured; nothing may change it before the "
                                                      "save returns",
                                                      file->path(), from + at + got, region.bytes));
        if (manifest_.has_checksums) region.block_crcs[(from + at) / check_block_bytes] = crc32c(block);
    }
    return {};
}

// Copies small regions side by side, with zeros between them. `target` stands for the stream from
// the first region on.
Status RegionCopy::copy_small(const Piece& piece, std::byte* target) {
    const uint64_t start = manifest_.regions[piece.first_region].stream_offset;
    uint64_t at = start;
    for (size_t i = piece.first_region; i < piece.last_region; ++i) {
        const auto& region = manifest_.regions[i];
        zero({target + (at - start), static_cast<size_t>(region.stream_offset - at)});
        TAILRACE_TRY(copy_region(i, 0, region.bytes, target + (region.stream_offset - start)));
        at = region.stream_offset + region.bytes;
    }
    return {};
}

Status RegionCopy::write_large(const Piece& piece) {
    const auto& region = regions_[piece.first_region];
    auto& entry = manifest_.regions[piece.first_region];
    std::vector<std::byte> gathered;
    if (region.file) {
        gathered.resize(piece.bytes);
        TAILRACE_TRY(read_file(piece.first_region, piece.region_offset, piece.bytes, gathered.data()));
        return sink_.file->write_at(gathered, part_header_bytes + entry.stream_offset + piece.region_offset);
    }
    auto source = region.memory.subspan(piece.region_offset, piece.bytes);
    if (!region.strides.one_block()) {
        gathered.resize(piece.bytes);
        gather(region.memory.data(), region.strides, piece.region_offset, gathered);
        source = gathered;
    }
    if (manifest_.has_checksums)
        for (uint64_t at = 0; at < piece.bytes; at += check_block_bytes)
            entry.block_crcs[(piece.region_offset + at) / check_block_bytes] =
                crc32c(source.subspan(at, std::min<uint64_t>(check_block_bytes, piece.bytes - at)));
    return sink_.file->write_at(source, part_header_bytes + entry.stream_offset + piece.region_offset);
}

Status RegionCopy::write_small(const Piece& piece) {
    const uint64_t start = manifest_.regions[piece.first_region].stream_offset;
    const auto& last = manifest_.regions[piece.last_region - 1];
    std::vector<std::byte> staged(last.stream_offset + last.bytes - start);
    if (staged.empty()) return {};
    TAILRACE_TRY(copy_small(piece, staged.data()));
    return sink_.file->write_at(staged, part_header_bytes + start);
}

// A recycled mapping holds another epoch's bytes in the gaps, which nobody may read.
void RegionCopy::zero_gaps() {
    if (sink_.mapping.empty()) return;
    uint64_t at = manifest_.manifest_bytes;
    for (const auto& region : manifest_.regions) {
        zero(sink_.mapping.subspan(part_header_bytes + at, region.stream_offset - at));
        at = region.stream_offset + region.bytes;
    }
    zero(sink_.mapping.subspan(part_header_bytes + at, manifest_.stream_bytes - at));
}

}  // namespace tailrace::internal
