#include "flush/recorded_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"

namespace tailrace::internal {

Result<FlushPlan> make_solo_plan(const std::string& job, EpochKey key, uint64_t run_uid, uint32_t rank_count,
                                 const Group& group, std::vector<NodeOffer> offers, PlanSettings settings) {
    settings.leaders_per_file = static_cast<uint32_t>(group.node_count());
    settings.placement = Placement::contiguous;
    std::sort(offers.begin(), offers.end(),
              [](const NodeOffer& a, const NodeOffer& b) { return a.node < b.node; });
    TAILRACE_ASSIGN(auto plan, make_plan(job, key, run_uid, rank_count, group, std::move(offers), settings));
    if (plan.leaders.size() < static_cast<size_t>(group.node_count()))
        return Status(Code::unsupported,
                      fmt::format("{}: {} nodes would have to lead one file, but at most {} can: ask for "
                                  "more files",
                                  to_string(key), group.node_count(), max_leaders_per_file));
    return plan;
}

PlanRecord record_plan(const FlushPlan& solo_plan, uint64_t buffer_bytes, const NodePlace& place) {
    const auto header = solo_plan.header(solo_plan.group.first_file);
    PlanRecord record;
    record.job = solo_plan.job;
    record.key = solo_plan.key;
    record.run_uid = solo_plan.run_uid;
    record.rank_count = solo_plan.rank_count;
    record.shared_dir = place.shared_dir;
    record.node = static_cast<uint32_t>(place.node);
    record.node_count = static_cast<uint32_t>(place.hosts.size());
    record.file_count = solo_plan.file_count;
    record.keep_shared = place.keep_shared;
    record.file_rights = place.file_rights;
    record.block_bytes = solo_plan.block_bytes;
    record.buffer_bytes = buffer_bytes;
    record.stripe_align = solo_plan.stripe_align;
    record.index_area_bytes = header.index_area_bytes;
    record.stripe_bytes = header.stripe_bytes;
    record.first_node = static_cast<uint32_t>(solo_plan.group.first_node);
    for (const auto& offer : solo_plan.offers) {
        const int leader = solo_plan.leader_index(offer.node);
        INVARIANT(leader >= 0);
        record.nodes.push_back({static_cast<uint32_t>(leader),
                                place.hosts[static_cast<size_t>(offer.node)].substr(0, max_host_bytes),
                                offer.streams});
    }
    return record;
}

Result<FlushPlan> recorded_plan(const PlanRecord& record) {
    const auto group =
        group_of_node(static_cast<int>(record.node), static_cast<int>(record.node_count), record.file_count);
    const auto another = [&](const char* what) {
        return Status(Code::unsupported,
                      fmt::format("the plan record of {} was made by a version of tailrace that gives it "
                                  "another {}; a session of the program flushes the epoch",
                                  to_string(record.key), what));
    };
    if (static_cast<uint32_t>(group.first_node) != record.first_node ||
        static_cast<size_t>(group.node_count()) != record.nodes.size())
        return another("group of nodes");
    PlanSettings settings;
    settings.file_count = record.file_count;
    settings.chunk_bytes = record.buffer_bytes;
    settings.block_bytes = record.block_bytes;
    settings.stripe_align = record.stripe_align;
    std::vector<NodeOffer> offers;
    for (size_t i = 0; i < record.nodes.size(); ++i)
        offers.push_back({group.first_node + static_cast<int>(i), record.nodes[i].streams});
    if (settings.block_bytes == 0 || settings.chunk_bytes == 0) return another("size of blocks");
    TAILRACE_ASSIGN(auto plan, make_solo_plan(record.job, record.key, record.run_uid, record.rank_count,
                                              group, std::move(offers), settings));
    const auto header = plan.header(group.first_file);
    if (header.index_area_bytes != record.index_area_bytes || header.stripe_bytes != record.stripe_bytes)
        return another("layout");
    for (size_t i = 0; i < record.nodes.size(); ++i)
        if (plan.leader_index(plan.offers[i].node) != static_cast<int>(record.nodes[i].leader))
            return another("order of leaders");
    return plan;
}

}  // namespace tailrace::internal
