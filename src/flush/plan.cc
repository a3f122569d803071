#include "flush/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "base/invariant.h"
#include "base/mixed.h"
#include "base/units.h"
#include "format/manifest.h"

namespace tailrace::internal {

namespace {

// With these limits no sum in this file comes near 64 bits: 2^26 ranks of 2^36 chunks each, or
// fewer ranks with larger chunks.
constexpr uint64_t max_group_bytes = uint64_t{1} << 61;
constexpr uint64_t max_chunk_bytes = uint64_t{1} << 40;
constexpr uint64_t max_block_bytes = uint64_t{1} << 30;

// Parallel file systems lock and place a file in pieces of up to 64 MiB, and two nodes that write
// to one piece wait for each other. So a stripe has at least that size, unless a leader has less
// data.
constexpr uint64_t min_stripe_bytes = 64 * MiB;

uint64_t chunks_of(uint64_t bytes, uint64_t chunk_bytes) {
    return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

// The first number with floor(i * shares / count) = share.
uint64_t first_of_share(uint64_t share, uint64_t shares, uint64_t count) {
    return (share * count + shares - 1) / shares;
}

Status bad_plan(const FlushPlan& plan, const std::string& what) {
    return Status(Code::invalid_argument, fmt::format("the plan of {} in group {} cannot be carried out: {}",
                                                      to_string(plan.key), plan.group.index, what));
}

// The space that a node's streams take in a file.
uint64_t padded_bytes(const NodeOffer& offer, uint64_t block_bytes) {
    uint64_t sum = 0;
    for (const StreamInfo& stream : offer.streams) sum += align_up(stream.stream_bytes, block_bytes);
    return sum;
}

// Divides a leader's expected data into stripes of equal size, so that the last stripe is full,
// too. A leader is expected to have its own bytes, or an equal share of all bytes where that is
// more.
uint64_t fitting_stripe_bytes(const FlushPlan& plan) {
    uint64_t all = 0, most = 0;
    for (const NodeOffer& offer : plan.offers) {
        const uint64_t bytes = padded_bytes(offer, plan.block_bytes);
        all += bytes;
        most = std::max(most, bytes);  // a leader's: the nodes with the most bytes are elected
    }
    const uint64_t share = std::max(most, chunks_of(all, plan.leaders.size()));
    const uint64_t rounds = std::max<uint64_t>(1, share / min_stripe_bytes);
    const auto whole = [](uint64_t bytes, uint64_t unit) {
        return std::max<uint64_t>(1, chunks_of(bytes, unit)) * unit;
    };
    const uint64_t unit = plan.stripe_align != 0 ? plan.stripe_align : plan.chunk_bytes;
    const uint64_t even = whole(chunks_of(share, rounds), unit);
    // With large units, stripes of the smallest possible size may leave less of the last round
    // empty.
    const uint64_t smallest = whole(min_stripe_bytes, unit);
    const bool fits_better = whole(share, smallest) < whole(share, even);
    return plan.stripe_align != 0 && fits_better ? smallest : even;
}

// Where the leader's data ends in the file. `bytes` counts the leader's data, in whole blocks.
uint64_t end_in_file(const SharedHeader& header, uint32_t leader, uint64_t bytes) {
    if (bytes == 0) return data_offset(header);
    return place_in_stripes(header, leader, bytes - 1).file_offset + 1;
}

}  // namespace

Group group_of_node(int node, int node_count, uint32_t file_count) {
    INVARIANT(node >= 0 && node < node_count && file_count > 0);
    const auto nodes = static_cast<uint64_t>(node_count);
    const uint64_t groups = std::min<uint64_t>(nodes, file_count);
    const uint64_t index = static_cast<uint64_t>(node) * groups / nodes;
    Group group;
    group.index = static_cast<int>(index);
    group.first_node = static_cast<int>(first_of_share(index, groups, nodes));
    group.last_node = static_cast<int>(first_of_share(index + 1, groups, nodes));
    group.first_file = static_cast<uint32_t>(first_of_share(index, groups, file_count));
    group.last_file = static_cast<uint32_t>(first_of_share(index + 1, groups, file_count));
    return group;
}

uint64_t NodeOffer::bytes() const {
    uint64_t sum = 0;
    for (const StreamInfo& stream : streams) sum += stream.stream_bytes;
    return sum;
}

uint64_t chunk_count(const NodeOffer& offer, uint64_t chunk_bytes) {
    uint64_t count = 0;
    for (const StreamInfo& stream : offer.streams) count += chunks_of(stream.stream_bytes, chunk_bytes);
    return count;
}

void WrittenChunks::add(uint32_t rank, uint64_t stream_offset, uint64_t chunk_bytes) {
    bytes += chunk_bytes;
    mark += mixed(mixed(uint64_t{rank} + 1) + stream_offset + 1);
}

void WrittenChunks::add(const WrittenChunks& others) {
    bytes += others.bytes;
    mark += others.mark;
}

WrittenChunks all_chunks(const FlushPlan& plan) {
    WrittenChunks all;
    for (const NodeOffer& offer : plan.offers)
        for (const StreamInfo& stream : offer.streams)
            for (uint64_t at = 0; at < stream.stream_bytes; at += plan.chunk_bytes)
                all.add(stream.rank, at, std::min(plan.chunk_bytes, stream.stream_bytes - at));
    return all;
}

std::vector<int> elect_leaders(const std::vector<NodeOffer>& offers, uint32_t count) {
    std::vector<std::pair<uint64_t, int>> candidates;  // bytes, node
    candidates.reserve(offers.size());
    for (const NodeOffer& offer : offers) candidates.emplace_back(offer.bytes(), offer.node);
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    candidates.resize(std::min<size_t>(count, candidates.size()));
    std::vector<int> leaders;
    for (const auto& candidate : candidates) leaders.push_back(candidate.second);
    return leaders;
}

uint64_t fitting_chunk_bytes(const std::vector<NodeOffer>& offers, const PlanSettings& settings) {
    constexpr uint64_t fewest_chunks = 8, least_bytes = 4 * MiB;
    uint64_t nodes = 0, mean = 0;
    for (const NodeOffer& offer : offers) nodes += offer.bytes() > 0 ? 1 : 0;
    for (const NodeOffer& offer : offers) mean += offer.bytes() / std::max<uint64_t>(1, nodes);
    // Both powers of two.
    const uint64_t unit = std::max<uint64_t>(settings.block_bytes, check_block_bytes);
    uint64_t bytes = settings.chunk_bytes;
    while (bytes / 2 >= least_bytes && bytes / 2 % unit == 0 && mean / bytes < fewest_chunks) bytes /= 2;
    return bytes;
}

uint32_t fitting_leaders(const std::vector<NodeOffer>& offers) {
    constexpr uint64_t max_leaders = 8, least_bytes = 16 * MiB;
    uint64_t all = 0, most = 0;
    for (const NodeOffer& offer : offers) {
        all += offer.bytes();
        most = std::max(most, offer.bytes());
    }
    auto leaders = std::clamp<uint64_t>(std::min<uint64_t>(all / least_bytes, offers.size()), 1, max_leaders);
    while (leaders > 1 && leaders * most > all + all / 2) --leaders;
    return static_cast<uint32_t>(leaders);
}

Result<FlushPlan> make_plan(const std::string& job, EpochKey key, uint64_t run_uid, uint32_t rank_count,
                            const Group& group, std::vector<NodeOffer> offers, const PlanSettings& settings) {
    FlushPlan plan;
    plan.job = job;
    plan.key = key;
    plan.run_uid = run_uid;
    plan.rank_count = rank_count;
    plan.file_count = settings.file_count;
    plan.group = group;
    plan.chunk_bytes = fitting_chunk_bytes(offers, settings);
    plan.block_bytes = settings.block_bytes;
    plan.stripe_align = settings.stripe_align;
    plan.placement = settings.placement;

    uint32_t leader_count = settings.leaders_per_file == 0
                                ? fitting_leaders(offers)
                                : std::min(settings.leaders_per_file, max_leaders_per_file);
    if (group.file_count() > 1) leader_count = 1;
    plan.leaders = elect_leaders(offers, leader_count);
    plan.offers = std::move(offers);
    for (NodeOffer& offer : plan.offers) {
        std::sort(offer.streams.begin(), offer.streams.end(),
                  [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
    }
    TAILRACE_TRY(check_plan(plan));
    return plan;
}

namespace {

Status check_numbers(const FlushPlan& plan) {
    if (Status name = check_job_name(plan.job); !name.ok()) return bad_plan(plan, name.message());
    if (plan.rank_count == 0 || plan.rank_count > max_ranks)
        return bad_plan(plan, fmt::format("{} ranks are not between 1 and {}", plan.rank_count, max_ranks));
    if (plan.file_count == 0 || plan.file_count > max_files)
        return bad_plan(plan, fmt::format("{} files are not between 1 and {}", plan.file_count, max_files));
    if (plan.block_bytes < 512 || plan.block_bytes > max_block_bytes ||
        !std::has_single_bit(plan.block_bytes))
        return bad_plan(plan, fmt::format("a block of {} bytes is not a power of two from 512 to {}",
                                          plan.block_bytes, max_block_bytes));
    if (plan.chunk_bytes == 0 || plan.chunk_bytes > max_chunk_bytes ||
        plan.chunk_bytes % plan.block_bytes != 0)
        return bad_plan(
            plan, fmt::format("a chunk of {} bytes is above {}, or not a multiple of the block of {} bytes",
                              plan.chunk_bytes, max_chunk_bytes, plan.block_bytes));
    if (plan.stripe_align > max_chunk_bytes || plan.stripe_align % plan.block_bytes != 0)
        return bad_plan(plan,
                        fmt::format("its stripes are multiples of {} bytes, which is above {}, or not a "
                                    "multiple of the block of {} bytes",
                                    plan.stripe_align, max_chunk_bytes, plan.block_bytes));
    return Status();
}

Status check_group(const FlushPlan& plan) {
    const Group& group = plan.group;
    if (group.index < 0 || group.first_node < 0 || group.last_node <= group.first_node ||
        group.last_file <= group.first_file || group.last_file > plan.file_count)
        return bad_plan(plan,
                        fmt::format("its nodes [{}, {}) or its files [{}, {}) of {} are not a valid range",
                                    group.first_node, group.last_node, group.first_file, group.last_file,
                                    plan.file_count));
    if (plan.offers.size() != static_cast<size_t>(group.node_count()))
        return bad_plan(plan, fmt::format("it has the offers of {} nodes, but the group has {}",
                                          plan.offers.size(), group.node_count()));
    return Status();
}

Status check_offers(const FlushPlan& plan) {
    const Group& group = plan.group;
    std::vector<uint32_t> ranks;
    uint64_t bytes = 0;
    uint64_t chunks = 0;
    for (size_t i = 0; i < plan.offers.size(); ++i) {
        const NodeOffer& offer = plan.offers[i];
        if (offer.node != group.first_node + static_cast<int>(i))
            return bad_plan(plan, fmt::format("offer {} is that of node {}", i, offer.node));
        for (const StreamInfo& stream : offer.streams) {
            if (stream.rank >= plan.rank_count)
                return bad_plan(plan, fmt::format("node {} offers rank {} of {} ranks", offer.node,
                                                  stream.rank, plan.rank_count));
            if (stream.manifest_bytes > stream.stream_bytes || stream.stream_bytes > max_group_bytes - bytes)
                return bad_plan(
                    plan, fmt::format("node {} offers rank {} with a stream of {} bytes and a "
                                      "manifest of {} bytes",
                                      offer.node, stream.rank, stream.stream_bytes, stream.manifest_bytes));
            bytes += stream.stream_bytes;
            ranks.push_back(stream.rank);
        }
        if (!std::is_sorted(offer.streams.begin(), offer.streams.end(),
                            [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; }))
            return bad_plan(plan, fmt::format("the streams of node {} are not in order", offer.node));
        chunks += chunk_count(offer, plan.chunk_bytes);
    }
    if (chunks > (uint64_t{1} << 40))
        return bad_plan(plan, fmt::format("{} chunks of {} bytes are too many: use larger buffers", chunks,
                                          plan.chunk_bytes));
    std::sort(ranks.begin(), ranks.end());
    if (auto twice = std::adjacent_find(ranks.begin(), ranks.end()); twice != ranks.end())
        return bad_plan(plan, fmt::format("rank {} is offered twice", *twice));
    return Status();
}

Status check_leaders(const FlushPlan& plan) {
    const Group& group = plan.group;
    if (plan.leaders.empty() || plan.leaders.size() > max_leaders_per_file ||
        (group.file_count() > 1 && plan.leaders.size() > 1))
        return bad_plan(
            plan, fmt::format("{} leaders cannot write {} files", plan.leaders.size(), group.file_count()));
    std::vector<int> leaders = plan.leaders;
    std::sort(leaders.begin(), leaders.end());
    if (leaders.front() < group.first_node || leaders.back() >= group.last_node ||
        std::adjacent_find(leaders.begin(), leaders.end()) != leaders.end())
        return bad_plan(plan, "a leader is not a node of the group, or is named twice");
    return Status();
}

}  // namespace

Status check_plan(const FlushPlan& plan) {
    TAILRACE_TRY(check_numbers(plan));
    TAILRACE_TRY(check_group(plan));
    TAILRACE_TRY(check_offers(plan));
    return check_leaders(plan);
}

SharedHeader FlushPlan::header(uint32_t file) const {
    INVARIANT(file >= group.first_file && file < group.last_file);
    SharedHeader header;
    header.job = job;
    header.key = key;
    header.run_uid = run_uid;
    header.file_index = file;
    header.file_count = file_count;
    header.rank_count = rank_count;
    header.leader_count = static_cast<uint32_t>(leaders.size());
    header.block_bytes = block_bytes;
    header.stripe_bytes = leaders.size() > 1 ? fitting_stripe_bytes(*this) : 0;

    // Any leader may get every chunk of the group, and the end of a stripe may cut a chunk in two.
    uint64_t stream_count = 0;
    uint64_t extent_count = 0;
    for (const NodeOffer& offer : offers) {
        stream_count += offer.streams.size();
        extent_count += chunk_count(offer, chunk_bytes);
    }
    if (leaders.size() > 1) extent_count *= 2;
    header.index_area_bytes = align_up(index_bytes_bound(stream_count, extent_count), block_bytes);
    if (header.leader_count > 1 && stripe_align != 0) {
        // The head gets whole pieces of the file system to itself, except for a few blocks. The
        // reason: a leader that commits writes into the head while others still write their data.
        const uint64_t areas = slot_offset(header, header.leader_count);
        const uint64_t all = align_up(data_offset(header), stripe_align) - areas;
        header.index_area_bytes = all / header.leader_count / block_bytes * block_bytes;
    }
    return header;
}

std::vector<StreamInfo> FlushPlan::streams() const {
    std::vector<StreamInfo> all;
    for (const NodeOffer& offer : offers) all.insert(all.end(), offer.streams.begin(), offer.streams.end());
    std::sort(all.begin(), all.end(),
              [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
    return all;
}

int FlushPlan::leader_index(int node) const {
    auto found = std::find(leaders.begin(), leaders.end(), node);
    return found == leaders.end() ? -1 : static_cast<int>(found - leaders.begin());
}

uint64_t FlushPlan::bytes() const {
    uint64_t sum = 0;
    for (const NodeOffer& offer : offers) sum += offer.bytes();
    return sum;
}

std::vector<int> assigned_leaders(const FlushPlan& plan) {
    std::vector<int> assigned(plan.offers.size(), any_leader);
    std::vector<uint64_t> load(plan.leaders.size(), 0);
    for (size_t leader = 0; leader < plan.leaders.size(); ++leader) {
        const auto place = static_cast<size_t>(plan.leaders[leader] - plan.group.first_node);
        INVARIANT(place < plan.offers.size());
        assigned[place] = static_cast<int>(leader);
        load[leader] = plan.offers[place].bytes();
    }
    if (plan.placement == Placement::append) return assigned;

    // Go through the nodes from the largest down, and give each to the leader with the least data
    // so far.
    std::vector<size_t> order(plan.offers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return plan.offers[a].bytes() > plan.offers[b].bytes(); });
    for (size_t place : order) {
        if (assigned[place] != any_leader) continue;
        const auto least = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
        assigned[place] = static_cast<int>(least);
        load[least] += plan.offers[place].bytes();
    }
    return assigned;
}

ExtentAllocator::ExtentAllocator(const FlushPlan& plan, uint32_t leader_index)
    : chunk_bytes_(plan.chunk_bytes),
      block_bytes_(plan.block_bytes),
      placement_(plan.placement),
      leader_(leader_index) {
    for (uint32_t file = plan.group.first_file; file < plan.group.last_file; ++file)
        files_.push_back({plan.header(file), 0});
    if (placement_ == Placement::append) return;

    // Streams lie one behind the other, by rank. Chunk c of a stream goes to file c mod (number of
    // files), so that every file gets its share. It lies right behind chunk c - (number of files).
    const std::vector<int> assigned = assigned_leaders(plan);
    std::vector<StreamInfo> mine;
    for (size_t place = 0; place < plan.offers.size(); ++place) {
        if (assigned[place] != static_cast<int>(leader_)) continue;
        const auto& streams = plan.offers[place].streams;
        mine.insert(mine.end(), streams.begin(), streams.end());
    }
    std::sort(mine.begin(), mine.end(),
              [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
    const uint64_t file_count = files_.size();
    for (const StreamInfo& stream : mine) {
        Base base{stream.rank, {}};
        const uint64_t whole_chunks = stream.stream_bytes / chunk_bytes_;
        const uint64_t rest = align_up(stream.stream_bytes % chunk_bytes_, block_bytes_);
        for (uint64_t file = 0; file < file_count; ++file) {
            base.position.push_back(files_[file].next);
            const uint64_t chunks = whole_chunks / file_count + (file < whole_chunks % file_count ? 1 : 0);
            files_[file].next += chunks * chunk_bytes_ + (file == whole_chunks % file_count ? rest : 0);
        }
        bases_.push_back(std::move(base));
    }
}

std::vector<ExtentAllocator::Placed> ExtentAllocator::allocate(uint32_t rank, uint64_t stream_offset,
                                                               uint64_t bytes) {
    INVARIANT(stream_offset % block_bytes_ == 0);
    std::vector<Placed> placed;
    const Extent whole{rank, stream_offset, bytes, 0};
    if (placement_ == Placement::contiguous) {
        place_contiguous(whole, placed);
        return placed;
    }
    FileState& file = files_[next_file_];
    place(static_cast<uint32_t>(next_file_), file.next, whole, placed);
    file.next += align_up(bytes, block_bytes_);
    next_file_ = (next_file_ + 1) % files_.size();
    return placed;
}

void ExtentAllocator::place_contiguous(Extent extent, std::vector<Placed>& placed) const {
    auto base = std::lower_bound(bases_.begin(), bases_.end(), extent.rank,
                                 [](const Base& entry, uint32_t rank) { return entry.rank < rank; });
    INVARIANT(base != bases_.end() && base->rank == extent.rank);
    while (extent.bytes > 0) {
        const uint64_t chunk = extent.stream_offset / chunk_bytes_;
        const uint64_t within = extent.stream_offset % chunk_bytes_;
        const auto file = static_cast<uint32_t>(chunk % files_.size());
        Extent piece = extent;
        piece.bytes = std::min(extent.bytes, chunk_bytes_ - within);
        place(file, base->position[file] + chunk / files_.size() * chunk_bytes_ + within, piece, placed);
        extent.stream_offset += piece.bytes;
        extent.bytes -= piece.bytes;
    }
}

// Cuts `extent` where stripes end. It starts at `position` of the leader's own data.
void ExtentAllocator::place(uint32_t file, uint64_t position, Extent extent,
                            std::vector<Placed>& placed) const {
    while (extent.bytes > 0) {
        const StripePlace at = place_in_stripes(files_[file].header, leader_, position);
        Extent piece = extent;
        piece.bytes = std::min(extent.bytes, at.run_bytes);
        INVARIANT(piece.bytes > 0);  // otherwise this would go on for ever
        piece.file_offset = at.file_offset;
        placed.push_back({file, piece});
        position += piece.bytes;
        extent.stream_offset += piece.bytes;
        extent.bytes -= piece.bytes;
    }
}

uint64_t ExtentAllocator::file_end(uint32_t file) const {
    INVARIANT(file < files_.size());
    return end_in_file(files_[file].header, leader_, files_[file].next);
}

uint64_t expected_file_bytes(const FlushPlan& plan, uint32_t file) {
    const SharedHeader header = plan.header(file);
    const uint64_t leader_count = plan.leaders.size();
    const uint32_t relative = file - plan.group.first_file;
    uint64_t end = data_offset(header);
    if (plan.placement == Placement::contiguous) {
        for (uint32_t leader = 0; leader < leader_count; ++leader)
            end = std::max(end, ExtentAllocator(plan, leader).file_end(relative));
        return end;
    }

    uint64_t padded = 0;
    uint64_t chunks = 0;
    for (const NodeOffer& offer : plan.offers) {
        padded += padded_bytes(offer, plan.block_bytes);
        chunks += chunk_count(offer, plan.chunk_bytes);
    }
    if (leader_count == 1) {
        // Chunks go to the files in turn. So this file gets its share of them, and each chunk is
        // full at most.
        const uint64_t file_count = plan.group.file_count();
        const uint64_t share = chunks / file_count + (relative < chunks % file_count ? 1 : 0);
        return end_in_file(header, 0, std::min(padded, share * plan.chunk_bytes));
    }
    const uint64_t share = align_up((padded + leader_count - 1) / leader_count, plan.block_bytes);
    for (uint32_t leader = 0; leader < leader_count; ++leader)
        end = std::max(end, end_in_file(header, leader, share));
    return end;
}

}  // namespace tailrace::internal
