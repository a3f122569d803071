#include "agent/node_agent.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/flush_setup.h"
#include "agent/node_protection.h"
#include "base/caught.h"
#include "base/invariant.h"
#include "base/log.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

// Everything that matters wakes the agent. Waking up now and then costs nothing, and a lost wake-up
// does no harm.
constexpr auto longest_sleep = 200ms;
// Messages posted before the end are on their way to ranks that wait for them. A lost one must not
// hold us up for longer than this.
constexpr auto longest_delivery = 5s;
// What may still come when every epoch has ended is not worth a longer wait.
constexpr auto longest_for_late_messages = 1s;
// Ended epochs are remembered, because a rank may still save one of them.
constexpr size_t max_remembered = 1024;

template <class... Kinds>
bool is_one_of(const AgentMessage& news) {
    return (std::holds_alternative<Kinds>(news) || ...);
}

}  // namespace

// ---- life ---------------------------------------------------------------------------------------

NodeAgent::NodeAgent(const JobContext& context, OwnRank& own_rank)
    : context_(context),
      own_rank_(own_rank),
      node_ledger_(context.node, context.ranks_of_own_node().size()),
      commit_checks_(context, *this),
      plans_(context),
      finisher_(context) {}

Result<std::unique_ptr<NodeAgent>> NodeAgent::create(const JobContext& context, OwnRank& own_rank) {
    std::unique_ptr<NodeAgent> agent(new NodeAgent(context, own_rank));
    TAILRACE_ASSIGN(agent->aggregator_,
                    make_aggregator(context, [transport = context.transport.get()] { transport->wake(); }));
    TAILRACE_ASSIGN(agent->protector_,
                    make_protector(context, [transport = context.transport.get()] { transport->wake(); }));
    agent->recorder_ = Recorder::create(context);
    if (context.is_root()) {
        const auto nodes = static_cast<size_t>(context.node_count());
        agent->root_ = std::make_unique<RootLedger>(nodes, std::min<size_t>(nodes, context.config.files),
                                                    context.config.queue_policy, context.config.queue_epochs,
                                                    redundancy_every(context));
    }
    return agent;
}

void NodeAgent::recover(FlushJob job) {
    const EpochKey key = job.key;
    auto& epoch = epochs_[key];
    epoch.complete = true;
    epoch.flush = true;
    epoch.recovered = std::move(job);
    plans_.recovered(key);
    {
        MutexLock lock(mutex_);
        open_.insert(key);
        recovering_.insert(key);
    }
    if (root_) {
        root_->recovered(key);
        (void)root_->take_orders();  // every node flushes it without being told
    }
}

void NodeAgent::begin() {
    const Priority priority = background_priority(context_.config);
    const auto thrown = [this] { thread_threw(caught_status()); };
    if (root_) finisher_.begin(priority, thrown);
    commit_checks_.begin(priority, thrown);
    plans_.begin(priority);
    if (recorder_) recorder_->begin(priority);
    worker_ = Worker("tailrace agent", priority, [this](const std::stop_token& stop) { run(stop); });
}

NodeAgent::~NodeAgent() {
    worker_.request_stop();
    context_.transport->wake();
    worker_.join();
    commit_checks_.finish();
    plans_.finish();
    finisher_.finish();
    if (recorder_) recorder_->finish();
    aggregator_.reset();  // its writers call us back, so they end first
    protector_.reset();
}

// After a throw the state of the agent is unknown, so nothing is done with it any more.
void NodeAgent::run(const std::stop_token& stop) {
    const Status thrown = catching([&] { work(stop); });
    if (thrown.ok()) return;
    break_down(thrown);
    bool told = tell_of_break_down();
    while (!stop.stop_requested()) {
        drop_messages();
        // With no memory, perhaps nobody could be told.
        if (!told) told = tell_of_break_down();
        context_.transport->wait(longest_sleep, false);
    }
}

void NodeAgent::work(const std::stop_token& stop) {
    for (auto& [key, epoch] : epochs_) maybe_start(key, epoch);
    while (!stop.stop_requested()) {
        const auto moved = end_reason_.ok() ? step() : step_ended();
        if (!moved.ok()) end_background(moved.status().with_context(fmt::format("node {}", context_.node)));
        if (moved.ok() && !*moved && !stop.stop_requested())
            context_.transport->wait(longest_sleep,
                                     aggregator_->moving() || (protector_ && protector_->moving()));
    }
    hear_late_messages();
    deliver_posts();
}

