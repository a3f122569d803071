#include "flush/flush_job.h"

#include <fmt/format.h>

#include <algorithm>

namespace tailrace::internal {

Status check_fits(const FlushPlan& plan, const FlushJob& job, const Group& group, int node,
                  const PlanSettings& settings) {
    const Status other(Code::failed_state,
                       fmt::format("the plan of {} has other nodes, files or buffers than this node's "
                                   "configuration",
                                   to_string(plan.key)));
    if (plan.group != group) return other;
    TAILRACE_ASSIGN(const auto expected,
                    make_plan(job.job, job.key, job.run_uid, job.rank_count, group, plan.offers, settings));
    if (!(plan == expected)) return other;
    return check_own_offer(plan, job, node);
}

Status check_own_offer(const FlushPlan& plan, const FlushJob& job, int node) {
    std::vector<StreamInfo> own;
    for (const auto& stream : job.streams) own.push_back(stream.info);
    std::sort(own.begin(), own.end(),
              [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
    const NodeOffer expected{node, std::move(own)};
    if (std::find(plan.offers.begin(), plan.offers.end(), expected) != plan.offers.end()) return {};
    return Status(Code::failed_state,
                  fmt::format("the plan of {} has other streams of node {} than it has captured",
                              to_string(plan.key), node));
}

}  // namespace tailrace::internal
