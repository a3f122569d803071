// NodeAgent, the steps before a commit. No epoch is committed, or kept, that cannot be restored.
//
//   1. The root has every node's digest (NodeCaptured). If the combined digest is that of the last
//      epoch that was found good, this epoch is good, too. So a program that registers the same
//      arrays as before pays 16 bytes for each node and epoch.
//   2. Otherwise the root asks all agents. Each agent reads the tables of its node's parts in a
//      thread of its own, adds what the two branches below it answer, and passes that on. Node n
//      stands below node (n - 1) / 2. So the root receives two answers, whatever the number of
//      nodes.
//   3. The root judges (array_judge.h). It asks another question, or has the verdict. If the
//      verdict is bad, the epoch fails and its captured parts are removed.
//   4. Beside the flush, every agent reads its node's captured parts, compares their checksums, and
//      tells the root. If a part is not sound, the epoch fails as well.
//   5. When the verdict is good and all nodes' parts are sound, every agent lets its leaders write
//      their slots.
//
// Questions end with their epoch: then nobody answers any more, and what was gathered is dropped.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agent/node_agent.h"
#include "agent/node_aggregator.h"
#include "base/log.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

int above(int node) {
    return (node - 1) / 2;
}
size_t branches(int node, int nodes) {
    return static_cast<size_t>(std::clamp(nodes - (2 * node + 1), 0, 2));
}

}  // namespace

// ---- at the root --------------------------------------------------------------------------------

void NodeAgent::judge(const JudgeArrays& order) {
    const Residues digest = context_.points.combine(order.arrays);
    if (digest == Residues{} || digest == good_arrays_) return on_verdict(order.key, Status());
    judging_[order.key] = {{}, digest};
    ask(order.key, {});
}

void NodeAgent::ask(EpochKey key, const ArrayQuestion& question) {
    const ArraysAsked asked{key, question};
    judging_[key].asked = question;
    post_to_agents(asked);
    on_asked(asked);
}

void NodeAgent::on_verdict(EpochKey key, const Status& verdict) {
    if (const auto judged = judging_.find(key); judged != judging_.end()) {
        if (verdict.ok()) good_arrays_ = judged->second.digest;
        judging_.erase(judged);
    }
    root_->judged(key, verdict);
    carry_out_orders();
}

// ---- at every node ------------------------------------------------------------------------------

void NodeAgent::on_asked(const ArraysAsked& asked) {
    const auto& epoch = epochs_[asked.key];
    if (epoch.ended) return;
    std::vector<PartPlace> parts;
    for (const auto& capture : epoch.captures) parts.push_back({asked.key, capture.path});
    reading_.add([this, asked, parts = std::move(parts)] {
        ArraysAnswered own{asked.key,
                           facts_of_parts(*context_.local, context_.points, asked.question, parts)};
        {
            MutexLock lock(mutex_);
            facts_.push_back(std::move(own));
        }
        context_.transport->wake();
    });
}

bool NodeAgent::take_facts() {
    std::deque<ArraysAnswered> own;
    {
        MutexLock lock(mutex_);
        own.swap(facts_);
    }
    for (auto& one : own) on_facts(one.key, std::move(one.facts));
    return !own.empty();
}

// Facts come from this node or from a branch below it. A branch may answer before this node does.
void NodeAgent::on_facts(EpochKey key, ArrayFacts facts) {
    auto& epoch = epochs_[key];
    if (epoch.ended) return;
    epoch.inquiry.facts.merge(std::move(facts));
    const size_t expected = 1 + branches(context_.node, context_.node_count());
    if (++epoch.inquiry.answers < expected) return;
    ArraysAnswered whole{key, std::exchange(epoch.inquiry, {}).facts};
    if (!root_) return post(context_.topology.representative(above(context_.node)), whole);
    const auto judged = judging_.find(key);
    if (judged == judging_.end()) return;
    const auto answer = judge_arrays(judged->second.asked, std::move(whole.facts),
                                     static_cast<uint32_t>(context_.rank_count()));
    if (answer.verdict)
        on_verdict(key, *answer.verdict);
    else
        ask(key, answer.next);
}

void NodeAgent::on_may_commit(const MayCommit& may_commit) {
    aggregator_->allow(may_commit.key);
}

void NodeAgent::verify(EpochKey key, std::vector<PartPlace> parts) {
    reading_.add([this, key, parts = std::move(parts)] {
        const Status verified = verify_before_commit(context_, parts);
        {
            MutexLock lock(mutex_);
            verified_.emplace_back(key, verified);
        }
        context_.transport->wake();
    });
}

bool NodeAgent::take_verified() {
    std::deque<std::pair<EpochKey, Status>> verified;
    {
        MutexLock lock(mutex_);
        verified.swap(verified_);
    }
    for (const auto& [key, status] : verified) on_verified(key, status);
    return !verified.empty();
}

void NodeAgent::on_verified(EpochKey key, const Status& verified) {
    to_root(PartsVerified{key, verified.with_context(fmt::format("node {}", context_.node))});
}

// No restore may find a part of an epoch that cannot be restored, and the next session must not
// flush it.
void NodeAgent::remove_refused(const Epoch& epoch) {
    for (const auto& capture : epoch.captures) {
        const Status removed = context_.local->remove(capture.path);
        if (!removed.ok() && removed.code() != Code::not_found)
            log(LogLevel::warning, "a captured part of {}, which was refused, could not be removed: {}",
                to_string(capture.key), removed.message());
    }
}

}  // namespace tailrace::internal
