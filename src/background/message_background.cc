#include "background/message_background.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "threads/mutex.h"

namespace tailrace::internal {

// An agent notices its own rank's signals by itself.
MessageBackground::MessageBackground(const JobContext& context, RankEpochs& epochs)
    : context_(context),
      epochs_(epochs),
      answers_(context.rank_count() == 1, context.config.save_every),
      own_rank_(epochs, answers_),
      channel_(context),
      mail_(channel_, *this),
      asking_(context, epochs, answers_, *this, !context.is_representative()) {}

Result<std::unique_ptr<Background>> MessageBackground::create(const JobContext& context, RankEpochs& epochs) {
    std::unique_ptr<MessageBackground> background(new MessageBackground(context, epochs));
    if (context.is_representative()) {
        TAILRACE_ASSIGN(background->agent_, NodeAgent::create(context, background->own_rank_));
    }
    return std::unique_ptr<Background>(std::move(background));
}

void MessageBackground::recover(const LocalEpoch& epoch) {
    if (agent_) agent_->recover(flush_job_of(context_, epoch));
}

Begun MessageBackground::begin() {
    return agree(*context_.transport, with_threads([&]() -> Status {
        if (agent_) agent_->begin();
        return {};
    }));
}

Status MessageBackground::wait_for_room() {
    if (!waits_for_room(context_.config, sequence_)) return {};
    wait_until([&](const RankEpochs::Entries& entries) { return has_room(context_.config, entries); },
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
    if (context_.is_representative()) return epochs_.wait_until(done, deadline);
    return mail_.wait_for([&] { return epochs_.wait_until(done, SteadyClock::now()); }, deadline);
}

Result<bool> MessageBackground::wait(EpochRange epochs, Deadline deadline) {
    return wait_until([&](const RankEpochs::Entries& entries) { return all_ended(entries, epochs); },
                      deadline);
}

Status MessageBackground::wait_flushed(EpochKey key) {
    wait_until([&](const RankEpochs::Entries& entries) { return has_ended(entries, key); }, std::nullopt);
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

// ---- mail ---------------------------------------------------------------------------------------

Status MessageBackground::hear(const AgentMessage& news) {
    if (const auto* ended = std::get_if<BackgroundEnded>(&news)) own_rank_.background_ended(ended->why);
    return own_rank_.hear(news);
}

// This rank's own transport has failed. No other rank may wait for what this one cannot tell or hear.
void MessageBackground::left(const Status& why) {
    epochs_.fail_all(why, false);
    answers_.fail_all(why);
    const auto reason = why.with_context(fmt::format("rank {}", context_.rank()));
    auto posted = channel_.post(encode(AgentMessage(BackgroundEnded{reason})));
    if (!posted.ok())
        log(LogLevel::warning, "the node's agent could not be told that rank {} has left the background: {}",
            context_.rank(), posted.message());
}

// ---- should_save and should_stop ----------------------------------------------------------------

Result<std::optional<Answer>> MessageBackground::wait_answer(Question question, uint64_t call,
                                                             SteadyClock::time_point deadline) {
    if (context_.is_representative()) return answers_.wait(question, call, deadline);
    Result<std::optional<Answer>> found = std::optional<Answer>();
    mail_.wait_for(
        [&] {
            found = answers_.find(question, call);
            return !found.ok() || found->has_value();
        },
        deadline);
    return found;
}

Result<std::optional<std::string>> MessageBackground::asked_to_stop() {
    SharedLock lock(agent_mutex_);
    if (!agent_) return Status(Code::failed_state, "the session is closed");
    return agent_->asked_to_stop();
}

Status MessageBackground::announce(const Announcement& announcement) {
    SharedLock lock(agent_mutex_);
    if (!agent_) return Status(Code::failed_state, "the session is closed");
    agent_->announce(announcement);
    return {};
}

void MessageBackground::end_answers(const Status& why) {
    SharedLock lock(agent_mutex_);
    if (agent_) agent_->end_answers(why);
}

void MessageBackground::tell_stop(const std::string& why) {
    (void)mail_.post(StopAsked{why}, "telling rank 0 to stop");  // if it fails, so does the answer
}

void MessageBackground::ask_to_stop(const std::string& why) {
    {
        SharedLock lock(agent_mutex_);
        if (agent_) return agent_->ask_to_stop(why);
    }
    asking_.ask_to_stop(why);
}

// ---- the end ------------------------------------------------------------------------------------

Closed MessageBackground::close() {
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
        Status of_rank = get_status(in);
        if (!in.at_end())
            of_rank = Status(Code::transport, "a rank's message about its background could not be decoded");
        if (why_ended.ok()) why_ended = std::move(of_rank);
    }
    if (!why_ended.ok() && agent_) agent_->end(why_ended);
    if (!why_ended.ok() && !agent_) epochs_.fail_all(why_ended, false);
    wait_until([](const RankEpochs::Entries& entries) { return all_ended(entries); }, std::nullopt);
    if (agent_) agent_->wait_idle();
    Status failure = epochs_.first_failure();
    if (failure.ok() && agent_) failure = agent_->recovery_failure();
    if (failure.ok() && agent_) failure = agent_->why_ended();
    const Status agreed = agree(*context_.transport, failure);
    all_ended_ = agreed.ok() || agree(*context_.transport, {}).ok();
    if (agreed.ok()) return {agreed, Closed::Rest::kept};
    if (!all_ended_) return agreed;
    // An epoch has failed, or the background has.
    const Status ended = agree(*context_.transport, agent_ ? agent_->why_ended() : epochs_.broken());
    return {agreed, ended.ok() ? Closed::Rest::kept : Closed::Rest::nothing};
}

void MessageBackground::end() {
    (void)catching([&] { answers_.fail_all(Status(Code::failed_state, "the session is closed")); });
    mail_.end();
    {
        ExclusiveLock lock(agent_mutex_);
        agent_.reset();
    }
    // No agent of any rank posts any more, because the last step of close() was collective.
    if (!all_ended_) return;
    const Status dropped = catching([&] { return context_.transport->drop_messages(); });
    if (!dropped.ok()) log(LogLevel::info, "closing the session: {}", dropped.message());
    if (!context_.transport->common_call_left()) all_ended_ = false;  // all have done it
}

uint64_t MessageBackground::buffer_bytes_used() const {
    SharedLock lock(agent_mutex_);
    return agent_ ? agent_->buffer_bytes_used() : 0;
}

}  // namespace tailrace::internal
