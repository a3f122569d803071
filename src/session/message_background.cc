#include "session/message_background.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// Ranks of a program are hardly ever that far apart. But rank 0 may have lost its network without
// anybody noticing.
constexpr std::chrono::minutes longest_wait_for_rank_0(10);

}  // namespace

MessageBackground::MessageBackground(const JobContext& context, RankEpochs& epochs)
    : context_(context),
      epochs_(epochs),
      answers_(context.rank_count() == 1, context.config.save_every),
      mail_(context, epochs, answers_) {
    if (context.is_root()) decisions_.emplace(context, epochs, context.rank_count() == 1);
}

Result<std::unique_ptr<Background>> MessageBackground::create(const JobContext& context, RankEpochs& epochs) {
    std::unique_ptr<MessageBackground> background(new MessageBackground(context, epochs));
    if (context.is_representative()) {
        TAILRACE_ASSIGN(background->agent_, NodeAgent::create(context, epochs, background->answers_));
    }
    return std::unique_ptr<Background>(std::move(background));
}

void MessageBackground::recover(const LocalEpoch& epoch) {
    if (agent_) agent_->recover(flush_job_of(context_, epoch));
}

Status MessageBackground::begin() {
    return agree(*context_.transport, with_threads([&]() -> Status {
        if (agent_) agent_->begin();
        return {};
    }));
}

Status MessageBackground::wait_for_room() {
    if (!waits_for_room(context_.config, sequence_)) return {};
    const size_t room = std::max(1u, context_.config.queue_epochs);
    wait_until(
        [&](const RankEpochs::Entries& entries) { return RankEpochs::unfinished_for_shared(entries) < room; },
        std::nullopt);
    return {};
}

Status MessageBackground::captured(Captured news) {
    ++sequence_;
    const Status told = catching([&]() -> Status {
        if (!agent_) return mail_.post(news, "telling the node's agent of " + to_string(news.key));
        agent_->captured(std::move(news));
        return {};
    });
    // Ranks that do not hear of this capture would wait for ever.
    if (!told.ok() && agent_) agent_->end(told);
    if (!told.ok() && !agent_) mail_.leave(told);
    return told;
}

void MessageBackground::read_news() {
    if (!context_.is_representative()) mail_.read();
}

bool MessageBackground::wait_until(const std::function<bool(const RankEpochs::Entries&)>& done,
                                   Deadline deadline) {
    return context_.is_representative() ? epochs_.wait_until(done, deadline)
                                        : mail_.wait_until(done, deadline);
}

Result<bool> MessageBackground::wait(std::span<const uint64_t> epochs, Deadline deadline) {
    return wait_until([&](const RankEpochs::Entries& entries) { return all_ended(entries, epochs); },
                      deadline);
}

Status MessageBackground::wait_flushed(EpochKey key) {
    wait_until(
        [&](const RankEpochs::Entries& entries) {
            const auto found = entries.find(key.epoch);
            return found == entries.end() || found->second.info.run != key.run ||
                   is_final(found->second.info.state);
        },
        std::nullopt);
    SharedLock lock(agent_mutex_);
    if (agent_) agent_->wait_recovered(key);
    return {};
}

bool MessageBackground::recovering(EpochKey key) const {
    SharedLock lock(agent_mutex_);
    return agent_ && agent_->recovering(key);
}

void MessageBackground::found_damaged(EpochKey key) {
    SharedLock lock(agent_mutex_);
    if (agent_) agent_->found_damaged(key);
}

// ---- should_save and should_stop ----------------------------------------------------------------

Result<Answer> MessageBackground::ask(Question question) {
    MutexLock lock(asking_mutex_);
    const uint64_t call = ++calls_[static_cast<size_t>(question)];
    tell_of_own_stop();
    if (decisions_) TAILRACE_TRY(decide(question));
    const auto deadline = Clock::now() + longest_wait_for_rank_0;
    Result<std::optional<Answer>> found = std::optional<Answer>();
    if (context_.is_representative())
        found = answers_.wait(question, call, deadline);
    else
        mail_.wait_for(
            [&] {
                found = answers_.find(question, call);
                return !found.ok() || found->has_value();
            },
            deadline);
    TAILRACE_TRY(found.status());
    if (*found) return std::move(**found);
    --calls_[static_cast<size_t>(question)];  // so that it can be made again
    return Status(Code::timeout,
                  fmt::format("rank {} has waited {} min at call {} for rank 0, which has not made the call "
                              "before, or cannot be heard; the call does not count",
                              context_.rank(), longest_wait_for_rank_0.count(), call));
}

