// NodeAgent, where it carries the answers to should_save and should_stop, which rank 0's program has
// decided (when/schedule.h), and where it hears that a rank was asked to stop.
//
// Announcements go down a tree of agents, and from each agent to its ranks. Between two agents, and
// from an agent to a rank, messages keep their order, and the tree never changes. So every rank gets
// announcements in the order in which they were made.
#include <algorithm>

#include "agent/node_agent.h"
#include "config/signal_names.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// Few steps from the first agent to the last, and no agent sends for long.
constexpr int most_children = 16;

}  // namespace

// ---- called by the program's threads ------------------------------------------------------------

void NodeAgent::announce(const Announcement& announcement) {
    {
        MutexLock lock(mutex_);
        to_pass_on_.push_back(Announced{announcement});
    }
    context_.transport->wake();
}

void NodeAgent::end_answers(const Status& why) {
    {
        MutexLock lock(mutex_);
        to_pass_on_.push_back(AnswersEnded{why});
    }
    context_.transport->wake();
}

void NodeAgent::ask_to_stop(const std::string& why) {
    {
        MutexLock lock(mutex_);
        if (!own_stop_) own_stop_ = why;
    }
    context_.transport->wake();
}

std::optional<std::string> NodeAgent::asked_to_stop() const {
    MutexLock lock(mutex_);
    return asked_to_stop_;
}

// ---- the agent's thread -------------------------------------------------------------------------

bool NodeAgent::step_answers() {
    std::deque<AgentMessage> to_pass_on;
    std::optional<std::string> own_stop;
    {
        MutexLock lock(mutex_);
        to_pass_on.swap(to_pass_on_);
        own_stop = own_stop_;
    }
    for (const auto& message : to_pass_on) pass_on(message);
    if (!own_stop) own_stop = stop_signal_of(context_);
    const bool tells = own_stop && !stop_told_;
    if (tells) {
        stop_told_ = true;
        to_root(StopAsked{*own_stop});
    }
    return tells || !to_pass_on.empty();
}

void NodeAgent::pass_on(const AgentMessage& message) {
    const int first = most_children * context_.node + 1;
    for (int node = first; node < std::min(first + most_children, context_.node_count()); ++node)
        post_to_node(node, message);
    for (const int rank : context_.ranks_of_own_node())
        if (rank != context_.rank()) post(rank, message);
}

Status NodeAgent::on_announced(const Announced& news) {
    TAILRACE_TRY(own_rank_.hear(news));
    pass_on(news);
    return {};
}

void NodeAgent::on_answers_ended(const AnswersEnded& news) {
    (void)own_rank_.hear(news);
    pass_on(news);
}

void NodeAgent::on_stop_asked(const StopAsked& news) {
    (void)own_rank_.hear(news);
    MutexLock lock(mutex_);
    if (!asked_to_stop_) asked_to_stop_ = news.why;
}

std::optional<std::string> stop_signal_of(const JobContext& context) {
    if (context.signals == nullptr) return std::nullopt;
    const auto signal = context.signals->got();
    if (!signal) return std::nullopt;
    return "signal " + signal_text(*signal) + " at rank " + std::to_string(context.rank());
}

}  // namespace tailrace::internal
