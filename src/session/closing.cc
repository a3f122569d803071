// What closing a session brings to the shared directory.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/status_codec.h"
#include "format/codec.h"
#include "session/opening.h"
#include "session/session.h"
#include "shared/left_intact.h"
#include "threads/executor.h"

namespace tailrace::internal {

namespace {

constexpr std::chrono::seconds longest_agent_death(30);

Status left_to_next(EpochKey newest) {
    return Status(
        Code::failed_state,
        fmt::format("{}, the newest, was kept in the node-local tier and is not flushed, because "
                    "agent processes have not let go of it (the log says more). The next session or "
                    "`tailrace drain` flushes it",
                    to_string(newest)));
}

Status cannot_flush(EpochKey newest) {
    return Status(
        Code::failed_state,
        fmt::format("{}, the newest, was kept in the node-local tier and cannot be flushed, because "
                    "parts of it are lost, or because it is not sound (the log says more)",
                    to_string(newest)));
}

}  // namespace

// An agent that dies just now breaks the connection once more.
Status Session::ask_agent_to_let_go(std::unique_ptr<AgentLink>& link) {
    if (!context_.is_representative() || door_ == nullptr) return {};
    const auto deadline = SteadyClock::now() + longest_agent_death;
    while (true) {
        auto asked = door_->ask(context_.config.local_dir, context_.config.shared_dir);
        if (asked.ok()) link = std::move(*asked);
        if (asked.ok() || asked.status().code() == Code::not_found) return {};
        if (asked.status().code() != Code::transport || SteadyClock::now() > deadline) return asked.status();
        sleep_for(std::chrono::milliseconds(50));
    }
}

// The agents are gone, and all ranks are here. So what they have left is flushed in the way in which a new
// session would, but by the background that this session would have without agents.
Status Session::flush_rest() {
    const Closed closed = background_->close();
    Status flushed;
    if (closed.rest == Closed::Rest::unflushed) flushed = flush_left_epochs();
    if (closed.rest == Closed::Rest::kept || closed.rest == Closed::Rest::held)
        flushed = flush_newest(closed.rest);
    return closed.failure.ok() ? flushed : closed.failure;
}

Status Session::flush_left_epochs() {
    background_->end();
    // An agent that has only lost its lines may still be at work.
    std::unique_ptr<AgentLink> link;
    TAILRACE_TRY(agree(*context_.transport, catching([&] {
                     return ask_agent_to_let_go(link);
                 })).with_context("what was captured and not flushed is left to the next session"));
    TAILRACE_ASSIGN(const auto inventory, look_into_shared(context_));
    for (const auto& entry : epochs_.all()) {
        const EpochKey key{entry.info.epoch, entry.info.run};
        const auto& committed = inventory.committed;
        if (!is_final(entry.info.state) &&
            std::find(committed.begin(), committed.end(), key) != committed.end())
            epochs_.ended({key, EpochState::committed, Status(), 0, true});
    }
    TAILRACE_ASSIGN(const auto old, judge_old_epochs(context_, inventory));
    for (const auto& [key, why] : old.refused)
        if (key.run == context_.run)
            epochs_.ended({key, EpochState::failed, with_left_intact(why), 0, false});
    const Status closed = flush_again(context_, old.to_flush);
    for (const auto& epoch : old.to_flush)
        epochs_.ended({epoch.key, closed.ok() ? EpochState::committed : EpochState::failed, closed, 0, true});
    TAILRACE_TRY(closed);
    TAILRACE_TRY(check_newest());
    return epochs_.first_failure();
}

// The background of the session has ended.
Status Session::flush_again(const JobContext& context, const std::vector<LocalEpoch>& epochs) {
    RankEpochs none;
    TAILRACE_ASSIGN(const auto rest, Background::create(context, none));
    for (const auto& epoch : epochs) rest->recover(epoch);
    TAILRACE_TRY(rest->begin().failure);
    const Closed closed = rest->close();
    rest->end();
    TAILRACE_TRY(closed.failure);
    for (const auto& epoch : epochs) epochs_.flushed_at_close(epoch.key);
    return {};
}

// The newest epoch that has not failed, if it is one.
std::optional<EpochKey> Session::newest_kept_local() const {
    std::optional<EpochKey> newest;
    for (const auto& entry : epochs_.all()) {
        if (entry.info.state == EpochState::failed) continue;
        newest.reset();
        if (entry.info.state == EpochState::kept_local) newest = EpochKey{entry.info.epoch, entry.info.run};
    }
    return newest;
}

// The program has ended, so its nodes may go away with what they have. The newest epoch is flushed as a new
// session would, if it was kept in the node-local tier.
Status Session::flush_newest(Closed::Rest rest) {
    const auto& config = context_.config;
    const bool any_kept = config.shared_every > 1 || config.queue_policy != QueuePolicy::wait;
    if (!config.flush_at_close || !any_kept) return {};
    // All ranks have saved it. One that has saved more often than others has an epoch that has failed.
    ByteWriter mine;
    const auto newest = newest_kept_local();
    put(mine, newest.value_or(EpochKey{}));
    TAILRACE_ASSIGN(const auto all, context_.transport->allgather(mine.bytes()));
    if (!newest ||
        std::any_of(all.begin(), all.end(), [&](const auto& bytes) { return bytes != all.front(); }))
        return {};
    if (rest == Closed::Rest::held) return left_to_next(*newest);
    background_->end();
    TAILRACE_ASSIGN(const auto inventory, look_into_shared(context_));
    TAILRACE_ASSIGN(auto old, judge_old_epochs(context_, inventory));
    std::erase_if(old.to_flush, [&](const LocalEpoch& epoch) { return epoch.key != *newest; });
    if (old.to_flush.empty()) return cannot_flush(*newest);
    // The record of the session has ended with its background, and says that the epoch was kept.
    auto context = context_;
    context.config.record = false;
    context.config.trace_dir.clear();
    return flush_again(context, old.to_flush)
        .with_context(fmt::format("flushing {}, which was kept in the node-local tier", to_string(*newest)));
}

// Older epochs may stay on the nodes, or give way to newer ones. If the newest one cannot be flushed, that
// must not go unsaid.
Status Session::check_newest() {
    TAILRACE_ASSIGN(const auto heard, heard_of_newest());
    const auto kept = newest_kept_local();
    if (kept && context_.config.flush_at_close) return cannot_flush(*kept);
    const auto all = epochs_.all();
    if (all.empty() || is_final(all.back().info.state)) return {};
    const EpochKey key{all.back().info.epoch, all.back().info.run};
    const auto reason = heard.find(key);
    const Status why =
        reason != heard.end()
            ? reason->second
            : Status(Code::failed_state,
                     fmt::format("{} could not be flushed, because parts of it were not captured, or are "
                                 "lost, or because it is not sound (the log says more)",
                                 to_string(key)));
    epochs_.ended({key, EpochState::failed, why, 0, false});
    return why;
}

// Some ranks may have heard from the agents why their newest epoch failed, before the agents were gone.
Result<std::map<EpochKey, Status>> Session::heard_of_newest() const {
    const auto own = epochs_.all();
    const auto newest = own.empty() ? EpochInfo{} : own.back().info;
    ByteWriter mine;
    put(mine, EpochKey{newest.epoch, newest.run});
    put(mine, newest.state == EpochState::failed ? newest.why : Status());
    TAILRACE_ASSIGN(const auto all, context_.transport->allgather(mine.bytes()));
    std::map<EpochKey, Status> heard;
    for (const auto& bytes : all) {
        ByteReader in(bytes);
        const auto key = get_key(in);
        auto why = get_status(in);
        if (in.at_end() && !why.ok()) heard.try_emplace(key, std::move(why));
    }
    return heard;
}

}  // namespace tailrace::internal