void NodeAgent::deliver_posts() {
    const auto deadline = SteadyClock::now() + longest_delivery;
    while (SteadyClock::now() < deadline) {
        auto delivered = context_.transport->posts_delivered();
        if (!delivered.ok() || *delivered) return;
        context_.transport->wait(1ms, true);
    }
}

// When the last epoch has ended everywhere, messages may still be on their way: other nodes' numbers for
// the record, SavesEnded of ranks that close, and plans of epochs that have failed. Messages that nobody
// takes stay in the transport's queues.
void NodeAgent::hear_late_messages() {
    const size_t of_node = context_.ranks_of_own_node().size();
    const size_t closings = root_ ? static_cast<size_t>(context_.rank_count()) - 1 : of_node - 1;
    const auto deadline = SteadyClock::now() + longest_for_late_messages;
    while (((recorder_ && recorder_->waiting()) || (closing_ && closings_heard_ < closings)) &&
           SteadyClock::now() < deadline) {
        auto message = context_.transport->poll();
        if (!message.ok()) return;
        if (!*message) {
            context_.transport->wait(1ms, true);
        } else if (auto news = decode_agent_message((*message)->bytes); news.ok()) {
            if (recorder_) recorder_->hear(*news);
            const auto* plan = std::get_if<PlanToKeep>(&*news);
            if (plan != nullptr && check_sender((*message)->source, *news).ok())
                on_plan_to_keep(*plan, (*message)->source);
            if (const auto* saves = std::get_if<SavesEnded>(&*news)) {
                ++closings_heard_;
                if (!root_) post_at_best(root, *saves);
            }
        }
    }
}

Result<bool> NodeAgent::step() {
    bool moved = false;
    std::deque<Captured> captures;
    std::vector<EpochEnded> named;
    std::optional<uint64_t> end_from;
    {
        MutexLock lock(mutex_);
        TAILRACE_TRY(end_);
        TAILRACE_TRY(thrown_);
        captures.swap(inbox_);
        named.swap(named_);
        end_from.swap(end_from_);
    }
    for (const auto& capture : captures) TAILRACE_TRY(on_captured(capture));
    for (const auto& ended : named) announce(ended);
    moved |= !captures.empty() || !named.empty();
    if (end_from) {
        closing_ = true;
        on_saves_ended({*end_from});
        moved = true;
    }
    while (true) {
        TAILRACE_ASSIGN(auto message, context_.transport->poll());
        if (!message) break;
        moved = true;
        TAILRACE_TRY(on_message(*message));
        // What the aggregator has given up for that reason must not fail: it stays captured.
        if (!end_reason_.ok()) return true;
    }
    moved |= step_answers();
    TAILRACE_ASSIGN(const bool checked, commit_checks_.step());
    moved |= checked;
    moved |= aggregator_->step();
    for (const auto& plan : aggregator_->take_plans())
        if (!has_ended(plan->key)) {
            plans_.planned(plan->key, plan->offers);
            on_planned(plan->key, plan->offers);
        }
    for (const auto& result : aggregator_->take_results()) {
        on_result(result);
        moved = true;
    }
    if (protector_) {
        moved |= protector_->step();
        for (const auto& result : protector_->take_results()) {
            on_protected(result);
            moved = true;
        }
        TAILRACE_TRY(protector_->abandoned());
    }
    TAILRACE_TRY(failure_);
    TAILRACE_TRY(aggregator_->abandoned());
    if (moved) forget_old();
    return moved;
}

void NodeAgent::forget_old() {
    if (epochs_.size() <= 2 * max_remembered) return;
    for (auto epoch = epochs_.begin(); epochs_.size() > max_remembered && epoch != epochs_.end();) {
        if (epoch->second.final()) plans_.forget(epoch->first);
        epoch = epoch->second.final() ? epochs_.erase(epoch) : std::next(epoch);
    }
}

// ---- news ---------------------------------------------------------------------------------------

