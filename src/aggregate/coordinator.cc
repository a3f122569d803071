#include "aggregate/coordinator.h"

#include <fmt/format.h>

#include "base/invariant.h"

namespace tailrace::internal {

void Coordinator::take(int node, const OfferMessage& message) {
    const EpochKey key = message.key;
    if (ended_.has(key)) return;  // it failed before this offer came, and the sender was told
    Epoch& epoch = epochs_[key];
    if (epoch.stage != Stage::collecting) return;
    if (message.offer.node != node || node < group_.first_node || node >= group_.last_node) {
        return fail(
            key, epoch,
            Status(Code::failed_state,
                   fmt::format("{}: an offer of node {} came from node {}, but the group has nodes {} "
                               "to {}",
                               to_string(key), message.offer.node, node, group_.first_node,
                               group_.last_node - 1)));
    }
    if (!message.refused.ok())
        return fail(key, epoch, message.refused.with_context(fmt::format("node {}", node)));
    if (!epoch.offers.empty()) {
        const auto& [other_node, other] = *epoch.offers.begin();
        if (other.job != message.job || other.run_uid != message.run_uid ||
            other.rank_count != message.rank_count) {
            return fail(
                key, epoch,
                Status(Code::failed_state,
                       fmt::format("{}: nodes {} and {} do not belong to the same run (\"{}\" with {} "
                                   "ranks, \"{}\" with {})",
                                   to_string(key), other_node, node, other.job, other.rank_count, message.job,
                                   message.rank_count)));
        }
    }
    epoch.offers.emplace(node, message);
    if (epoch.offers.size() == static_cast<size_t>(group_.node_count())) make_plan_of(key, epoch);
}

void Coordinator::make_plan_of(EpochKey key, Epoch& epoch) {
    INVARIANT(epoch.stage == Stage::collecting && !epoch.plan);
    const OfferMessage first = epoch.offers.begin()->second;
    std::vector<NodeOffer> offers;
    for (auto& [node, offer] : epoch.offers) offers.push_back(std::move(offer.offer));
    epoch.offers.clear();
    auto plan =
        make_plan(first.job, key, first.run_uid, first.rank_count, group_, std::move(offers), settings_);
    if (!plan.ok()) return fail(key, epoch, plan.status());
    epoch.plan = std::make_shared<const FlushPlan>(std::move(plan).value());
    epoch.working.insert(epoch.plan->leaders.begin(), epoch.plan->leaders.end());
    INVARIANT(!epoch.working.empty());
    epoch.stage = Stage::running;
    tell_all(PlanMessage{*epoch.plan});
}

void Coordinator::take(int node, const SegmentMessage& message) {
    auto found = epochs_.find(message.key);
    if (found == epochs_.end()) return;
    Epoch& epoch = found->second;
    if (epoch.working.erase(node) == 0) return;  // not a leader, or it has reported before
    epoch.written.add(message.written);
    if (!message.status.ok()) fail(message.key, epoch, message.status);
    check_all_reported(message.key, epoch);
}

void Coordinator::check_all_reported(EpochKey key, Epoch& epoch) {
    if (!epoch.working.empty()) return;
    INVARIANT(epoch.plan && epoch.stage != Stage::collecting);
    if (const auto all = all_chunks(*epoch.plan); epoch.stage == Stage::running && epoch.written != all)
        fail(key, epoch,
             Status(Code::failed_state,
                    fmt::format("{}: the leaders of group {} have written {} of {} bytes{}", to_string(key),
                                group_.index, epoch.written.bytes, all.bytes,
                                epoch.written.bytes == all.bytes ? ", but not those of the plan" : "")));
    if (epoch.stage == Stage::running) {
        end(key, Status());
    } else if (epoch.stage == Stage::aborting) {
        epoch.stage = Stage::discarding;
        effects_.discard(epoch.plan);
    }
}

void Coordinator::take(const FailedMessage& message) {
    if (ended_.has(message.key) || message.why.ok()) return;
    Epoch& epoch = epochs_[message.key];
    fail(message.key, epoch, message.why);
}

// The first failure counts. Later ones change nothing, nor do those that come when all is
// committed.
void Coordinator::fail(EpochKey key, Epoch& epoch, const Status& why) {
    if (epoch.stage == Stage::collecting) return end(key, Status(why));
    if (epoch.stage != Stage::running) return;
    epoch.failure = why;
    epoch.stage = Stage::aborting;
    tell_all(AbortMessage{key, why});
}

void Coordinator::discarded(EpochKey key) {
    auto found = epochs_.find(key);
    if (found == epochs_.end()) return;
    INVARIANT(found->second.stage == Stage::discarding && !found->second.failure.ok());
    end(key, Status(found->second.failure));
}

void Coordinator::end(EpochKey key, const Status& status) {
    INVARIANT(!ended_.has(key));  // a group hears one result of each epoch
    epochs_.erase(key);
    ended_.add(key);
    tell_all(ResultMessage{key, status});
}

void Coordinator::tell_all(const AggregatorMessage& message) {
    for (int node = group_.first_node; node < group_.last_node; ++node) effects_.tell(node, message);
}

}  // namespace tailrace::internal
