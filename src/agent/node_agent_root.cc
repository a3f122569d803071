// NodeAgent at rank 0's node: gives the news to the RootLedger, and carries out its orders.
#include <fmt/format.h>

#include "agent/node_agent.h"
#include "agent/node_protection.h"
#include "base/invariant.h"
#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace::internal {

void NodeAgent::to_root(const AgentMessage& message) {
    if (root_)
        root_input(message);
    else
        post(root, message);
}

void NodeAgent::root_input(const AgentMessage& message) {
    if (const auto* news = std::get_if<NodeCaptured>(&message))
        if (const Status taken = root_->captured(*news); !taken.ok()) return note_failure(taken);
    if (recorder_) recorder_->hear(message);
    if (const auto* safe = std::get_if<NodeProtected>(&message)) root_->node_protected(*safe);
    if (const auto* result = std::get_if<GroupResult>(&message)) root_->result(*result);
    if (const auto* prepared = std::get_if<NodePrepared>(&message)) root_->prepared(*prepared);
    if (const auto* saves = std::get_if<SavesEnded>(&message))
        root_->end_from(saves->sequence, saves_ended_why());
    if (const auto* stop = std::get_if<StopAsked>(&message)) on_stop_asked(*stop);
    carry_out_orders();
}

void NodeAgent::carry_out_orders() {
    for (const auto& order : root_->take_orders()) {
        if (const auto* decision = std::get_if<Decision>(&order)) {
            // With queue policy wait every node starts by itself.
            if (context_.config.queue_policy == QueuePolicy::wait) continue;
            post_to_agents(*decision);
            on_decision(*decision);
        } else if (const auto* to_judge = std::get_if<JudgeArrays>(&order)) {
            commit_checks_.judge(*to_judge);
        } else if (const auto* may_commit = std::get_if<MayCommit>(&order)) {
            post_to_agents(*may_commit);
            aggregator_->allow(may_commit->key);
        } else if (const auto* fit = std::get_if<ArraysFit>(&order)) {
            post_to_agents(*fit);
            plans_.arrays_fit(fit->key);
        } else if (const auto* safe = std::get_if<EpochProtected>(&order)) {
            auto news = *safe;
            news.losses = losses_survived(context_);
            report_protected(context_, news);
            post_to_agents(news);
            on_epoch_protected(news);
        } else {
            const auto& ended = std::get<EpochEnded>(order);
            if (recorder_) recorder_->hear(AgentMessage(ended));
            commit_checks_.forget(ended.key);
            if (ended.state == EpochState::committed)
                commit(ended);
            else
                announce(ended);
        }
    }
    finisher_.remove_leftovers(root_->take_leftovers());
}

void NodeAgent::announce(const EpochEnded& ended) {
    INVARIANT(root_ && is_final(ended.state));
    if (ended.state == EpochState::failed)
        log(LogLevel::warning, "{} did not reach {}: {}", to_string(ended.key), context_.config.shared_dir,
            ended.why.message());
    post_to_agents(ended);
    on_ended(ended);
}

void NodeAgent::post_to_agents(const AgentMessage& message) {
    for (int node = 1; node < context_.node_count(); ++node)
        post(context_.topology.representative(node), message);
}

void NodeAgent::post_to_node(int node, const AgentMessage& message) {
    post(context_.topology.representative(node), message);
}

std::vector<PartPlace> NodeAgent::parts_of(EpochKey key) {
    std::vector<PartPlace> parts;
    for (const auto& capture : epochs_[key].captures) parts.push_back({key, capture.path});
    return parts;
}

void NodeAgent::on_verdict(EpochKey key, const Status& verdict) {
    root_->judged(key, verdict);
    carry_out_orders();
}

void NodeAgent::on_prepared(EpochKey key, const Status& prepared) {
    to_root(NodePrepared{key, context_.node, prepared.with_context(fmt::format("node {}", context_.node))});
}

void NodeAgent::commit(const EpochEnded& committed) {
    INVARIANT(root_ && committed.state == EpochState::committed);
    {
        MutexLock lock(mutex_);
        open_.insert(committed.key);
    }
    finisher_.commit(committed, [this](const EpochEnded& ended) {
        {
            MutexLock lock(mutex_);
            named_.push_back(ended);
        }
        context_.transport->wake();
    });
}

}  // namespace tailrace::internal