Status NodeAgent::on_message(const Message& message) {
    if (is_aggregator_message(message.bytes)) {
        aggregator_->handle(message.source, message.bytes);
        return {};
    }
    if (is_protect_message(message.bytes)) {
        if (protector_) protector_->handle(message.source, message.bytes);
        return {};
    }
    TAILRACE_ASSIGN(const auto news, decode_agent_message(message.bytes));
    TAILRACE_TRY(check_sender(message.source, news));
    if (const auto* capture = std::get_if<Captured>(&news)) {
        {
            MutexLock lock(mutex_);
            open_.insert(capture->key);
        }
        TAILRACE_TRY(on_captured(*capture));
    } else if (const auto* decision = std::get_if<Decision>(&news)) {
        on_decision(*decision);
    } else if (const auto* ended = std::get_if<EpochEnded>(&news)) {
        on_ended(*ended);
    } else if (const auto* background = std::get_if<BackgroundEnded>(&news)) {
        end_background(background->why);
        root_has_ended_ |= message.source == root;
    } else if (const auto* saves = std::get_if<SavesEnded>(&news)) {
        ++closings_heard_;
        on_saves_ended(*saves);
    } else if (const auto* asked = std::get_if<ArraysAsked>(&news)) {
        commit_checks_.on_asked(*asked);
    } else if (const auto* answered = std::get_if<ArraysAnswered>(&news)) {
        const int node = context_.topology.node_of_rank[static_cast<size_t>(message.source)];
        TAILRACE_TRY(commit_checks_.on_facts(node, answered->key, answered->facts));
    } else if (const auto* may_commit = std::get_if<MayCommit>(&news)) {
        aggregator_->allow(may_commit->key);
    } else if (const auto* fit = std::get_if<ArraysFit>(&news)) {
        if (!has_ended(fit->key)) plans_.arrays_fit(fit->key);
    } else if (const auto* safe = std::get_if<EpochProtected>(&news)) {
        on_epoch_protected(*safe);
    } else if (const auto* plan = std::get_if<PlanToKeep>(&news)) {
        on_plan_to_keep(*plan, message.source);
    } else if (const auto* offered = std::get_if<NodeOffered>(&news)) {
        on_offered(*offered);
    } else if (const auto* group = std::get_if<GroupOffered>(&news)) {
        on_group_offered(*group);
    } else if (const auto* announced = std::get_if<Announced>(&news)) {
        TAILRACE_TRY(on_announced(*announced));
    } else if (const auto* answers = std::get_if<AnswersEnded>(&news)) {
        on_answers_ended(*answers);
    } else if (const auto* stop = std::get_if<StopAsked>(&news)) {
        to_root(*stop);
    } else if (root_) {
        root_input(news);
    }
    return {};
}

// The books have a place for every rank and node, so a message must not name another than its own. Orders
// come from the root alone.
Status NodeAgent::check_sender(int source, const AgentMessage& news) const {
    const auto& nodes = context_.topology.node_of_rank;
    if (source < 0 || static_cast<size_t>(source) >= nodes.size())
        return Status(Code::transport,
                      fmt::format("a message came from rank {}, which is not a rank of the job", source));
    const int node = nodes[static_cast<size_t>(source)];
    int named = node;
    if (const auto* captured = std::get_if<NodeCaptured>(&news)) named = captured->node;
    if (const auto* safe = std::get_if<NodeProtected>(&news)) named = safe->node.node;
    if (const auto* flushed = std::get_if<NodeFlushed>(&news)) named = flushed->node.node;
    if (const auto* offered = std::get_if<NodeOffered>(&news)) named = offered->offer.node;
    if (const auto* prepared = std::get_if<NodePrepared>(&news)) named = prepared->node;
    if (std::holds_alternative<GroupOffered>(news)) named = own_group().first_node;
    if (named != node)
        return Status(Code::transport, fmt::format("rank {} of node {} sent a message that is about node {}",
                                                   source, node, named));
    if (source != root &&
        is_one_of<Decision, EpochEnded, ArraysAsked, MayCommit, ArraysFit, EpochProtected>(news))
        return Status(Code::transport, fmt::format("rank {} of node {} sent an order that only rank {} gives",
                                                   source, node, root));
    if (const auto* result = std::get_if<GroupResult>(&news)) {
        const auto group = group_of_node(node, context_.node_count(), context_.config.files);
        if (group.first_node != node || group.index != result->party)
            return Status(
                Code::transport,
                fmt::format("rank {} of node {} sent the result of group {}, which it does not lead", source,
                            node, result->party));
    }
    const auto* captured = std::get_if<Captured>(&news);
    if (captured != nullptr &&
        (node != context_.node || captured->stream.rank != static_cast<uint32_t>(source)))
        return Status(Code::transport, fmt::format("rank {} of node {} told node {} of a capture of rank {}",
                                                   source, node, context_.node, captured->stream.rank));
    return {};
}

Status NodeAgent::on_captured(const Captured& capture) {
    TAILRACE_ASSIGN(const auto complete, node_ledger_.captured(capture));
    auto& epoch = epochs_[capture.key];
    epoch.captures.push_back(capture);
    if (epoch.final()) {
        // The epoch had failed elsewhere before this rank saved it.
        const auto rank = static_cast<int>(capture.stream.rank);
        if (rank == context_.rank())
            (void)own_rank_.hear(*epoch.ended);
        else
            post(rank, *epoch.ended);
        MutexLock lock(mutex_);
        open_.erase(capture.key);
        changed_.notify_all();
    }
    if (complete) on_node_complete(*complete);
    return {};
}

