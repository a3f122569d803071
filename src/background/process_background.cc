#include "background/process_background.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/own_rank.h"
#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "base/status_codec.h"
#include "carrier/carried_job.h"
#include "threads/awake_time.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

// An agent answers at once, unless its machine is very busy.
constexpr auto longest_for_answer = 30s;
// A flush that is given up ends with the writes under way. An agent then waits up to 60 s for those of other
// nodes (carrier/carried_node.cc).
constexpr auto longest_for_end = 90s;
// How long a rank that closes its session waits until it asks how the others are.
constexpr auto between_meetings = 1s;

double seconds_of(std::chrono::milliseconds time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

// ---- open ---------------------------------------------------------------------------------------

ProcessBackground::ProcessBackground(const JobContext& context, RankEpochs& epochs,
                                     std::unique_ptr<AgentLine> line)
    : context_(context),
      epochs_(epochs),
      answers_(context.rank_count() == 1, context.config.save_every),
      line_(std::move(line)),
      mail_(*this, *this),
      watch_(line_->patience()),
      asking_(context, epochs, answers_, *this, true) {}

// The representatives come first, because the agents learn of the session from them.
Result<std::unique_ptr<Background>> ProcessBackground::create(const JobContext& context, RankEpochs& epochs,
                                                              const Carriers& carriers,
                                                              std::vector<uint32_t> agent_of_node) {
    std::unique_ptr<ProcessBackground> background;
    const auto connect = [&](const std::function<Status()>& join) {
        return agree(*context.transport, catching([&]() -> Status {
            if (background == nullptr) {
                if (carriers.door == nullptr)
                    return Status(Code::not_found, "this program cannot reach agents");
                TAILRACE_ASSIGN(auto line, carriers.door->line(context.config.local_dir));
                background.reset(new ProcessBackground(context, epochs, std::move(line)));
            }
            return join();
        }));
    };
    TAILRACE_TRY(connect([&]() -> Status {
        return context.is_representative() ? background->send_job(carriers, std::move(agent_of_node))
                                           : Status();
    }));
    TAILRACE_TRY(connect([&]() -> Status {
        if (context.is_representative()) return {};
        const line::Join join{context.run_uid, static_cast<uint32_t>(context.node),
                              static_cast<uint32_t>(context.rank())};
        return background->asks([&] { return background->line_->post(line::encode(join)); },
                                "joining the node's agent");
    }));
    return std::unique_ptr<Background>(std::move(background));
}

Status ProcessBackground::send_job(const Carriers& carriers, std::vector<uint32_t> agent_of_node) {
    auto job = carried_job_of(context_, std::move(agent_of_node));
    std::vector<int> locks;
    const auto add = [&](const DirectoryLock* lock, bool& brings) {
        brings = lock != nullptr && lock->descriptor() >= 0;
        if (brings) locks.push_back(lock->descriptor());
    };
    add(carriers.local_lock, job.brings_local_lock);
    add(context_.shared_lock.get(), job.brings_shared_lock);
    return asks(
        [&] {
            return line::in_pieces(encode(job), [&](std::span<const std::byte> piece, bool last) {
                const line::JobPiece message{last, {piece.begin(), piece.end()}};
                return line_->post(line::encode(message), std::exchange(locks, {}));
            });
        },
        "telling the node's agent of the session");
}

Status ProcessBackground::asks(const std::function<Status()>& send, const char* what) {
    {
        MutexLock lock(mutex_);
        answer_.reset();
    }
    TAILRACE_TRY(mail_.use(send, what));
    AwakeTime waited(SteadyClock::now());
    std::optional<Status> answer;
    mail_.wait_for(
        [&] {
            MutexLock lock(mutex_);
            answer = answer_ ? answer_ : lost_.ok() ? std::nullopt : std::optional(lost_);
            return answer || waited.look(SteadyClock::now()) > longest_for_answer;
        },
        std::nullopt);
    if (!answer) return Status(Code::timeout, fmt::format("{}: no answer in time", what));
    return answer->with_context(what);
}

void ProcessBackground::recover(const LocalEpoch& epoch) {
    if (!context_.is_representative()) return;
    to_recover_.push_back(flush_job_of(context_, epoch));
    MutexLock lock(mutex_);
    recovering_.insert(epoch.key);
}

Begun ProcessBackground::begin() {
    const Status begun = agree(*context_.transport, catching([&]() -> Status {
        if (!context_.is_representative()) return {};
        const auto jobs = std::exchange(to_recover_, {});
        return asks(
            [&] {
                return line::in_pieces(encode(jobs), [&](std::span<const std::byte> piece, bool last) {
                    return line_->post(line::encode(line::BeginPiece{last, {piece.begin(), piece.end()}}));
                });
            },
            "letting the node's agent begin");
    }));
    if (!begun.ok()) {
        // Agents that have begun give up. The session may look for another way when they have.
        (void)agree(*context_.transport, catching([&] { return say_goodbye(true); }));
        return {begun, true};
    }
    Status lost;
    {
        MutexLock lock(mutex_);
        begun_ = true;
        lost = lost_;
    }
    if (!lost.ok()) say_lost(lost);
    return Status();
}

// ---- mail ---------------------------------------------------------------------------------------

Result<std::optional<std::vector<std::byte>>> ProcessBackground::poll() {
    while (true) {
        auto polled = line_->poll();
        if (!polled.ok()) {
            MutexLock lock(mutex_);
            line_ended_ = true;
            return polled.status();
        }
        const auto& bytes = *polled;
        if (!bytes) return std::optional<std::vector<std::byte>>();
        TAILRACE_ASSIGN(auto message, line::decode(*bytes));
        MutexLock lock(mutex_);
        watch_.heard();
        if (auto* mail = std::get_if<line::Mail>(&message)) return std::optional(std::move(mail->bytes));
        if (const auto* answer = std::get_if<line::Answer>(&message)) answer_ = answer->status;
        if (const auto* idle = std::get_if<line::Idle>(&message)) idle_ = *idle;
        if (std::holds_alternative<line::Ended>(message)) agent_ended_ = true;
    }
}

Status ProcessBackground::hear(const AgentMessage& news) {
    if (const auto* ended = std::get_if<EpochEnded>(&news)) {
        MutexLock lock(mutex_);
        if (recovering_.erase(ended->key) != 0) return {};
    }
    if (const auto* stop = std::get_if<StopAsked>(&news)) {
        MutexLock lock(mutex_);
        if (!asked_to_stop_) asked_to_stop_ = stop->why;
    }
    if (const auto* ended = std::get_if<BackgroundEnded>(&news)) lose(ended->why);
    return hear_news(news, epochs_, answers_);
}

// No other rank may wait for what this one cannot tell or hear. If the agent is dead, all know it.
void ProcessBackground::left(const Status& why) {
    lose(why);
    (void)post(tailrace::internal::encode(
        AgentMessage(BackgroundEnded{why.with_context(fmt::format("rank {}", context_.rank()))})));
}

bool ProcessBackground::lost() const {
    MutexLock lock(mutex_);
    return !lost_.ok();
}

void ProcessBackground::lose(const Status& why) {
    {
        MutexLock lock(mutex_);
        if (!lost_.ok() || said_goodbye_) return;
        lost_ = why;
        if (!begun_) return;
    }
    say_lost(why);
}

void ProcessBackground::say_lost(const Status& why) {
    log(context_.is_representative() ? LogLevel::warning : LogLevel::info,
        "the agent process of node {} no longer carries the epochs ({}). They stay in {} {}", context_.node,
        why.message(), context_.config.local_dir,
        why.code() == Code::timeout ? "for the next session, unless that agent goes on"
                                    : "until the session is closed, which flushes the newest");
    epochs_.uncarried();
    answers_.fail_all(why.with_context("no agent carries answers any more"));
}

void ProcessBackground::look_after_agent() {
    auto turn = SilenceWatch::Turn::nothing;
    {
        MutexLock lock(mutex_);
        if (lost_.ok() && !said_goodbye_) turn = watch_.look(SteadyClock::now());
    }
    const auto patience = line_->patience();
    if (turn == SilenceWatch::Turn::ask) (void)line_->post(line::encode(line::Ping{}));
    if (turn == SilenceWatch::Turn::say && context_.is_representative())
        log(LogLevel::warning,
            "the agent process of node {} ({}, process {}) has given no sign of life for {} s, and the "
            "session waits for it; it may be stopped, or its machine overloaded. After {} s it counts as "
            "gone",
            context_.node, context_.hosts[static_cast<size_t>(context_.rank())], line_->process(),
            seconds_of(patience.until_said), seconds_of(patience.until_gone));
    if (turn == SilenceWatch::Turn::give_up)
        take_for_gone(Status(Code::timeout, fmt::format("it has given no sign of life for {} s",
                                                        seconds_of(patience.until_gone))));
}

// If the agent goes on, it reads this after what it has been told of. Then no rank waits for saves that it is
// not told of any more. When the session is being closed, it may as well finish: there are no more saves.
void ProcessBackground::take_for_gone(const Status& why) {
    lose(why);
    {
        MutexLock lock(mutex_);
        if (closing_) return;
    }
    const Status told(Code::failed_state,
                      fmt::format("rank {} regards the agent process of node {} as gone: {}", context_.rank(),
                                  context_.node, why.message()));
    (void)post(tailrace::internal::encode(AgentMessage(BackgroundEnded{told})));
}

Status ProcessBackground::silence() const {
    MutexLock lock(mutex_);
    if (!watch_.silent()) return {};
    return Status(
        Code::timeout,
        fmt::format("the agent process of node {} ({}, process {}) gives no sign of life, but it "
                    "may go on; end it before the next session is opened",
                    context_.node, context_.hosts[static_cast<size_t>(context_.rank())], line_->process()));
}

// ---- save and wait ------------------------------------------------------------------------------

Status ProcessBackground::wait_for_room() {
    if (!waits_for_room(context_.config, sequence_)) return {};
    const auto room = [&](const RankEpochs::Entries& entries) { return has_room(context_.config, entries); };
    mail_.wait_for([&] { return lost() || epochs_.wait_until(room, Clock::now()); }, std::nullopt);
    return {};
}

// A capture that the agent does not hear of is as good as any: it stays, and is flushed later.
Status ProcessBackground::captured(Captured news) {
    ++sequence_;
    if (lost()) return {};
    const Status told =
        catching([&] { return mail_.post(news, "telling the node's agent of " + to_string(news.key)); });
    if (!told.ok()) mail_.leave(told);
    return {};
}

Result<bool> ProcessBackground::wait(EpochRange epochs, Deadline deadline) {
    const auto ended = [&](const RankEpochs::Entries& entries) { return all_ended(entries, epochs); };
    bool done = false;
    mail_.wait_for(
        [&] {
            done = epochs_.wait_until(ended, Clock::now());
            return done || lost();
        },
        deadline);
    if (done || !lost()) return done;
    MutexLock lock(mutex_);
    return lost_.with_context(
        "the agent processes no longer carry the epochs; captured epochs are intact, and are flushed "
        "when the session is closed");
}

Status ProcessBackground::wait_flushed(EpochKey key) {
    const auto ended = [&](const RankEpochs::Entries& entries) { return has_ended(entries, key); };
    mail_.wait_for([&] { return lost() || (epochs_.wait_until(ended, Clock::now()) && !recovering(key)); },
                   std::nullopt);
    return {};
}

bool ProcessBackground::recovering(EpochKey key) const {
    MutexLock lock(mutex_);
    return recovering_.contains(key);
}

void ProcessBackground::found_damaged(EpochKey key) {
    if (!context_.is_root()) return;
    (void)mail_.use([&] { return line_->post(line::encode(line::Damaged{key})); },
                    "telling of a damaged epoch");
}

// ---- should_save and should_stop ----------------------------------------------------------------

Result<std::optional<Answer>> ProcessBackground::wait_answer(Question question, uint64_t call,
                                                             SteadyClock::time_point deadline) {
    Result<std::optional<Answer>> found = std::optional<Answer>();
    mail_.wait_for(
        [&] {
            found = answers_.find(question, call);
            return !found.ok() || found->has_value();
        },
        deadline);
    return found;
}

void ProcessBackground::tell_stop(const std::string& why) {
    (void)mail_.post(StopAsked{why}, "telling rank 0 to stop");  // if it fails, so does the answer
}

Result<std::optional<std::string>> ProcessBackground::asked_to_stop() {
    mail_.read();
    MutexLock lock(mutex_);
    return asked_to_stop_;
}

Status ProcessBackground::announce(const Announcement& announcement) {
    return mail_.post(Announced{announcement}, "telling the other ranks");
}

void ProcessBackground::end_answers(const Status& why) {
    if (!lost()) (void)mail_.post(AnswersEnded{why}, "telling the other ranks");
}

// ---- the end ------------------------------------------------------------------------------------

Status ProcessBackground::failure() const {
    TAILRACE_TRY(epochs_.first_failure());
    MutexLock lock(mutex_);
    if (!lost_.ok() || !idle_) return {};
    TAILRACE_TRY(idle_->recovery_failure);
    return idle_->why_ended;
}

// A rank that saved less often than others would leave them waiting for ever, some of them in save. So
// an epoch that not all ranks have saved fails as soon as the first rank closes.
Closed ProcessBackground::close() {
    {
        MutexLock lock(mutex_);
        closing_ = true;
    }
    if (context_.is_root() && context_.rank_count() > 1)
        end_answers(Status(Code::failed_state, "rank 0 has closed its session"));
    if (!lost())
        (void)mail_.post(SavesEnded{sequence_}, "telling the node's agent that the session is closed");
    TAILRACE_ASSIGN(const bool left_epochs, wait_for_end());
    const char* const left = "captured epochs that were not flushed are left to the next session";
    // An agent that is stopped may still write, and has the session's locks.
    if (const Status silent = agree(*context_.transport, silence()); !silent.ok()) {
        MutexLock lock(mutex_);
        said_goodbye_ = true;
        return silent.with_context(left);
    }
    const Status gone = agree(*context_.transport, say_goodbye(left_epochs));
    if (!gone.ok() && left_epochs) return gone.with_context(left);
    const Status failed = agree(*context_.transport, failure());
    if (left_epochs) return {failed, Closed::Rest::unflushed};
    if (gone.ok()) return {failed, Closed::Rest::kept};
    if (context_.is_root()) log(LogLevel::warning, "{}", gone.message());
    return {failed, Closed::Rest::held};
}

// A node whose agent is silent never tells the others that it has ended. So the ranks meet now and then.
Result<bool> ProcessBackground::wait_for_end() {
    enum class State : uint8_t { waits, done, lost };
    const auto all_final = [](const RankEpochs::Entries& entries) { return all_ended(entries); };
    bool asked = false;
    auto mine = State::waits;
    const auto look = [&] {
        if (lost()) mine = State::lost;
        if (mine != State::waits || !epochs_.wait_until(all_final, Clock::now())) return mine != State::waits;
        // This is called by the thread that uses the line.
        if (context_.is_representative() && !std::exchange(asked, true))
            (void)line_->post(line::encode(line::Close{}));
        MutexLock lock(mutex_);
        if (!context_.is_representative() || idle_) mine = State::done;
        return mine == State::done;
    };
    while (true) {
        (void)mail_.wait_for(look, Clock::now() + between_meetings);
        if (lost()) mine = State::lost;
        ByteWriter out;
        out.put(static_cast<uint8_t>(mine));
        TAILRACE_ASSIGN(const auto all, context_.transport->allgather(out.bytes()));
        const auto any = [&](State state) {
            return std::any_of(all.begin(), all.end(), [&](const auto& bytes) {
                return bytes.at(0) == static_cast<std::byte>(state);
            });
        };
        if (any(State::lost)) return true;
        if (!any(State::waits)) return false;
    }
}

// The representative waits until the agent has let go of the locks. Then another session may open, or
// this one may go on with what is left.
Status ProcessBackground::say_goodbye(bool give_up) {
    {
        MutexLock lock(mutex_);
        said_goodbye_ = true;
    }
    const Status said =
        mail_.use([&] { return line_->post(line::encode(line::Goodbye{give_up})); }, "saying goodbye");
    // If the agent is gone, nobody lets go.
    if (!said.ok() || !context_.is_representative()) return {};
    AwakeTime waited(SteadyClock::now());
    bool has_let_go = false;
    mail_.wait_for(
        [&] {
            MutexLock lock(mutex_);
            has_let_go = agent_ended_ || line_ended_;
            return has_let_go || waited.look(SteadyClock::now()) > longest_for_end;
        },
        std::nullopt);
    if (has_let_go) return {};
    return Status(Code::timeout,
                  fmt::format("the agent process of node {} has not let go of the session within {} s",
                              context_.node, std::chrono::seconds(longest_for_end).count()));
}

}  // namespace tailrace::internal
