#include "agent/commit_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/flush_setup.h"
#include "base/invariant.h"

namespace tailrace::internal {

namespace {

int above(int node) {
    return (node - 1) / 2;
}
size_t branches(int node, int nodes) {
    return static_cast<size_t>(std::clamp(nodes - (2 * node + 1), 0, 2));
}

}  // namespace

void CommitChecks::begin(Priority priority, std::function<void()> thrown) {
    reading_.begin("tailrace reads", priority, std::move(thrown));
}

void CommitChecks::finish() {
    writing_originals_.close();
    reading_.finish();
}

// ---- at the root --------------------------------------------------------------------------------

void CommitChecks::judge(const JudgeArrays& order) {
    INVARIANT(context_.is_root());
    const Residues digest = context_.points.combine(order.arrays);
    if (digest == Residues{} || digest == good_arrays_) return conclude(order.key, Status());
    judging_[order.key] = {{}, digest};
    ask(order.key, {});
}

void CommitChecks::ask(EpochKey key, const ArrayQuestion& question) {
    const ArraysAsked asked{key, question};
    judging_[key].asked = question;
    agent_.post_to_agents(asked);
    on_asked(asked);
}

void CommitChecks::conclude(EpochKey key, const Status& verdict) {
    if (const auto judged = judging_.find(key); judged != judging_.end()) {
        if (verdict.ok()) good_arrays_ = judged->second.digest;
        judging_.erase(judged);
    }
    agent_.on_verdict(key, verdict);
}

// ---- at every node ------------------------------------------------------------------------------

void CommitChecks::on_asked(const ArraysAsked& asked) {
    if (agent_.has_ended(asked.key)) return;
    reading_.add([this, asked, parts = agent_.parts_of(asked.key)] {
        ArraysAnswered own{asked.key,
                           facts_of_parts(*context_.local, context_.points, asked.question, parts)};
        {
            MutexLock lock(mutex_);
            facts_.push_back(std::move(own));
        }
        context_.transport->wake();
    });
}

// A branch may answer before this node does, or has been asked.
Status CommitChecks::on_facts(int node, EpochKey key, ArrayFacts facts) {
    if (agent_.has_ended(key)) return {};
    const bool may_answer = node == context_.node || above(node) == context_.node;
    const bool asked = !context_.is_root() || judging_.contains(key);
    Inquiry& inquiry = inquiries_[key];
    if (!may_answer || !asked || !inquiry.nodes.insert(node).second)
        return Status(Code::transport,
                      fmt::format("node {} told node {} of the arrays of {} without being asked", node,
                                  context_.node, to_string(key)));
    inquiry.facts.merge(std::move(facts));
    const size_t expected = 1 + branches(context_.node, context_.node_count());
    if (inquiry.nodes.size() < expected) return {};
    ArraysAnswered whole{key, std::move(inquiry.facts)};
    inquiries_.erase(key);
    if (!context_.is_root()) {
        agent_.post_to_node(above(context_.node), whole);
        return {};
    }
    const auto answer = judge_arrays(judging_[key].asked, std::move(whole.facts),
                                     static_cast<uint32_t>(context_.rank_count()));
    if (answer.verdict)
        conclude(key, *answer.verdict);
    else
        ask(key, answer.next);
    return {};
}

void CommitChecks::prepare(EpochKey key, std::vector<PartPlace> parts) {
    reading_.add([this, key, parts = std::move(parts)] {
        Status prepared = prepare_commit(context_, parts, writing_originals_);
        {
            MutexLock lock(mutex_);
            prepared_.emplace_back(key, std::move(prepared));
        }
        context_.transport->wake();
    });
}

Result<bool> CommitChecks::step() {
    std::deque<ArraysAnswered> facts;
    std::deque<std::pair<EpochKey, Status>> prepared;
    {
        MutexLock lock(mutex_);
        facts.swap(facts_);
        prepared.swap(prepared_);
    }
    for (auto& one : facts) TAILRACE_TRY(on_facts(context_.node, one.key, std::move(one.facts)));
    for (const auto& [key, mine] : prepared) agent_.on_prepared(key, mine);
    return !facts.empty() || !prepared.empty();
}

void CommitChecks::forget(EpochKey key) {
    inquiries_.erase(key);
    judging_.erase(key);
}

}  // namespace tailrace::internal