// Some rank closes its session. Others may wait in save for room, which they get when the epochs
// that this rank will never save have failed.
void NodeAgent::on_saves_ended(const SavesEnded& saves) {
    for (const auto& ended : node_ledger_.end_from(saves.sequence, saves_ended_why()))
        on_node_complete(ended);
    to_root(saves);
}

void NodeAgent::on_node_complete(const NodeLedger::Complete& complete) {
    if (complete.news.status.ok()) {
        const EpochKey key = complete.news.keys.front();
        auto& epoch = epochs_[key];
        epoch.complete = true;
        if (protector_ && !epoch.ended && wants_protection(context_, complete.news.sequence)) {
            epoch.protection = Protection::running;
            protector_->start(protect_job_of(context_, key, complete.captures));
        }
        if (context_.config.queue_policy == QueuePolicy::wait) epoch.flush = complete.news.for_shared;
        offer_local(key, epoch);  // the next step may end the epoch
        NodeCaptured news = complete.news;
        news.arrays = arrays_of_node(context_.points, complete.captures);
        to_root(news);
        maybe_start(key, epochs_[key]);
    } else {
        to_root(complete.news);
    }
}

void NodeAgent::on_decision(const Decision& decision) {
    auto& epoch = epochs_[decision.key];
    epoch.flush = decision.flush;
    maybe_start(decision.key, epoch);
}

void NodeAgent::maybe_start(EpochKey key, Epoch& epoch) {
    offer_local(key, epoch);
    if (!epoch.complete || !epoch.flush.value_or(false) || epoch.flushing != Flushing::not_begun ||
        epoch.ended)
        return;
    epoch.flushing = Flushing::queued;
    to_start_.push_back(key);
    start_queued();
}

// Every node starts the same epochs in the same order, so an epoch waits for the protection of those
// before it, too.
void NodeAgent::start_queued() {
    while (!to_start_.empty()) {
        const EpochKey key = to_start_.front();
        auto& epoch = epochs_[key];
        if (epoch.protection == Protection::running && !epoch.ended) return;
        to_start_.pop_front();
        if (!epoch.ended) start(key, epoch);
    }
}

void NodeAgent::start(EpochKey key, Epoch& epoch) {
    FlushJob job;
    if (epoch.recovered) {
        job = std::move(*epoch.recovered);
    } else {
        job.job = context_.config.name;
        job.key = key;
        job.run_uid = context_.run_uid;
        job.rank_count = static_cast<uint32_t>(context_.rank_count());
        for (const auto& capture : epoch.captures)
            job.streams.push_back(
                {shared_stream(capture.stream, capture.apart_bytes), capture.path, part_header_bytes});
        std::sort(job.streams.begin(), job.streams.end(),
                  [](const LocalStream& a, const LocalStream& b) { return a.info.rank < b.info.rank; });
        job.may_commit = false;
    }
    INVARIANT(job.key == key && (epoch.recovered || !job.streams.empty()));
    epoch.flushing = Flushing::running;
    tell_ranks(epoch, EpochFlushing{key});
    aggregator_->start(std::move(job));
    if (epoch.recovered) return;  // was prepared when the session began
    commit_checks_.prepare(key, parts_of(key));
}

void NodeAgent::on_ended(const EpochEnded& ended) {
    auto& epoch = epochs_[ended.key];
    if (epoch.ended) return;
    epoch.ended = ended;
    // Give it up even if its flush has not begun here: peers may have sent messages about it.
    if (ended.state == EpochState::failed && epoch.flushing != Flushing::over)
        aggregator_->give_up(ended.key, ended.why);
    // Nodes that cannot have it whole wait for nobody.
    if (protector_ && ended.state == EpochState::failed) protector_->give_up(ended.key, ended.why);
    start_queued();
    if (epoch.final()) finish(ended.key, epoch);
}

// The flush comes after the protection, whether it has succeeded or not.
void NodeAgent::on_protected(const ProtectResult& result) {
    to_root(report_protection(context_, result));
    auto& epoch = epochs_[result.key];
    epoch.protection = result.status.ok() ? Protection::done : Protection::none;
    offer_local(result.key, epoch);
    start_queued();
    if (epoch.final()) finish(result.key, epoch);
}

