// NodeAgent, when the background has ended because the transport failed at some node of the job.
//
//   1. The agent that notices gives up its flushes and tells the root, which may be out of reach.
//   2. Writers let go of the captured parts. Epochs that are just being named are finished and
//      announced.
//   3. The root first sends its last announcements, then tells the other agents, and these tell
//      their ranks. Epochs that have not ended have failed, and so will those that are captured
//      from now on. An agent that does not hear from the root tells its ranks after a while. The
//      captured parts stay where they are, for the next session.
//   4. The thread goes on reading what arrives until the session ends, so that no sender waits for
//      it.
//
// A transport that has failed may lose these messages. So nobody relies on them.
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
        log(LogLevel::info, "rank {} could not be told that the background has ended: {}", rank,
            posted.message());
}

void NodeAgent::end_background(const Status& why) {
    if (!end_reason_.ok()) return;
    // Aborted: an agent process was told to let go of its epochs.
    log(why.code() == Code::aborted ? LogLevel::info : LogLevel::error,
        "node {} flushes nothing any more: {}", context_.node, why.to_string());
    end_reason_ = why;
    ended_since_ = SteadyClock::now();
    aggregator_->abandon(why);
    if (protector_) protector_->abandon(why);
    {
        MutexLock lock(mutex_);
        why_ended_ = why;
    }
    if (!root_) post_at_best(root, BackgroundEnded{why});
}

void NodeAgent::thread_threw(const Status& why) {
    {
        MutexLock lock(mutex_);
        if (thrown_.ok()) thrown_ = why;
    }
    context_.transport->wake();
}

// Each step catches by itself, because each may fail for the same reason again. The last step needs
// no memory.
void NodeAgent::break_down(const Status& why) noexcept {
    log(LogLevel::error, "node {} flushes nothing any more: {}", context_.node, why.message());
    (void)catching([&] {
        end_reason_ = why;
        MutexLock lock(mutex_);
        why_ended_ = why;
    });
    (void)catching([&] {
        std::unique_ptr<Aggregator> ended;
        MutexLock lock(mutex_);
        ended.swap(aggregator_);
        lock.unlock();  // its writers call wake()
    });
    (void)catching([&] { protector_.reset(); });
    own_rank_.background_ended(why);
    MutexLock lock(mutex_);
    open_.clear();
    recovering_.clear();
    changed_.notify_all();
}

bool NodeAgent::tell_of_break_down() noexcept {
    const Status told = catching([&] {
        if (!root_) post_at_best(root, BackgroundEnded{end_reason_});
        announce_end();
    });
    return told.ok();
}

// Everybody has been told that the background has ended, which answers whatever still comes.
void NodeAgent::drop_messages() noexcept {
    (void)catching([&]() -> Status {
        while (true) {
            TAILRACE_ASSIGN(const auto message, context_.transport->poll());
            if (!message) return {};
        }
    });
}

Result<bool> NodeAgent::step_ended() {
    // This question comes first: if the answer is no, the swap below finds all that was named.
    const bool naming = finisher_.naming();
    std::vector<EpochEnded> named;
    {
        MutexLock lock(mutex_);
        inbox_.clear();
        to_pass_on_.clear();
        end_from_.reset();
        named.swap(named_);
    }
    for (const auto& ended : named) announce(ended);
    bool moved = aggregator_->step();
    for (const auto& result : aggregator_->take_results()) {
        auto& epoch = epochs_[result.key];
        epoch.flushing = Flushing::over;
        if (epoch.final()) finish(result.key, epoch);
    }
    if (protector_) {
        moved |= protector_->step();
        for (const auto& result : protector_->take_results()) {
            auto& epoch = epochs_[result.key];
            epoch.protection = Protection::none;
            if (epoch.final()) finish(result.key, epoch);
        }
    }
    while (true) {
        auto message = context_.transport->poll();
        if (!message.ok() || !*message) break;
        moved = true;
        const auto news = decode_agent_message((*message)->bytes);
        if (!news.ok() || root_) continue;
        if (const auto* ended = std::get_if<EpochEnded>(&*news)) on_ended(*ended);
        if (std::holds_alternative<BackgroundEnded>(*news)) root_has_ended_ |= (*message)->source == root;
    }
    const bool all_announced =
        root_ ? !naming : root_has_ended_ || SteadyClock::now() - ended_since_ > longest_for_root;
    const bool let_go = aggregator_->idle() && (!protector_ || protector_->idle());
    if (!end_announced_ && let_go && all_announced) {
        announce_end();
        moved = true;
    }
    return moved;
}

void NodeAgent::announce_end() {
    end_announced_ = true;
    const auto why = end_reason_.with_context("the background has ended; captured epochs are intact");
    if (root_)
        for (int node = 1; node < context_.node_count(); ++node)
            post_at_best(context_.topology.representative(node), BackgroundEnded{end_reason_});
    for (const int rank : context_.ranks_of_own_node())
        if (rank != context_.rank()) post_at_best(rank, BackgroundEnded{why});
    own_rank_.background_ended(why);
    MutexLock lock(mutex_);
    open_.clear();
    recovering_.clear();
    changed_.notify_all();
}

}  // namespace tailrace::internal
