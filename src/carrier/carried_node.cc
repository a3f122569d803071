#include "carrier/carried_node.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/flush_setup.h"
#include "base/caught.h"
#include "base/log.h"
#include "threads/awake_time.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

// All ranks of a program end at about the same time, and agents that are gone end the others, too.
constexpr auto longest_for_other_nodes = 60s;
constexpr auto between_looks = 2ms;

}  // namespace

// ---- life ---------------------------------------------------------------------------------------

CarriedNode::CarriedNode(CarriedJob job, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared,
                         Locks locks, std::function<void()> changed)
    : context_(std::move(job.context)), locks_(std::move(locks)), changed_(std::move(changed)) {
    context_.local = std::move(local);
    context_.shared = std::move(shared);
    context_.shared_lock = locks_.shared;
}

Result<std::unique_ptr<CarriedNode>> CarriedNode::create(CarriedJob job, std::shared_ptr<AgentWorld> world,
                                                         std::shared_ptr<Storage> local,
                                                         std::shared_ptr<Storage> shared, Locks locks,
                                                         std::function<void()> changed) {
    auto agent_of_node = job.agent_of_node;
    const int rank = job.rank;
    std::unique_ptr<CarriedNode> node(new CarriedNode(std::move(job), std::move(local), std::move(shared),
                                                      std::move(locks), std::move(changed)));
    auto& context = node->context_;
    TAILRACE_ASSIGN(node->transport_,
                    CarriedTransport::create(std::move(world), context.run_uid, context.node, rank,
                                             context.hosts[static_cast<size_t>(rank)], context.topology,
                                             std::move(agent_of_node)));
    context.transport = node->transport_;
    TAILRACE_ASSIGN(auto agent, NodeAgent::create(context, *node));
    MutexLock lock(node->mutex_);
    node->agent_ = std::move(agent);
    return node;
}

CarriedNode::~CarriedNode() {
    hurry_ = true;
    give_up(Status(Code::aborted, "the agent process ends"));
    {
        MutexLock lock(mutex_);
        background_ended_ = true;
        woken_.notify_all();
        if (transport_ && !begun_ && !ended_) end_before_begin();
    }
    life_.join();
    MutexLock lock(mutex_);
    const auto agent = std::move(agent_);
    lock.unlock();
}

Status CarriedNode::begin(std::vector<FlushJob> recovered) {
    for (const auto& job : recovered)
        for (const auto& stream : job.streams)
            TAILRACE_TRY(check_part_path(stream.path, context_.config.local_dir));
    MutexLock lock(mutex_);
    if (begun_ || !agent_) return Status(Code::failed_state, "it has begun already");
    for (auto& job : recovered) agent_->recover(std::move(job));
    try {
        agent_->begin();
        life_ = Worker("tailrace carry", background_priority(context_.config),
                       [this](const std::stop_token&) { live(); });
    } catch (const std::system_error& error) {
        return Status(Code::out_of_memory,
                      fmt::format("starting the threads of the agent: {}", error.what()));
    }
    begun_ = true;
    return {};
}

bool CarriedNode::over() const {
    return background_ended_ || connected_.empty();
}

// Something thrown here ends this node's background, and nothing else that the process carries.
void CarriedNode::live() {
    const Status carried = catching([&] { carry(); });
    if (!carried.ok()) {
        log(LogLevel::error, "{}, run {}: node {} is no longer carried: {}", context_.config.name,
            context_.run, context_.node, carried.message());
        (void)catching([&] { end_agent(carried); });
    }
    wait_for_other_nodes();
    std::unique_ptr<NodeAgent> ended;
    {
        MutexLock lock(mutex_);
        ended = std::move(agent_);
    }
    ended.reset();
    (void)catching([&] { transport_->flush(); });
    locks_ = {};
    context_.shared_lock.reset();
    say_ended();
    changed_();
}

