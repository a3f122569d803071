#include "agent_process/agent_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/flush_setup.h"
#include "base/caught.h"
#include "base/log.h"
#include "drain/tier_pass.h"
#include "storage/posix_storage.h"
#include "threads/wall_clock.h"

namespace tailrace::internal {

namespace {

// After a client could not be taken for want of a descriptor.
constexpr std::chrono::seconds between_tries(1);
constexpr std::chrono::seconds between_looks_for_directory(1);
// How long nodes of sessions that are given up may take to end, when the agent ends.
constexpr std::chrono::seconds longest_farewell(10);
// Of directories that are skipped. Other users may make some without an end, where everybody may write.
constexpr size_t most_said = 100;

// Where several nodes' directories lie on one machine, an epoch may be committed after a directory's
// turn.
void tell_of_commits(std::vector<DrainedEpoch>& epochs) {
    for (auto& epoch : epochs) {
        const bool committed = std::any_of(epochs.begin(), epochs.end(), [&](const DrainedEpoch& other) {
            return other.state == DrainedEpoch::State::committed && other.job == epoch.job &&
                   other.key == epoch.key && other.shared_dir == epoch.shared_dir;
        });
        if (epoch.state != DrainedEpoch::State::waiting || !committed) continue;
        epoch.state = DrainedEpoch::State::committed;
        epoch.waiting_for.clear();
    }
}

std::vector<Carrier::TakeLock> locks_of(std::vector<Descriptor> descriptors) {
    std::vector<Carrier::TakeLock> locks;
    for (auto& descriptor : descriptors)
        locks.emplace_back([brought = std::make_shared<Descriptor>(std::move(descriptor))](
                               const std::string& directory) -> Result<std::shared_ptr<DirectoryLock>> {
            TAILRACE_ASSIGN(auto lock, adopt_lock(std::move(*brought), directory));
            return std::shared_ptr<DirectoryLock>(std::move(lock));
        });
    return locks;
}

PassSummary summary_of(const AgentStatus& passed) {
    PassSummary summary;
    for (const auto& epoch : passed.epochs) {
        summary.waiting += epoch.state == DrainedEpoch::State::waiting;
        summary.failed += epoch.state == DrainedEpoch::State::failed;
        summary.stopped += epoch.state == DrainedEpoch::State::stopped;
        summary.written += epoch.wrote;
        summary.lost += epoch.state == DrainedEpoch::State::waiting && epoch.may_write_more;
    }
    summary.busy = passed.busy.empty() ? 0 : 1;
    summary.failed += passed.failed.empty() ? 0 : 1;
    return summary;
}

}  // namespace

Result<std::unique_ptr<AgentProcess>> AgentProcess::create(Options options, std::shared_ptr<Storage> local,
                                                           std::shared_ptr<Storage> shared) {
    std::unique_ptr<AgentProcess> agent(
        new AgentProcess(std::move(options), std::move(local), std::move(shared)));
    const auto& local_dir = agent->options_.config.local_dir;
    const auto directory = agent_directory(local_dir);
    TAILRACE_TRY(agent->local_->make_directories(directory).with_context("making the agent's directory"));
    auto lease = agent->local_->lock_directory(directory);
    if (lease.status().code() == Code::busy)
        return lease.status().with_context(fmt::format("another agent serves {}", local_dir));
    TAILRACE_TRY(lease.status());
    agent->lease_ = std::move(*lease);
    TAILRACE_ASSIGN(agent->listening_, listen_for_clients(local_dir));
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno_status(errno, "making a pipe for the agent");
    agent->wake_read_ = Descriptor(ends[0]);
    agent->wake_write_ = Descriptor(ends[1]);
    agent->make_carrier();
    agent->started_unix_ms_ = unix_ms_now();
    return agent;
}

void AgentProcess::make_carrier() {
    if (options_.world == nullptr) return;
    Carrier::Options options;
    options.local_dir = options_.config.local_dir;
    options.local = [](const Config& config) {
        SystemStorageOptions storage;
        storage.engine = IoEngine::posix;
        storage.rules.own_in = config.local_dir;
        return make_system_storage(storage);
    };
    options.shared = [](const Config& config) {
        SystemStorageOptions storage;
        storage.engine = config.io_engine;
        storage.queue_depth = config.queue_depth;
        return make_system_storage(storage);
    };
    options.changed = [this] { wake(); };
    carrier_ = std::make_unique<Carrier>(options_.world, std::move(options));
}

void AgentProcess::wake() noexcept {
    const char byte = 0;
    (void)!write(wake_write_.get(), &byte, 1);
}

AgentProcess::~AgentProcess() {
    carrier_.reset();  // its threads call wake()
    give_up_ = true;
    passing_.join();
}

void AgentProcess::stop() noexcept {
    stop_asked_ = true;
    wake();
}

Result<AgentStatus> AgentProcess::serve() {
    return catching([&] { return serve_clients(); });
}

Result<AgentStatus> AgentProcess::serve_clients() {
    while (!book_.must_end(SteadyClock::now())) TAILRACE_TRY(step());
    end_carrier();
    const auto left = status();
    for (const int client : wait_for_end_) tell(client, left);
    return left;
}

// Programs that live hear that the agent ends, and go on without it.
void AgentProcess::end_carrier() {
    if (!carrier_) return;
    carrier_->give_up(Status(Code::aborted, "the agent process was told to end"));
    const auto deadline = SteadyClock::now() + longest_farewell;
    while (carrier_->node_count() > 0 && SteadyClock::now() < deadline) {
        attempt([&] { step_carrier(); });
        sleep_for(std::chrono::milliseconds(5));
    }
}

Status AgentProcess::step() {
    const auto now = SteadyClock::now();
    if (stop_asked_.exchange(false)) book_.stop_asked(now, options_.grace);
    end_if_out_of_reach(now);
    if (book_.pass_is_due(now)) begin_pass();
    give_up_ = book_.pass_must_stop(now);
    yield_ = book_.pass_must_yield();

    const short listen = now < listen_again_ ? 0 : POLLIN;
    std::vector<pollfd> waiting{{wake_read_.get(), POLLIN, 0}, {listening_.get(), listen, 0}};
    std::vector<int> ids;
    for (const auto& [id, client] : clients_) {
        waiting.push_back({client->descriptor(), POLLIN, 0});
        ids.push_back(id);
    }
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(book_.next_look(now) - now);
    if (poll(waiting.data(), waiting.size(), static_cast<int>(pause.count())) < 0 && errno != EINTR)
        return errno_status(errno, "waiting for clients of the agent");
    char bytes[64];
    while (read(wake_read_.get(), bytes, sizeof bytes) > 0) {
    }
    take_pass_result();
    if (waiting[1].revents != 0) TAILRACE_TRY(take_clients());
    for (size_t i = 0; i < ids.size(); ++i)
        if (waiting[i + 2].revents != 0 && !attempt([&] { hear(ids[i]); })) attempt([&] { drop(ids[i]); });
    attempt([&] { step_carrier(); });
    attempt([&] { answer_those_who_wait(); });
    return {};
}

void AgentProcess::end_if_out_of_reach(SteadyClock::time_point now) {
    if (book_.stopping() || now - looked_for_directory_ < between_looks_for_directory) return;
    looked_for_directory_ = now;
    if (lease_->still_in_place()) return;
    log(LogLevel::warning, "the agent ends, because its directory was removed and nobody can reach it: {}",
        agent_directory(options_.config.local_dir));
    book_.stop_asked(now, options_.grace);
}

// What is thrown for one client, or one session, must not end the agent, which others need. With MPI it would
// end all agents.
bool AgentProcess::attempt(const std::function<void()>& work) {
    const Status done = catching(work);
    if (done.ok()) return true;
    if (std::exchange(thrown_, done.code()) != done.code())
        log(LogLevel::warning, "an operation of the agent has failed, and the agent goes on: {}",
            done.message());
    return false;
}

// Sessions whose programs have died, and which have ended now, may have left something to a pass.
void AgentProcess::step_carrier() {
    if (!carrier_) return;
    const auto now = SteadyClock::now();
    const size_t before = carrier_->node_count();
    for (const int client : carrier_->step()) drop(client);
    if (carrier_->node_count() < before) book_.pass_asked(now);
    const size_t ending = carrier_->ending_count();
    book_.set_carried({.living = carrier_->node_count() - ending, .ending = ending}, now);
}

Status AgentProcess::take_clients() {
    auto client = accept_client(listening_);
    if (client.status().code() == Code::busy) {
        if (listen_again_ == SteadyClock::time_point())
            log(LogLevel::warning, "clients of the agent have to wait: {}", client.status().message());
        listen_again_ = SteadyClock::now() + between_tries;
        return {};
    }
    TAILRACE_TRY(client.status());
    if (*client) clients_.emplace(next_client_++, std::make_shared<AgentConnection>(std::move(**client)));
    return {};
}

// A client that does not read what it asks for must not hold up the others.
void AgentProcess::tell(int client, const AgentProcessMessage& message) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    const auto sent = catching([&] { return found->second->try_send(message); });
    if (!sent.ok() || !*sent) drop(client);
}

