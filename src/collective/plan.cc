#include "collective/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/invariant.h"
#include "base/units.h"

namespace tailrace::internal::collective {

namespace {

uint64_t divide_up(uint64_t value, uint64_t divisor) {
    return (value + divisor - 1) / divisor;
}

// Whether ranges of ranks overlap in the file. Otherwise each rank has a part of its own.
bool interleaved(const std::vector<RankSummary>& ranks) {
    std::vector<FileWindow> ranges;
    for (const RankSummary& rank : ranks)
        if (rank.list.bytes > 0) ranges.push_back({rank.list.begin, rank.list.end});
    std::sort(ranges.begin(), ranges.end(),
              [](const FileWindow& a, const FileWindow& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < ranges.size(); ++i)
        if (ranges[i].begin < ranges[i - 1].end) return true;
    return false;
}

// Decision::begins. Empty if one part is much larger than the others, because its node would have
// to write alone.
std::vector<uint64_t> parts_of_nodes(const Topology& topology, const std::vector<RankSummary>& ranks) {
    const uint64_t nodes = topology.ranks_of_node.size();
    std::vector<uint64_t> begins;
    uint64_t end = 0, largest = 0, all = 0;
    for (const std::vector<int>& node : topology.ranks_of_node) {
        std::vector<RankSummary> its;
        for (const int rank : node) its.push_back(ranks[static_cast<size_t>(rank)]);
        const FileWindow range = accessed_range(its);
        if (range.bytes() == 0) {
            begins.push_back(end);
            continue;
        }
        if (range.begin < end) return {};
        begins.push_back(range.begin);
        end = range.end;
        largest = std::max(largest, range.bytes());
        all += range.bytes();
    }
    if (largest * nodes > all + all / 2) return {};
    begins.erase(begins.begin());
    return begins;
}

// Laid beside the requests, the bytes of a small write need no message within the node. They leave
// the node in one message for each global aggregator, instead of one of every rank.
bool small_write(const std::vector<RankSummary>& ranks) {
    return std::any_of(ranks.begin(), ranks.end(),
                       [](const RankSummary& rank) { return rank.shares_bytes; }) &&
           std::all_of(ranks.begin(), ranks.end(),
                       [](const RankSummary& rank) { return rank.list.bytes <= small_write_bytes; });
}

}  // namespace

std::vector<int> spread_out(int ranks, int chosen) {
    INVARIANT(1 <= chosen && chosen <= ranks);
    const int small = ranks / chosen, larger = ranks % chosen;
    std::vector<int> local;
    for (int i = 0; i < chosen; ++i) local.push_back(small * i + std::min(i, larger));
    return local;
}

std::vector<int> Groups::members(int aggregator) const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < aggregator_of_rank.size(); ++rank)
        if (aggregator_of_rank[rank] == aggregator) ranks.push_back(static_cast<int>(rank));
    return ranks;
}

Groups make_groups(const Topology& topology, int per_node, const std::vector<bool>& has_shared_memory) {
    Groups groups;
    groups.aggregator_of_rank.resize(topology.node_of_rank.size());
    for (size_t node = 0; node < topology.ranks_of_node.size(); ++node) {
        const std::vector<int>& ranks = topology.ranks_of_node[node];
        const int count = static_cast<int>(ranks.size());
        const bool alone = per_node <= 0 || !has_shared_memory[node];
        const std::vector<int> chosen = spread_out(count, alone ? count : std::min(per_node, count));
        for (size_t i = 0; i < chosen.size(); ++i) {
            const int aggregator = ranks[static_cast<size_t>(chosen[i])];
            const int next = i + 1 < chosen.size() ? chosen[i + 1] : count;
            groups.aggregators.push_back(aggregator);
            for (int local = chosen[i]; local < next; ++local)
                groups.aggregator_of_rank[static_cast<size_t>(ranks[static_cast<size_t>(local)])] =
                    aggregator;
        }
    }
    std::sort(groups.aggregators.begin(), groups.aggregators.end());
    return groups;
}

std::vector<int> choose_global_aggregators(const Topology& topology, int count) {
    const int nodes = topology.node_count();
    const int ranks = static_cast<int>(topology.node_of_rank.size());
    if (count <= 0) count = nodes;
    count = std::min(count, ranks);
    std::vector<int> chosen;
    if (count <= nodes) {
        for (int i = 0; i < count; ++i) {
            const auto node = static_cast<int64_t>(i) * nodes / count;
            chosen.push_back(topology.representative(static_cast<int>(node)));
        }
        return chosen;
    }
    // In rounds each node gets one until all are dealt out. Full nodes are passed over.
    std::vector<int> shares(static_cast<size_t>(nodes));
    for (int left = count; left > 0;) {
        for (size_t node = 0; node < shares.size() && left > 0; ++node) {
            if (shares[node] == static_cast<int>(topology.ranks_of_node[node].size())) continue;
            ++shares[node];
            --left;
        }
    }
    for (size_t node = 0; node < shares.size(); ++node) {
        const std::vector<int>& local_ranks = topology.ranks_of_node[node];
        for (const int local : spread_out(static_cast<int>(local_ranks.size()), shares[node]))
            chosen.push_back(local_ranks[static_cast<size_t>(local)]);
    }
    return chosen;
}