void CarriedNode::carry() {
    NodeAgent* agent = nullptr;
    {
        MutexLock lock(mutex_);
        agent = agent_.get();
        bool told = false;
        while (!over()) {
            if (!close_asked_ || told) {
                woken_.wait(lock);
                continue;
            }
            told = true;
            lock.unlock();
            agent->wait_idle();
            tell_idle();
            lock.lock();
        }
        if (somebody_died_)
            log(LogLevel::info,
                "{}, run {}: the program has ended on node {}; its captured epochs are finished",
                context_.config.name, context_.run, context_.node);
    }
    agent->wait_idle();
}

void CarriedNode::end_agent(const Status& why) {
    MutexLock lock(mutex_);
    NodeAgent* const agent = agent_.get();
    lock.unlock();
    agent->end(why);
    agent->wait_idle();
}

void CarriedNode::tell_idle() {
    MutexLock lock(mutex_);
    if (line_ && agent_) line_->send(line::Idle{agent_->recovery_failure(), agent_->why_ended()});
}

// If there is no memory for the last message, the rank sees that its line ends.
void CarriedNode::say_ended() {
    (void)catching([&] {
        MutexLock lock(mutex_);
        if (line_) line_->send(line::Ended{});
    });
    MutexLock lock(mutex_);
    ended_ = true;
}

// Memory that is short now may be there at the next look.
void CarriedNode::wait_for_other_nodes() noexcept {
    AwakeTime waited(SteadyClock::now());
    bool said = false;
    Status failed;
    while (waited.look(SteadyClock::now()) < longest_for_other_nodes && !hurry_) {
        const auto all = catching([&]() -> Result<bool> {
            if (!said) TAILRACE_TRY(transport_->say_done());
            said = true;
            return transport_->all_done();
        });
        if (all.ok() && *all) return;
        failed = catching([&] { return all.status(); });
        if (!failed.ok() && failed.code() != Code::out_of_memory) break;
        sleep_for(between_looks);
    }
    log(LogLevel::warning, "{}, run {}: node {} ends without having heard that all nodes have ended{}{}",
        context_.config.name, context_.run, context_.node, failed.ok() ? "" : ": ", failed.message());
}

// ---- ranks --------------------------------------------------------------------------------------

Status CarriedNode::connect(int rank, std::shared_ptr<LineSender> line) {
    const auto& ranks = context_.ranks_of_own_node();
    if (!std::binary_search(ranks.begin(), ranks.end(), rank))
        return Status(Code::invalid_argument,
                      fmt::format("rank {} is no rank of node {}", rank, context_.node));
    MutexLock lock(mutex_);
    if (!saves_.try_emplace(rank, 0).second)
        return Status(Code::already_exists, fmt::format("rank {} has joined already", rank));
    connected_.insert(rank);
    if (rank == representative()) line_ = line;
    transport_->connect(rank, std::move(line));
    return {};
}

Status CarriedNode::mail_from(int rank, std::span<const std::byte> mail) {
    TAILRACE_ASSIGN(const auto news, decode_agent_message(mail));
    const auto* captured = std::get_if<Captured>(&news);
    const bool of_any_rank = captured != nullptr || std::holds_alternative<SavesEnded>(news) ||
                             std::holds_alternative<StopAsked>(news) ||
                             std::holds_alternative<BackgroundEnded>(news);
    const bool of_rank_0 =
        rank == 0 && (std::holds_alternative<Announced>(news) || std::holds_alternative<AnswersEnded>(news));
    if (!of_any_rank && !of_rank_0)
        return Status(Code::transport, fmt::format("rank {} has sent a message that only agents send", rank));
    if (captured != nullptr) {
        if (captured->stream.rank != static_cast<uint32_t>(rank))
            return Status(Code::transport, fmt::format("rank {} has reported a capture of rank {}", rank,
                                                       captured->stream.rank));
        if (captured->status.ok()) TAILRACE_TRY(check_part_path(captured->path, context_.config.local_dir));
    }
    MutexLock lock(mutex_);
    if (!agent_) return {};  // it has ended
    if (captured != nullptr) saves_[rank] = captured->sequence + 1;
    if (rank == representative())
        from_representative(news);
    else
        transport_->heard(rank, {mail.begin(), mail.end()});
    return {};
}

