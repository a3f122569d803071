#include "read/epoch_reader_plan.h"

#include <algorithm>
#include <tuple>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

// A block's share of one extent.
struct Fragment {
    uint32_t file = 0;
    uint64_t offset = 0;
    size_t block = 0;
    std::span<std::byte> memory;
};

std::vector<Fragment> cut_at_extents(std::span<const StreamExtent> extents,
                                     std::span<const StreamBlock> blocks) {
    std::vector<Fragment> fragments;
    fragments.reserve(blocks.size());
    for (size_t b = 0; b < blocks.size(); ++b) {
        auto rest = blocks[b].memory;
        uint64_t at = blocks[b].stream_offset;
        const StreamExtent* extent = &extent_at(extents, at);
        while (!rest.empty()) {
            const uint64_t into = at - extent->stream_offset;
            const auto bytes = std::min<uint64_t>(rest.size(), extent->bytes - into);
            fragments.push_back({extent->file, extent->file_offset + into, b, rest.first(bytes)});
            rest = rest.subspan(bytes);
            at += bytes;
            ++extent;
        }
    }
    std::sort(fragments.begin(), fragments.end(), [](const Fragment& a, const Fragment& b) {
        return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
    });
    return fragments;
}

void add_piece(ReadCall& call, std::span<std::byte> memory) {
    if (!call.pieces.empty()) {
        Piece& last = call.pieces.back();
        if (last.data() + last.size() == memory.data()) {
            last = Piece(last.data(), last.size() + memory.size());
            return;
        }
    }
    call.pieces.push_back(memory);
}

}  // namespace

const StreamExtent& extent_at(std::span<const StreamExtent> extents, uint64_t stream_offset) {
    auto after =
        std::upper_bound(extents.begin(), extents.end(), stream_offset,
                         [](uint64_t at, const StreamExtent& extent) { return at < extent.stream_offset; });
    INVARIANT(after != extents.begin());
    return *std::prev(after);
}

std::vector<ReadCall> plan_reads(std::span<const StreamExtent> extents, std::span<const StreamBlock> blocks,
                                 const ReadLimits& limits, std::span<std::byte> throw_away) {
    std::vector<ReadCall> calls;
    for (const Fragment& fragment : cut_at_extents(extents, blocks)) {
        const uint64_t bytes = fragment.memory.size();
        bool joins = false;
        uint64_t gap = 0;
        if (!calls.empty()) {
            const ReadCall& last = calls.back();
            const uint64_t end = last.offset + last.bytes;
            if (last.file == fragment.file && fragment.offset >= end) {
                gap = fragment.offset - end;
                joins = gap <= limits.gap_bytes && last.bytes + gap + bytes <= limits.call_bytes;
            }
        }
        if (!joins) {
            calls.emplace_back();
            calls.back().file = fragment.file;
            calls.back().offset = fragment.offset;
            gap = 0;
        }
        ReadCall& call = calls.back();
        // A gap's memory may happen to lie right before the fragment's, so it must not be joined
        // with anything.
        if (gap > 0) call.pieces.push_back(throw_away.first(gap));
        if (gap > 0)
            call.pieces.push_back(fragment.memory);
        else
            add_piece(call, fragment.memory);
        call.bytes += gap + bytes;
        call.shares.push_back({fragment.block, bytes, call.bytes});
    }
    return calls;
}

}  // namespace tailrace::internal