void AgentProcess::drop(int client) {
    clients_.erase(client);
    opening_.erase(client);
    if (carrier_) carrier_->client_gone(client);
    book_.client_gone(client, SteadyClock::now());
}

// It may have been dropped since its connection was looked at.
void AgentProcess::hear(int client) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    const auto message = found->second->receive(std::chrono::milliseconds(0));
    if (!message.ok()) {
        if (message.status().code() == Code::unsupported)
            log(LogLevel::warning, "a client of the agent is turned away: {}", message.status().message());
        return drop(client);
    }
    if (!*message) return;
    const auto now = SteadyClock::now();
    const auto& body = **message;
    if (const auto* line = std::get_if<LineBytes>(&body)) return hear_line(client, *line);
    if (const auto* opens = std::get_if<SessionOpens>(&body)) {
        opening_[client] = opens->shared_dir;
        book_.session_opens(client, now);
        give_up_ = book_.pass_must_stop(now);
    } else if (std::holds_alternative<SessionOpened>(body)) {
        opening_.erase(client);
        book_.session_opened(client);
    } else if (std::holds_alternative<StatusAsked>(body)) {
        tell(client, status());
    } else if (std::holds_alternative<DrainAsked>(body)) {
        book_.pass_asked(now);
        wait_for_next_pass_.push_back(client);
    } else if (const auto* stop = std::get_if<EndAsked>(&body)) {
        constexpr uint64_t longest_ms = uint64_t{1000} * 60 * 60 * 24 * 30;
        book_.stop_asked(now, std::chrono::milliseconds(std::min(stop->grace_ms, longest_ms)));
        wait_for_end_.push_back(client);
    } else {
        drop(client);  // what only agents say
    }
}