std::vector<int> choose_global_aggregators(const Topology& topology, int count, int stripes) {
    std::vector<int> chosen = choose_global_aggregators(topology, count);
    const int found = static_cast<int>(chosen.size());
    if (stripes <= 0 || found <= stripes || found % stripes == 0) return chosen;
    return choose_global_aggregators(topology, found / stripes * stripes);
}

Domains::Domains(const FileWindow& range, int owners, const DomainSettings& settings,
                 std::vector<uint64_t> begins)
    : range_(range), owners_(owners) {
    INVARIANT(owners > 0 && settings.align_bytes > 0 && settings.window_bytes % settings.align_bytes == 0);
    const auto count = static_cast<uint64_t>(owners);
    base_ = range.begin / settings.align_bytes * settings.align_bytes;
    uint64_t part_alignment = settings.align_bytes;
    if (settings.layout == Layout::group_cyclic) {
        const bool whole_groups = settings.stripes > 0 && owners % settings.stripes == 0;
        group_owners_ = whole_groups ? settings.stripes : owners;
        window_bytes_ = settings.align_bytes;
        // In every call, stripe i of the file belongs to the same owner of a group.
        part_alignment = window_bytes_ * static_cast<uint64_t>(group_owners_);
        base_ = range.begin / part_alignment * part_alignment;
    } else {
        group_owners_ = settings.layout == Layout::contiguous ? 1 : owners;
        const uint64_t bytes = range.end - base_;
        uint64_t share = align_up(std::max<uint64_t>(divide_up(bytes, count), 1), settings.align_bytes);
        if (!begins.empty()) {
            INVARIANT(group_owners_ == 1 && begins.size() + 1 == count);
            begins_ = {base_};
            for (const uint64_t begin : begins)
                begins_.push_back(std::max(base_, begin / settings.align_bytes * settings.align_bytes));
            share = 1;
            for (uint64_t group = 0; group < count; ++group) share = std::max(share, part(group).bytes());
            share = align_up(share, settings.align_bytes);
        }
        const uint64_t small_enough =
            align_up(std::max(divide_up(share, least_rounds), least_window_bytes), settings.align_bytes);
        window_bytes_ = std::min({settings.window_bytes, small_enough, share});
    }
    const uint64_t bytes = range.end - base_;
    const uint64_t groups = count / static_cast<uint64_t>(group_owners_);
    part_bytes_ = align_up(std::max<uint64_t>(divide_up(bytes, groups), 1), part_alignment);
    uint64_t largest = part_bytes_;
    if (!begins_.empty()) {
        largest = 1;
        for (uint64_t group = 0; group < groups; ++group) largest = std::max(largest, part(group).bytes());
    }
    rounds_ =
        bytes == 0 ? 0 : divide_up(divide_up(largest, window_bytes_), static_cast<uint64_t>(group_owners_));
}

FileWindow Domains::part(uint64_t group) const {
    if (begins_.empty()) return {base_ + group * part_bytes_, base_ + (group + 1) * part_bytes_};
    return {begins_[group], group + 1 < begins_.size() ? begins_[group + 1] : range_.end};
}

uint64_t Domains::group_of(uint64_t offset) const {
    if (begins_.empty()) return (offset - base_) / part_bytes_;
    return static_cast<uint64_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) -
           1;
}

FileWindow Domains::window(uint64_t id) const {
    const auto each = static_cast<uint64_t>(group_owners_);
    const auto owner_of_it = static_cast<uint64_t>(owner(id));
    const FileWindow its = part(owner_of_it / each);
    const uint64_t first = its.begin + (round(id) * each + owner_of_it % each) * window_bytes_;
    const uint64_t begin = std::clamp(std::min(first, its.end), range_.begin, range_.end);
    const uint64_t end = std::clamp(std::min(first + window_bytes_, its.end), range_.begin, range_.end);
    return {begin, end};
}

uint64_t Domains::window_of(uint64_t offset) const {
    INVARIANT(range_.begin <= offset && offset < range_.end);
    const auto each = static_cast<uint64_t>(group_owners_);
    const uint64_t group = group_of(offset);
    const uint64_t within = (offset - part(group).begin) / window_bytes_;
    return within / each * static_cast<uint64_t>(owners_) + group * each + within % each;
}

bool Domains::may_touch(const FileWindow& range, int owner) const {
    if (range.begin >= range.end) return false;
    const auto each = static_cast<uint64_t>(group_owners_), place = static_cast<uint64_t>(owner);
    // The part of the range that belongs to the owner's group, as windows of that part.
    const FileWindow its = part(place / each);
    const uint64_t begin = std::max(range.begin, its.begin), end = std::min(range.end, its.end);
    if (begin >= end) return false;
    const uint64_t first = (begin - its.begin) / window_bytes_, last = (end - 1 - its.begin) / window_bytes_;
    // The first window from `first` on that is the owner's.
    return first + (place % each + each - first % each) % each <= last;
}