// Ranks may hear of the epoch's end first.
void NodeAgent::on_epoch_protected(const EpochProtected& news) {
    for (const int rank : context_.ranks_of_own_node())
        if (rank != context_.rank()) post(rank, news);
    (void)own_rank_.hear(news);
}

void NodeAgent::on_result(const FlushResult& result) {
    report_flush(context_, recorder_.get(), result);
    if (context_.config.record)
        to_root(NodeFlushed{result.key, {context_.node, result.group, result.statistics}});
    auto& epoch = epochs_[result.key];
    const bool was_running = epoch.flushing == Flushing::running;
    epoch.flushing = Flushing::over;
    if (result.coordinator)
        to_root(GroupResult{result.key, result.group, result.status, result.statistics.seconds});
    if (was_running && epoch.final()) finish(result.key, epoch);
}

void NodeAgent::finish(EpochKey key, Epoch& epoch) {
    INVARIANT(epoch.final() && is_final(epoch.ended->state));
    if (epoch.ended->refused) remove_refused(epoch);
    commit_checks_.forget(key);
    plans_.ended(*epoch.ended);
    tell_ranks(epoch, *epoch.ended);
    if (epoch.recovered) own_rank_.recovered(*epoch.ended);
    epoch.captures = {};
    MutexLock lock(mutex_);
    if (!epoch.awaits_plan()) open_.erase(key);  // else on_group_offered() does
    recovering_.erase(key);
    if (epoch.recovered && epoch.ended->state == EpochState::failed && recovery_failure_.ok())
        recovery_failure_ =
            epoch.ended->why.with_context(fmt::format("flushing {}, left by an earlier run", to_string(key)));
    changed_.notify_all();
}

// No restore may find a part of an epoch that cannot be restored, and the next session must not
// flush it.
void NodeAgent::remove_refused(const Epoch& epoch) {
    for (const auto& capture : epoch.captures) {
        const Status removed = remove_if_there(*context_.local, capture.path);
        if (!removed.ok())
            log(LogLevel::warning, "a captured part of {}, which was refused, could not be removed: {}",
                to_string(capture.key), removed.message());
    }
    if (!epoch.captures.empty()) remove_protection(context_, epoch.captures.front().key);
}

// The agent's own rank comes last, because what it hears may make it leave the others.
void NodeAgent::tell_ranks(const Epoch& epoch, const AgentMessage& message) {
    bool own = false;
    for (const auto& capture : epoch.captures) {
        const auto rank = static_cast<int>(capture.stream.rank);
        own |= rank == context_.rank();
        if (rank != context_.rank()) post(rank, message);
    }
    if (own) (void)own_rank_.hear(message);
}

void NodeAgent::post(int rank, const AgentMessage& message) {
    auto posted = context_.transport->post(rank, encode(message));
    if (!posted.ok()) note_failure(posted);
}

void NodeAgent::note_failure(const Status& why) {
    if (failure_.ok()) failure_ = why;
}

// ---- called by the program's threads ------------------------------------------------------------

void NodeAgent::captured(Captured capture) {
    {
        MutexLock lock(mutex_);
        if (!why_ended_.ok()) return;
        open_.insert(capture.key);
        inbox_.push_back(std::move(capture));
    }
    context_.transport->wake();
}

void NodeAgent::end_from(uint64_t sequence_count) {
    {
        MutexLock lock(mutex_);
        end_from_ = sequence_count;
    }
    context_.transport->wake();
}

void NodeAgent::end(const Status& why) {
    {
        MutexLock lock(mutex_);
        end_ = why;
    }
    context_.transport->wake();
}

void NodeAgent::wait_idle() {
    MutexLock lock(mutex_);
    while (!open_.empty()) changed_.wait(lock);
}

void NodeAgent::wait_recovered(EpochKey key) {
    MutexLock lock(mutex_);
    while (recovering_.contains(key)) changed_.wait(lock);
}

bool NodeAgent::recovering(EpochKey key) const {
    MutexLock lock(mutex_);
    return recovering_.contains(key);
}

size_t NodeAgent::open_epochs() const {
    MutexLock lock(mutex_);
    return open_.size();
}

Status NodeAgent::recovery_failure() const {
    MutexLock lock(mutex_);
    return recovery_failure_;
}

Status NodeAgent::why_ended() const {
    MutexLock lock(mutex_);
    return why_ended_;
}

uint64_t NodeAgent::buffer_bytes_used() const {
    MutexLock lock(mutex_);
    return aggregator_ ? aggregator_->most_buffers_used() * context_.config.buffer_bytes : 0;
}

}  // namespace tailrace::internal