void AgentProcess::hear_line(int client, const LineBytes& message) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    if (!carrier_) return drop(client);
    const auto connection = found->second;
    const std::weak_ptr<AgentConnection> weak = connection;
    const auto send = [weak](std::span<const std::byte> bytes) -> Result<bool> {
        const auto alive = weak.lock();
        if (!alive) return Status(Code::transport, "the line has ended");
        return alive->try_send(LineBytes{{bytes.begin(), bytes.end()}});
    };
    const Status heard = catching([&] {
        return carrier_->hear(client, send, message.bytes, locks_of(connection->take_descriptors()));
    });
    if (heard.ok()) return;
    log(LogLevel::warning, "a session that is carried is turned away: {}", heard.message());
    drop(client);
}

// A session whose program has died may be finishing what the new one is going to take over.
void AgentProcess::answer_those_who_wait() {
    if (carrier_) {
        bool all = true;
        for (const auto& [client, shared_dir] : opening_) all &= carrier_->make_way(shared_dir);
        if (!all) return;
    }
    for (const int client : book_.take_to_let_in()) {
        const auto place = carrier_ && !book_.stopping() ? std::optional(carrier_->place()) : std::nullopt;
        tell(client, MayOpen{place});
    }
}

AgentStatus AgentProcess::status() const {
    auto status = last_;
    status.process = static_cast<uint32_t>(getpid());
    status.started_unix_ms = started_unix_ms_;
    status.sessions = static_cast<uint32_t>(book_.session_count());
    status.working = book_.working();
    status.stopping = book_.stopping();
    status.carries = carrier_ != nullptr;
    if (carrier_) status.carried = carrier_->status();
    return status;
}