std::vector<uint64_t> windows_of(const RequestList& list, const Domains& domains) {
    std::vector<uint64_t> ids;
    const std::span<const Request> all = list.all();
    uint64_t done = 0;  // windows up to this offset of the file are in `ids`
    for (size_t at = 0; at < all.size();) {
        for (uint64_t offset = std::max(all[at].offset, done); offset < all[at].end();) {
            const uint64_t id = domains.window_of(offset);
            ids.push_back(id);
            done = offset = domains.window(id).end;
        }
        // The next request that reaches further. The search gallops, because many small requests
        // share a window.
        size_t step = 1;
        ++at;
        if (list.overlapping()) continue;
        while (at + step < all.size() && all[at + step].end() <= done) {
            at += step;
            step *= 2;
        }
        at = static_cast<size_t>(
            std::partition_point(
                all.begin() + static_cast<std::ptrdiff_t>(at),
                all.begin() + static_cast<std::ptrdiff_t>(std::min(at + step + 1, all.size())),
                [&](const Request& request) { return request.end() <= done; }) -
            all.begin());
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

FileWindow accessed_range(const std::vector<RankSummary>& ranks) {
    FileWindow range{UINT64_MAX, 0};
    for (const RankSummary& rank : ranks) {
        if (rank.list.bytes == 0) continue;
        range.begin = std::min(range.begin, rank.list.begin);
        range.end = std::max(range.end, rank.list.end);
    }
    return range.end == 0 ? FileWindow{} : range;
}

Decision decide(const Topology& topology, const std::vector<RankSummary>& ranks, const Settings& settings) {
    uint64_t requests = 0, bytes = 0;
    for (const RankSummary& rank : ranks) {
        requests += rank.list.requests;
        bytes += rank.list.bytes;
    }
    if (bytes == 0) return {Way::nothing, "no rank asks for a byte"};
    const uint64_t mean = bytes / requests;
    const std::string sizes = fmt::format("{} {} of {} on average", requests,
                                          requests == 1 ? "request" : "requests", format_bytes(mean));

    if (settings.exchange == Exchange::never) return {Way::direct, "exchange is switched off"};

    size_t most_ranks = 0;
    for (const std::vector<int>& node : topology.ranks_of_node)
        most_ranks = std::max(most_ranks, node.size());
    std::vector<uint64_t> begins;
    if (settings.domains.layout == Layout::contiguous && settings.global_aggregators == 0)
        begins = parts_of_nodes(topology, ranks);
    const auto exchange = [&](Way way, std::string reason, int local_aggregators_per_node = 0) {
        return Decision{way, std::move(reason), local_aggregators_per_node, begins};
    };

    const bool few = settings.local_file_system && std::all_of(ranks.begin(), ranks.end(), [](auto& rank) {
                         return rank.list.requests <= few_requests;
                     });
    if (settings.exchange == Exchange::automatic && settings.local_aggregators_per_node == 0 &&
        (few || mean >= direct_request_bytes) && !interleaved(ranks)) {
        const bool detour = begins.empty() || most_ranks == 1;
        if (settings.local_file_system || mean >= remote_direct_request_bytes || detour)
            return {Way::direct, sizes + ", each rank in a part of the file of its own"};
        return exchange(Way::two_phase, sizes + ", each node in a part of the file of its own");
    }

    if (most_ranks == 1) return exchange(Way::two_phase, "no node has more than one rank");
    const bool shared =
        std::all_of(ranks.begin(), ranks.end(), [](const RankSummary& rank) { return rank.has_shared_list; });
    if (!shared)
        return exchange(Way::two_phase,
                        "some rank has no memory in which to share its requests with its node");

    const int wanted = settings.local_aggregators_per_node;
    if (wanted < 0) return exchange(Way::two_phase, "every rank is its own local aggregator, as asked for");
    if (wanted > 0) {
        if (static_cast<size_t>(wanted) >= most_ranks)
            return exchange(Way::two_phase, "no node has more ranks than local aggregators");
        return exchange(Way::two_layer, fmt::format("{} local aggregators per node, as asked for", wanted),
                        wanted);
    }
    const bool small = small_write(ranks);
    if (mean >= large_request_bytes && !small)
        return exchange(Way::two_phase, sizes + ": few and large, a first layer would only copy");
    const auto per_node =
        static_cast<int>(divide_up(most_ranks, static_cast<uint64_t>(most_ranks_per_aggregator)));
    const bool large = mean >= large_request_bytes;
    return exchange(Way::two_layer,
                    sizes + (large ? ": a small write, one message per node" : ": many and small"), per_node);
}

}  // namespace tailrace::internal::collective
