// NodeAgent, when the background is over: the transport has failed at some node of the job.
//
//   1. whoever sees it gives up its flushes, and tells the root (which may be out of its reach);
//   2. writers let go of the captured parts; names that are being given are finished and announced;
//   3. the root tells the other agents, after what it had to announce, and they their ranks: what has not
//      ended has failed, and so will what they capture from now on. Who does not hear the root does so after
//      a while. The captured parts stay where they are, for the next session;
//   4. the thread goes on reading what arrives, so that no sender waits for it, until the session ends.
//
// What is told here is told at best: a transport that has failed may carry it or not.
#include <fmt/format.h>

#include "agent/node_agent.h"
#include "base/caught.h"
#include "base/log.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// How long an agent waits for the root's last news, which may be that an epoch was committed.
constexpr std::chrono::seconds longest_for_root(5);

}  // namespace

void NodeAgent::post_at_best(int rank, const AgentMessage& message) {
    auto posted = context_.transport->post(rank, encode(message));
    if (!posted.ok())
        log(LogLevel::info, "rank {} could not be told that the background is over: {}", rank,
            posted.message());
}

void NodeAgent::end_background(const Status& why) {
    if (!why_over_.ok()) return;
    log(LogLevel::error, "node {} flushes nothing any more: {}", context_.node, why.to_string());
    why_over_ = why;
    over_since_ = SteadyClock::now();
    aggregator_->abandon(why);
    {
        MutexLock lock(mutex_);
        over_ = why;
    }
    if (!root_) post_at_best(root, BackgroundOver{why});
}

void NodeAgent::thread_threw(const Status& why) {
    {
        MutexLock lock(mutex_);
        if (thrown_.ok()) thrown_ = why;
    }
    context_.transport->wake();
}

// Each step by itself, since each may fail for the same reason again. What needs no memory comes last.
void NodeAgent::break_down(const Status& why) noexcept {
    log(LogLevel::error, "node {} flushes nothing any more: {}", context_.node, why.to_string());
    (void)catching([&] {
        why_over_ = why;
        MutexLock lock(mutex_);
        over_ = why;
    });
    (void)catching([&] {
        std::unique_ptr<Aggregator> ended;
        MutexLock lock(mutex_);
        ended.swap(aggregator_);
        lock.unlock();  // its writers call wake()
    });
    (void)catching([&] {
        if (!root_) post_at_best(root, BackgroundOver{why});
    });
    (void)catching([&] { tell_that_it_is_over(); });
    (void)catching([&] { rank_epochs_.fail_all(why, true); });
    MutexLock lock(mutex_);
    open_.clear();
    recovering_.clear();
    changed_.notify_all();
}

// Everybody has been told: whatever still comes is answered by that.
void NodeAgent::drop_messages() noexcept {
    (void)catching([&]() -> Status {
        while (true) {
            TAILRACE_ASSIGN(const auto message, context_.transport->poll());
            if (!message) return {};
        }
    });
}

Result<bool> NodeAgent::step_over() {
    const bool naming = finisher_.naming();  // asked first: what it has named by then is found below
    std::vector<EpochEnded> named;
    {
        MutexLock lock(mutex_);
        inbox_.clear();
        end_from_.reset();
        named.swap(named_);
    }
    for (const auto& ended : named) announce(ended);
    bool moved = aggregator_->step();
    for (const auto& result : aggregator_->take_results()) {
        auto& epoch = epochs_[result.key];
        epoch.let_go = true;
        if (epoch.final()) finish(result.key, epoch);
    }
    while (true) {
        auto message = context_.transport->poll();
        if (!message.ok() || !*message) break;
        moved = true;
        const auto news = decode_agent_message((*message)->bytes);
        if (!news.ok() || root_) continue;
        if (const auto* ended = std::get_if<EpochEnded>(&*news)) on_ended(*ended);
        if (std::holds_alternative<BackgroundOver>(*news)) root_is_over_ |= (*message)->source == root;
    }
    const bool all_announced =
        root_ ? !naming : root_is_over_ || SteadyClock::now() - over_since_ > longest_for_root;
    if (!told_over_ && aggregator_->idle() && all_announced) {
        tell_that_it_is_over();
        moved = true;
    }
    return moved;
}

void NodeAgent::tell_that_it_is_over() {
    told_over_ = true;
    const auto why = why_over_.with_context("the background has ended; captured epochs are intact");
    if (root_)
        for (int node = 1; node < context_.node_count(); ++node)
            post_at_best(context_.topology.representative(node), BackgroundOver{why_over_});
    for (const int rank : context_.ranks_of_own_node())
        if (rank != context_.rank()) post_at_best(rank, BackgroundOver{why});
    rank_epochs_.fail_all(why, true);
    MutexLock lock(mutex_);
    open_.clear();
    recovering_.clear();
    changed_.notify_all();
}

}  // namespace tailrace::internal
