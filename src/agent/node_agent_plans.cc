// NodeAgent: how the plan records of a node come about (plan_keeper.h).
//
// A flush makes a plan, which tells all nodes of a group what each of them brings. Where an epoch is kept
// in the node-local tier, the nodes tell the first one of their group instead, and it tells the others.
#include <algorithm>

#include "agent/node_agent.h"
#include "agent/node_protection.h"
#include "threads/mutex.h"

namespace tailrace::internal {

Group NodeAgent::own_group() const {
    return group_of_node(context_.node, context_.node_count(), context_.config.files);
}

// A node of the same group has this plan already.
void NodeAgent::on_planned(EpochKey key, const std::vector<NodeOffer>& offers) {
    const auto keeper = copy_keeper_of_node(context_);
    if (keeper && !in_one_group(context_, context_.node, *keeper) &&
        epochs_[key].protection == Protection::done)
        post_to_node(*keeper, PlanToKeep{key, offers});
}

// An epoch that is kept local gets a plan record as well, and no flush tells the nodes of a group what
// each of them brings. As before a flush, its protection comes first.
void NodeAgent::offer_local(EpochKey key, Epoch& epoch) {
    if (!epoch.complete || epoch.flush.value_or(true) || epoch.protection == Protection::running ||
        epoch.local_plan != LocalPlan::none)
        return;
    if (epoch.ended && !epoch.ended->parts_stay()) return;
    epoch.local_plan = LocalPlan::offered;
    NodeOffered news{key, {context_.node, {}}};
    for (const auto& capture : epoch.captures)
        news.offer.streams.push_back(shared_stream(capture.stream, capture.apart_bytes));
    std::sort(news.offer.streams.begin(), news.offer.streams.end(),
              [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
    if (own_group().first_node == context_.node)
        on_offered(news);
    else
        post_to_node(own_group().first_node, news);
}

void NodeAgent::on_offered(const NodeOffered& news) {
    const auto group = own_group();
    const auto& ended = epochs_[news.key].ended;
    if (group.first_node != context_.node || !in_one_group(context_, context_.node, news.offer.node) ||
        (ended && !ended->parts_stay()))
        return;
    auto all = plans_.offered(news.key, news.offer, static_cast<size_t>(group.node_count()));
    if (!all) return;
    const GroupOffered to_all{news.key, std::move(*all)};
    for (int node = group.first_node + 1; node < group.last_node; ++node) post_to_node(node, to_all);
    on_group_offered(to_all);
}

void NodeAgent::on_group_offered(const GroupOffered& news) {
    auto& epoch = epochs_[news.key];
    epoch.local_plan = LocalPlan::known;
    if (epoch.ended && !epoch.ended->parts_stay()) return;
    plans_.planned_local(news.key, news.offers);
    on_planned(news.key, news.offers);
    if (!epoch.final()) return;
    MutexLock lock(mutex_);
    open_.erase(news.key);
    changed_.notify_all();
}

// It may come after the news that the epoch has ended.
void NodeAgent::on_plan_to_keep(const PlanToKeep& plan, int source) {
    const int node = context_.topology.node_of_rank[static_cast<size_t>(source)];
    const auto& ended = epochs_[plan.key].ended;
    if ((!ended || ended->parts_stay()) && node_with_copy_here(context_) == node)
        plans_.planned_for(plan.key, node, plan.offers);
}

}  // namespace tailrace::internal
