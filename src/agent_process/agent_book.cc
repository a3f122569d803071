#include "agent_process/agent_book.h"

#include <algorithm>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

constexpr auto longest_opening = 60s;
constexpr auto longest_death = 60s;         // of a session, from when its agent is told to end
constexpr auto between_looks = 5s;          // when there is nothing to do
constexpr auto between_busy_looks = 2s;     // when a session holds a directory
constexpr auto between_waiting_looks = 1s;  // when other nodes have not written their share
constexpr auto between_failures = 10s;
constexpr auto longest_sleep = 1s;

}  // namespace

void AgentBook::session_opens(int client, Time now) {
    sessions_[client] = {now, false};
    idle_since_ = now;
}

void AgentBook::session_opened(int client) {
    const auto session = sessions_.find(client);
    if (session != sessions_.end()) session->second.opening.reset();
}

void AgentBook::client_gone(int client, Time now) {
    if (sessions_.erase(client) == 0) return;
    next_pass_ = now;
    idle_since_ = now;
}

void AgentBook::set_carried(const CarriedNodes& nodes, Time now) {
    if (nodes != carried_) idle_since_ = now;
    carried_ = nodes;
}

void AgentBook::stop_asked(Time now, Duration grace) {
    const Time deadline = now + grace;
    if (!deadline_) busy_until_ = now + longest_death;
    deadline_ = deadline_ ? std::min(*deadline_, deadline) : deadline;
    next_pass_ = now;
    passed_since_stop_ = false;
}

void AgentBook::pass_ended(const PassSummary& summary, Time now) {
    INVARIANT(working_);
    working_ = false;
    last_ = summary;
    // A pass that was under way when the agent was told to end has not gone newest first.
    passed_since_stop_ = newest_first_ && summary.stopped == 0;
    // What has failed, or waits for a node that may never come back, is no work. The share of a lost node is,
    // as soon as it is old enough.
    if (summary.written + summary.busy + summary.stopped + summary.lost > 0) idle_since_ = now;
    const bool at_once = summary.stopped > 0 || (stopping() && !newest_first_);
    const Duration pause = at_once               ? Duration::zero()
                           : summary.waiting > 0 ? Duration(between_waiting_looks)
                           : summary.busy > 0    ? Duration(between_busy_looks)
                           : summary.failed > 0  ? Duration(between_failures)
                                                 : Duration(between_looks);
    next_pass_ = now + pause;
}

std::vector<int> AgentBook::take_to_let_in() {
    std::vector<int> clients;
    if (working_) return clients;
    for (auto& [client, session] : sessions_) {
        if (!session.opening || session.told) continue;
        session.told = true;
        clients.push_back(client);
    }
    return clients;
}

bool AgentBook::any_opening(Time now) const {
    return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        return entry.second.opening && now - *entry.second.opening < longest_opening;
    });
}

bool AgentBook::pass_is_due(Time now) const {
    return !working_ && !any_opening(now) && now >= next_pass_;
}

bool AgentBook::pass_must_stop(Time now) const {
    return any_opening(now) || (deadline_ && now >= *deadline_);
}

bool AgentBook::must_end(Time now) const {
    if (working_) return false;
    if (deadline_) {
        const bool others = last_.busy > 0 || carried_.living > 0;
        const bool done = last_.only_busy() && carried_.ending == 0 && (!others || now >= busy_until_);
        return now >= *deadline_ || (passed_since_stop_ && done);
    }
    return idle_exit_ && sessions_.empty() && carried_ == CarriedNodes() && now - idle_since_ >= *idle_exit_;
}

AgentBook::Time AgentBook::next_look(Time now) const {
    const Time latest = now + longest_sleep;
    // A pass that must not begin yet is no reason to look again at once.
    return working_ || any_opening(now) ? latest : std::clamp(next_pass_, now, latest);
}

}  // namespace tailrace::internal