Status MessageBackground::decide(Question question) {
    TAILRACE_TRY(answers_.broken());
    Status told;
    try {
        told = decide_and_tell(question);
    } catch (...) {
        told = caught_status();
    }
    if (told.ok()) return {};
    // Ranks that do not hear of this call would wait for ever.
    answers_.fail_all(told);
    SharedLock lock(agent_mutex_);
    if (agent_) agent_->end_answers(told);
    return told;
}

Status MessageBackground::decide_and_tell(Question question) {
    SharedLock lock(agent_mutex_);
    if (!agent_) return Status(Code::failed_state, "the session is closed");
    const auto announcement = decisions_->call(question, agent_->asked_to_stop());
    if (!announcement) return {};
    TAILRACE_TRY(answers_.hear(*announcement));
    if (context_.rank_count() > 1) agent_->announce(*announcement);
    return {};
}

// An agent notices its own rank's signals by itself.
void MessageBackground::tell_of_own_stop() {
    if (context_.is_representative() || stop_told_) return;
    const auto why = own_stop_ ? own_stop_ : stop_signal_of(context_);
    if (!why) return;
    stop_told_ = true;
    (void)mail_.post(StopAsked{*why}, "telling rank 0 to stop");  // if it fails, so does the answer
}

void MessageBackground::ask_to_stop(const std::string& why) {
    {
        SharedLock lock(agent_mutex_);
        if (agent_) return agent_->ask_to_stop(why);
    }
    MutexLock lock(asking_mutex_);
    if (!own_stop_) own_stop_ = why;
}

// ---- the end ------------------------------------------------------------------------------------

Status MessageBackground::close() {
    if (context_.is_root() && agent_ && context_.rank_count() > 1)
        agent_->end_answers(Status(Code::failed_state, "rank 0 has closed its session"));
    // A rank that saved less often than others would leave them waiting for ever, some of them in
    // save. So an epoch that not all ranks have saved fails as soon as the first rank closes.
    if (agent_)
        agent_->end_from(sequence_);
    else
        (void)mail_.post(SavesEnded{sequence_}, "telling the node's agent that the session is closed");
    // The same would happen if a rank's background has ended and it could not tell the others. So
    // all ranks exchange that here.
    ByteWriter out;
    put(out, agent_ ? agent_->why_ended() : epochs_.broken());
    TAILRACE_ASSIGN(const auto all, context_.transport->allgather(out.bytes()));
    Status why_ended;
    for (const auto& bytes : all) {
        ByteReader in(bytes);
        const Status of_rank = get_status(in);
        if (why_ended.ok()) why_ended = of_rank;
    }
    if (!why_ended.ok() && agent_) agent_->end(why_ended);
    if (!why_ended.ok() && !agent_) epochs_.fail_all(why_ended, false);
    wait_until(
        [](const RankEpochs::Entries& entries) {
            return std::all_of(entries.begin(), entries.end(),
                               [](const auto& entry) { return is_final(entry.second.info.state); });
        },
        std::nullopt);
    if (agent_) agent_->wait_idle();
    Status failure = epochs_.first_failure();
    if (failure.ok() && agent_) failure = agent_->recovery_failure();
    if (failure.ok() && agent_) failure = agent_->why_ended();
    all_ended_ = true;
    return agree(*context_.transport, failure);
}

void MessageBackground::end() {
    answers_.fail_all(Status(Code::failed_state, "the session is closed"));
    mail_.end();
    {
        ExclusiveLock lock(agent_mutex_);
        agent_.reset();
    }
    // No agent of any rank posts any more, because the last step of close() was collective.
    if (!all_ended_) return;
    if (auto dropped = context_.transport->drop_messages(); !dropped.ok())
        log(LogLevel::info, "closing the session: {}", dropped.message());
}

uint64_t MessageBackground::buffer_bytes_used() const {
    SharedLock lock(agent_mutex_);
    return agent_ ? agent_->buffer_bytes_used() : 0;
}

}  // namespace tailrace::internal