void AgentProcess::take_pass_result() {
    std::optional<AgentStatus> passed;
    {
        MutexLock lock(mutex_);
        passed.swap(passed_);
    }
    if (!passed) return;
    passing_.join();
    for (const auto& epoch : passed->epochs) {
        const auto same = [&](const DrainedEpoch& other) {
            return other.job == epoch.job && other.key == epoch.key && other.shared_dir == epoch.shared_dir &&
                   other.state == epoch.state;
        };
        if (std::any_of(last_.epochs.begin(), last_.epochs.end(), same)) continue;
        const auto& waits_for = epoch.waiting_for;
        log(epoch.state == DrainedEpoch::State::failed ? LogLevel::warning : LogLevel::info,
            "{} of {} in {}: {}{}{}{}", to_string(epoch.key), epoch.job, epoch.shared_dir,
            name_of(epoch.state), waits_for.empty() ? "" : " for ", to_string(waits_for),
            epoch.why.ok() ? "" : ": " + epoch.why.message());
    }
    if (!passed->failed.empty() && passed->failed != last_.failed)
        log(LogLevel::warning, "a pass over the node-local directory failed: {}", passed->failed);
    last_ = std::move(*passed);
    book_.pass_ended(summary_of(last_), SteadyClock::now());
    const auto now = status();
    for (const int client : std::exchange(wait_for_pass_, {})) tell(client, now);
    if (!wait_for_next_pass_.empty() && !carried_end()) book_.pass_asked(SteadyClock::now());
}

bool AgentProcess::carried_end() const {
    return carrier_ && carrier_->ending_count() > 0;
}

void AgentProcess::begin_pass() {
    book_.pass_begun();
    // What a program has left is known only when its sessions have ended here (step_carrier).
    if (!carried_end()) wait_for_pass_.swap(wait_for_next_pass_);
    give_up_ = false;
    yield_ = false;
    // Who asks, or has little time, wants each epoch to be tried.
    if (book_.stopping() || !wait_for_pass_.empty()) failed_.end_rests();
    const auto order = book_.stopping() ? NodeDrain::Order::newest_first : NodeDrain::Order::oldest_first;
    passing_ = Worker("tailrace drain", background_priority(options_.config),
                      [this, order](const std::stop_token&) { pass(order); });
}

void AgentProcess::say_skipped(const std::vector<std::string>& sentences) {
    for (const auto& sentence : sentences) {
        if (said_.size() >= most_said) return;
        if (!said_.insert(sentence).second) continue;
        log(LogLevel::info, "{}", sentence);
        if (said_.size() == most_said)
            log(LogLevel::info, "further directories that are skipped are not named, after the first {}",
                most_said);
    }
}

void AgentProcess::pass(NodeDrain::Order order) {
    AgentStatus found;
    const Status failed = catching([&]() -> Status {
        NodeDrain drain(options_.config, local_, shared_);
        if (options_.for_lost) drain.write_for(lost_);
        drain.rest_after_failures(failed_);
        drain.share(cap_);
        drain.yield_if([this] { return yield_.load(); });
        const auto hear = [&](const DirectoryPass& passed) {
            if (!passed.failed.ok()) {
                found.failed = fmt::format("{}: {}", passed.directory, passed.failed.message());
                return;
            }
            const auto& [epochs, busy] = passed.pass;
            found.epochs.insert(found.epochs.end(), epochs.begin(), epochs.end());
            if (!busy.ok() && found.busy.empty()) found.busy = busy.message();
            std::vector<std::string> unusable;
            for (const auto& record : passed.untold)
                if (record.why.code() != Code::busy) unusable.push_back(record.path);
            if (unusable.empty()) return;
            const size_t more = unusable.size() - 1;
            found.failed = fmt::format("{} cannot be used{}", unusable.front(),
                                       more > 0 ? fmt::format(" (and {} more)", more) : "");
        };
        const auto pass_over = [&](const std::string& directory) {
            return drain.pass(
                directory, [this] { return give_up_.load(); }, order);
        };
        TAILRACE_ASSIGN(const auto skipped,
                        pass_over_tier(*local_, options_.config.local_dir, "", pass_over, hear));
        say_skipped(skipped);
        tell_of_commits(found.epochs);
        return {};
    });
    if (!failed.ok()) found.failed = failed.message();
    for (const auto& epoch : found.epochs)
        found.left +=
            epoch.state != DrainedEpoch::State::committed && epoch.state != DrainedEpoch::State::superseded;
    // Nobody must wait for ever for a pass that has thrown.
    {
        MutexLock lock(mutex_);
        passed_ = std::move(found);
    }
    wake();
}

}  // namespace tailrace::internal