void CarriedNode::from_representative(const AgentMessage& news) {
    if (const auto* captured = std::get_if<Captured>(&news)) agent_->captured(*captured);
    if (const auto* saves = std::get_if<SavesEnded>(&news)) agent_->end_from(saves->sequence);
    if (const auto* stop = std::get_if<StopAsked>(&news)) agent_->ask_to_stop(stop->why);
    if (const auto* ended = std::get_if<BackgroundEnded>(&news)) agent_->end(ended->why);
    if (const auto* announced = std::get_if<Announced>(&news)) agent_->announce(announced->announcement);
    if (const auto* ended = std::get_if<AnswersEnded>(&news)) agent_->end_answers(ended->why);
}

void CarriedNode::found_damaged(EpochKey key) {
    MutexLock lock(mutex_);
    if (agent_ && context_.is_root()) agent_->found_damaged(key);
}

void CarriedNode::close_asked() {
    MutexLock lock(mutex_);
    close_asked_ = true;
    woken_.notify_all();
}

// Saves that a dead rank had captured count. The others will never be whole.
void CarriedNode::left(int rank, bool goodbye) {
    MutexLock lock(mutex_);
    if (connected_.erase(rank) == 0) return;
    transport_->disconnect(rank);
    if (rank == representative() && !goodbye) line_.reset();
    if (!goodbye) {
        somebody_died_ = true;
        const SavesEnded ended{saves_[rank]};
        if (agent_ && begun_) {
            if (rank == 0) agent_->end_answers(Status(Code::failed_state, "rank 0 has died"));
            if (rank == representative())
                agent_->end_from(ended.sequence);
            else
                transport_->heard(rank, encode(AgentMessage(ended)));
        }
    }
    if (!begun_ && connected_.empty()) end_before_begin();
    woken_.notify_all();
}

// Nodes begin when all have been made (ProcessBackground::create). So each one that has begun hears this.
void CarriedNode::end_before_begin() {
    ended_ = true;
    const Status told = catching([&]() -> Status {
        const Status why(Code::failed_state,
                         fmt::format("the program has ended on node {} before its session "
                                     "had begun there",
                                     context_.node));
        const auto bytes = encode(AgentMessage(BackgroundEnded{why}));
        for (int node = 0; node < context_.node_count(); ++node)
            if (node != context_.node)
                TAILRACE_TRY(transport_->post(context_.topology.representative(node), bytes));
        return transport_->say_not_begun();
    });
    if (!told.ok())
        log(LogLevel::info, "{}, run {}: other nodes could not be told that node {} has not begun: {}",
            context_.config.name, context_.run, context_.node, told.message());
}

void CarriedNode::give_up(const Status& why) {
    MutexLock lock(mutex_);
    if (agent_ && begun_) agent_->end(why);
}

bool CarriedNode::has_ended() const {
    MutexLock lock(mutex_);
    return ended_;
}

bool CarriedNode::program_lives() const {
    MutexLock lock(mutex_);
    return !connected_.empty();
}

bool CarriedNode::ends() const {
    MutexLock lock(mutex_);
    return over();
}

CarriedStatus CarriedNode::status() const {
    CarriedStatus status;
    status.job = context_.config.name;
    status.shared_dir = context_.config.shared_dir;
    status.run = context_.run;
    status.node = node();
    status.nodes = static_cast<uint32_t>(context_.node_count());
    status.ranks = static_cast<uint32_t>(context_.hosts.size());
    MutexLock lock(mutex_);
    status.connected = static_cast<uint32_t>(connected_.size());
    status.epochs = agent_ ? static_cast<uint32_t>(agent_->open_epochs()) : 0;
    status.ending = over();
    return status;
}

// ---- the representative's news ------------------------------------------------------------------

Status CarriedNode::hear(const AgentMessage& news) {
    return transport_->post(representative(), encode(news));
}

void CarriedNode::background_ended(const Status& why) noexcept {
    (void)catching([&] { return hear(AgentMessage(BackgroundEnded{why})); });
    MutexLock lock(mutex_);
    background_ended_ = true;
    woken_.notify_all();
}

}  // namespace tailrace::internal
