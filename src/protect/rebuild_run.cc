#include "protect/rebuild_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/caught.h"
#include "base/invariant.h"
#include "format/manifest.h"
#include "protect/rebuild.h"

namespace tailrace::internal {

RebuildRun::RebuildRun(const RebuildContext& context, const EpochRebuild& epoch, int node,
                       const std::vector<FoundObject>& objects, Write write)
    : context_(context), epoch_(epoch), node_(node), objects_(objects), write_(std::move(write)) {}

Status RebuildRun::run() {
    std::map<int, Cursor> cursors;  // by node, the same on every rank
    for (size_t i = 0; i < epoch_.lost.size(); ++i) cursors[epoch_.lost[i].target].lost.push_back(i);
    const auto at_end = [](const auto& entry) { return entry.second.next == entry.second.lost.size(); };
    while (!std::all_of(cursors.begin(), cursors.end(), at_end)) {
        prepare(cursors);
        TAILRACE_TRY(context_.transport.exchange(sends_, receives_));
        if (failure_.ok()) failure_ = catching([&] { return write_runs(); });
    }
    return failure_;
}

std::vector<RebuildRun::Run> RebuildRun::next_runs(Cursor& cursor) const {
    std::vector<Run> runs;
    uint64_t memory_bytes = 0;
    while (cursor.next < cursor.lost.size()) {
        const size_t index = cursor.lost[cursor.next];
        const LostPart& lost = epoch_.lost[index];
        const auto& set = epoch_.sets[lost.set];
        const uint64_t end = run_end(set, lost, cursor.offset);
        memory_bytes += (end - cursor.offset) * set.tables.members.size();
        if (!runs.empty() && memory_bytes > rebuild_bytes) break;
        runs.push_back({index, cursor.offset, end - cursor.offset});
        cursor.offset = end;
        if (end == part_bytes(lost.stream)) {
            ++cursor.next;
            cursor.offset = 0;
        }
    }
    return runs;
}

std::vector<RebuildRun::Fragment> RebuildRun::fragments_of(const SetRemains& set,
                                                           const RebuildTerm& term) const {
    if (term.from_object) {
        const auto& object = set.objects[term.position];
        INVARIANT(object.has_value());
        return {{object->node, object->path, true, term.piece, term.offset, 0, term.bytes}};
    }
    std::vector<Fragment> fragments;
    const auto& parts = set.parts[term.position];
    uint64_t begin = 0;  // of the part in the logical part
    for (const auto& part : parts) {
        INVARIANT(part.has_value());
        const uint64_t end = begin + part_bytes(part->header.stream);
        const uint64_t from = std::max(begin, term.offset), to = std::min(end, term.offset + term.bytes);
        if (from < to)
            fragments.push_back(
                {part->node, part->path, false, 0, from - begin, from - term.offset, to - from});
        begin = end;
    }
    return fragments;
}

// The memory of earlier rounds: new memory would cost more than the bytes that go through it.
std::span<std::byte> RebuildRun::take(uint64_t bytes) {
    if (taken_ == stock_.size()) stock_.emplace_back();
    auto& memory = stock_[taken_++];
    if (memory.size() < bytes) memory.resize(bytes);
    return std::span(memory).first(bytes);
}

void RebuildRun::prepare(std::map<int, Cursor>& cursors) {
    taken_ = 0;
    own_runs_.clear();
    own_sources_.clear();
    sends_.clear();
    receives_.clear();
    // Every rank goes through all of it in the same order, and takes part in what concerns it.
    for (auto& [target, cursor] : cursors)
        for (const auto& run : next_runs(cursor)) {
            const LostPart& lost = epoch_.lost[run.lost];
            const auto& set = epoch_.sets[lost.set];
            if (target == node_) {
                own_runs_.push_back(run);
                own_sources_.emplace_back();
            }
            for (const auto& term : terms_of(set, lost, run.offset, run.bytes)) {
                if (target == node_) own_sources_.back().push_back({term.factor, take(term.bytes)});
                for (const auto& fragment : fragments_of(set, term)) {
                    if (fragment.node == node_) {
                        const auto sent = take(fragment.bytes);
                        read(fragment, sent);
                        sends_.push_back({context_.topology.representative(target), sent});
                    }
                    if (target == node_)
                        receives_.push_back(
                            {context_.topology.representative(fragment.node),
                             own_sources_.back().back().bytes.subspan(fragment.term_offset, fragment.bytes)});
                }
            }
        }
}

Status RebuildRun::write_runs() {
    for (size_t i = 0; i < own_runs_.size(); ++i) {
        const auto& run = own_runs_[i];
        std::vector<Product> products;
        for (const auto& source : own_sources_[i]) products.push_back({source.factor, source.bytes});
        const bool copy =
            products.size() == 1 && products[0].factor == 1 && products[0].source.size() == run.bytes;
        if (!copy) {
            const auto sum = take(run.bytes);
            set_to_sum(products, sum);
            TAILRACE_TRY(write_(run.lost, run.offset, sum));
        } else {
            TAILRACE_TRY(write_(run.lost, run.offset, products[0].source));
        }
    }
    return {};
}

// After a failure the others get zeros, so that they do not wait. Nothing of the epoch is used then.
void RebuildRun::read(const Fragment& fragment, std::span<std::byte> target) {
    if (failure_.ok())
        failure_ = fragment.from_object ? read_object(fragment, target) : read_part(fragment, target);
    if (!failure_.ok()) std::fill(target.begin(), target.end(), std::byte{0});
}

Status RebuildRun::read_object(const Fragment& fragment, std::span<std::byte> target) {
    auto& reader = readers_[fragment.path];
    if (!reader) {
        const auto own = std::find_if(objects_.begin(), objects_.end(), [&](const FoundObject& object) {
            return object.path == fragment.path;
        });
        INVARIANT(own != objects_.end());
        TAILRACE_ASSIGN(reader, ObjectReader::open(context_.local, own->path, own->head));
    }
    // The checksum is that of the whole block.
    const uint64_t begin = fragment.file_offset / check_block_bytes * check_block_bytes;
    const uint64_t bytes = std::min<uint64_t>(check_block_bytes, piece_bytes(reader->head()) - begin);
    INVARIANT(fragment.file_offset + fragment.bytes <= begin + bytes);
    if (bytes == target.size()) return reader->read(fragment.piece, begin, target);
    const auto block = take(bytes);
    TAILRACE_TRY(reader->read(fragment.piece, begin, block));
    std::copy_n(block.begin() + static_cast<ptrdiff_t>(fragment.file_offset - begin), fragment.bytes,
                target.begin());
    return {};
}

Status RebuildRun::read_part(const Fragment& fragment, std::span<std::byte> target) {
    auto& file = files_[fragment.path];
    if (!file) {
        TAILRACE_ASSIGN(file, context_.local.open(fragment.path, {Access::read, DirectIo::off}));
    }
    TAILRACE_ASSIGN(const size_t got, file->read_at(target, fragment.file_offset));
    if (got == target.size()) return {};
    return Status(Code::corrupt, fmt::format("reading {} bytes at offset {} of {}: only {} are there",
                                             target.size(), fragment.file_offset, fragment.path, got));
}

}  // namespace tailrace::internal
