// The aggregator of a node keeps its jobs in order, passes each message on to the role that it is
// for, and lets each role move. The roles do the work: Coordinator decides how the group's flush
// ends, and Leader and Follower move data.
//
// Order between epochs: several epochs may be in flight, but a node takes buffers for an epoch only
// when earlier epochs need no more. So the oldest epoch of a group can always go on, because it
// never waits for a buffer that a later epoch holds.
//
// End of a job: the coordinator's RESULT decides. The node hands out the job's result when it has
// nothing of the job in flight any more. If the transport breaks, nobody can be told anything:
// every job fails here with that reason as soon as its tasks have ended.
#include "aggregate/aggregator.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <list>
#include <map>

#include "aggregate/coordinator.h"
#include "aggregate/epoch_ending.h"
#include "aggregate/follower.h"
#include "aggregate/graveyard.h"
#include "aggregate/leader.h"
#include "aggregate/node_services.h"
#include "base/caught.h"
#include "base/invariant.h"
#include "base/log.h"
#include "flush/recorded_plan.h"

namespace tailrace::internal {

namespace {

constexpr size_t pool_alignment = 4096;
constexpr size_t max_fates = 1024;

struct Epoch {
    FlushJob job;
    Clock::time_point started = Clock::now();
    Clock::time_point planned{};
    std::unique_ptr<EpochEnding> ending;
    std::shared_ptr<const FlushPlan> plan;
    std::unique_ptr<Leader> leader;
    std::unique_ptr<Follower> follower;
    // Credits that came before the plan, each with its leader's node.
    std::deque<std::pair<int, uint32_t>> early_credits;
    Status failure;              // once it is set, nothing new is begun
    bool segment_ended = false;  // and `ending` knows it
    std::optional<Status> fate;  // how the flush ended

    bool nothing_in_flight() const {
        return (!leader || leader->done()) && (!follower || follower->nothing_in_flight());
    }
    bool has_role() const { return leader || follower; }
    bool wants_buffers() const {
        if (fate) return false;
        if (!has_role()) return true;  // it will want them when it has its plan
        return (leader && leader->wants_buffers()) || (follower && follower->wants_buffers());
    }
};

// Memory that the transport may still write to when an aggregator is destroyed. It is kept until
// the process ends.
struct Grave {
    std::unique_ptr<BufferPool> pool;
    std::list<Orphan> orphans;
};

class NodeAggregator final : public Aggregator {
  public:
    NodeAggregator(AggregatorOptions options, Topology topology, int node, Transport& transport,
                   Storage& local, Storage& shared, std::unique_ptr<BufferPool> pool,
                   std::function<void()> wake);
    ~NodeAggregator() override;

    void start(FlushJob job) override;
    void handle(int source, std::span<const std::byte> message) override;
    void allow(EpochKey key) override;
    void give_up(EpochKey key, Status reason) override;
    void abandon(const Status& reason) override {
        if (broken_.ok()) broken_ = reason;
    }
    Status abandoned() const override { return broken_; }
    bool step() override;
    std::vector<FlushResult> take_results() override { return std::exchange(results_, {}); }
    std::vector<std::shared_ptr<const FlushPlan>> take_plans() override { return std::exchange(plans_, {}); }
    bool idle() const override;
    bool moving() const override;
    size_t most_buffers_used() const override { return pool_->most_taken(); }
    uint64_t bytes_under_way() const override;

  private:
    Epoch* find(EpochKey key);
    void tell(int node, const AggregatorMessage& message);
    void transport_broke(const Status& why);
    void finish_unstarted(const FlushJob& job, const Status& why);
    bool remember_fate(EpochKey key, const Status& why);  // returns whether it is news

    void deliver(int node, const AggregatorMessage& message);
    void take(int node, const OfferMessage& message) { coordinator_.take(node, message); }
    void take(int node, const SegmentMessage& message) { coordinator_.take(node, message); }
    void take(int, const FailedMessage& message) { coordinator_.take(message); }
    void take(int node, const PlanMessage& message);
    void take(int node, const CreditMessage& message);
    void take(int node, const ChunkMessage& message);
    void take(int node, const EmptyMessage& message);
    void take(int node, const AbortMessage& message);
    void take(int node, const ResultMessage& message);

    void start_alone(Epoch& epoch);
    void begin_role(Epoch& epoch);
    void follow(Epoch& epoch, uint64_t chunk_bytes);
    void refuse_plan(Epoch& epoch, const Status& why);
    void fail(Epoch& epoch, const Status& why);
    bool advance(Epoch& epoch, bool may_take_buffers);
    bool deliver_own();
    bool test_orphans();
    bool end_epochs();

    Coordinator::Effects coordinator_effects();
    void remove_files(std::shared_ptr<const FlushPlan> plan, std::function<void()> then);

    const AggregatorOptions options_;
    const Topology topology_;
    const int node_;
    const Group group_;
    Transport& transport_;
    Storage& shared_;
    std::unique_ptr<BufferPool> pool_;
    Throttle throttle_;
    WriterPool writers_;
    NodeServices services_;
    Coordinator coordinator_;  // idle except on the group's first node

    std::list<Epoch> epochs_;           // in the order in which they were started
    std::map<EpochKey, Status> fates_;  // of epochs that failed before this node started them
    RecentKeys ended_;
    std::deque<AggregatorMessage> inbox_;  // messages from this node to itself
    std::list<Orphan> orphans_;
    // Made beforehand, because a destructor must not need memory.
    const std::shared_ptr<Grave> grave_ = std::make_shared<Grave>();
    std::list<std::shared_ptr<void>> kept_{grave_};
    uint32_t credit_counter_ = 0;
    Status broken_;
    std::vector<FlushResult> results_;
    std::vector<std::shared_ptr<const FlushPlan>> plans_;
};

NodeAggregator::NodeAggregator(AggregatorOptions options, Topology topology, int node, Transport& transport,
                               Storage& local, Storage& shared, std::unique_ptr<BufferPool> pool,
                               std::function<void()> wake)
    : options_(std::move(options)),
      topology_(std::move(topology)),
      node_(node),
      group_(group_of_node(node, topology_.node_count(), options_.plan.file_count)),
      transport_(transport),
      shared_(shared),
      pool_(std::move(pool)),
      throttle_(options_.cap ? options_.cap : std::make_shared<BandwidthCap>(0)),
      writers_(options_.writers, options_.priority, std::move(wake)),
      services_{options_,
                topology_,
                node_,
                transport_,
                local,
                shared_,
                *pool_,
                throttle_,
                writers_,
                [this](int target, const AggregatorMessage& message) { tell(target, message); },
                [this](const Status& why) { transport_broke(why); },
                [this](auto plan, auto then) { remove_files(std::move(plan), std::move(then)); }},
      coordinator_(group_, options_.plan, coordinator_effects()) {
    keep_until_exit({});  // the destructor may have no memory to make its place
    shared_.use_memory(pool_->region());
}

NodeAggregator::~NodeAggregator() {
    throttle_.close();
    writers_.stop();
    shared_.forget_memory();
    for (Epoch& epoch : epochs_) {
        if (epoch.leader) epoch.leader->disconnect(orphans_);
        if (epoch.follower) epoch.follower->disconnect(orphans_);
    }
    epochs_.clear();
    (void)catching([&] { (void)test_orphans(); });
    orphans_.remove_if([](Orphan& orphan) { return orphan.transfer->take_back(); });
    if (orphans_.empty()) return;
    log(LogLevel::warning,
        "the aggregator of node {} ends with {} transfers under way; their memory is kept until the process "
        "ends",
        node_, orphans_.size());
    grave_->pool = std::move(pool_);
    grave_->orphans.splice(grave_->orphans.end(), orphans_);
    keep_until_exit(std::move(kept_));
}

// ---- jobs ---------------------------------------------------------------------------------------

void NodeAggregator::start(FlushJob job) {
    const EpochKey key = job.key;
    if (!broken_.ok()) return finish_unstarted(job, broken_);
    if (find(key) != nullptr || ended_.has(key)) {
        return finish_unstarted(
            job, Status(Code::failed_state, fmt::format("{} was started before", to_string(key))));
    }
    if (auto known = fates_.find(key); known != fates_.end()) {
        finish_unstarted(job, known->second);
        fates_.erase(known);
        ended_.add(key);
        return;
    }
    Epoch& epoch = epochs_.emplace_back();
    epoch.job = std::move(job);
    if (epoch.job.offers) return start_alone(epoch);

    epoch.ending = make_group_ending(services_, group_.first_node, key);
    OfferMessage offer;
    offer.key = key;
    offer.job = epoch.job.job;
    offer.run_uid = epoch.job.run_uid;
    offer.rank_count = epoch.job.rank_count;
    offer.offer.node = node_;
    for (const LocalStream& stream : epoch.job.streams) offer.offer.streams.push_back(stream.info);
    offer.refused = epoch.job.refused;
    tell(group_.first_node, offer);
}

void NodeAggregator::finish_unstarted(const FlushJob& job, const Status& why) {
    results_.push_back({job.key, why, node_ == group_.first_node, group_.index, {}});
}

// Every node of the group leads, and the plan follows from the offers alone. So no node needs to
// hear how far the others are.
void NodeAggregator::start_alone(Epoch& epoch) {
    const FlushJob& job = epoch.job;
    if (!job.refused.ok()) {
        epoch.fate = services_.here(job.refused);
        return;
    }
    auto plan =
        make_solo_plan(job.job, job.key, job.run_uid, job.rank_count, group_, *job.offers, options_.plan);
    if (!plan.ok()) {
        epoch.fate = plan.status();
        return;
    }
    INVARIANT(plan->leader_index(node_) >= 0);
    if (const Status other = check_own_offer(*plan, job, node_); !other.ok()) {
        epoch.fate = services_.here(other);
        return;
    }
    epoch.plan = std::make_shared<const FlushPlan>(std::move(plan).value());
    epoch.ending = make_lone_ending(services_, epoch.plan, [this, key = job.key](const Status& outcome) {
        if (Epoch* ended = find(key)) ended->fate = outcome;
    });
    begin_role(epoch);
}

void NodeAggregator::begin_role(Epoch& epoch) {
    epoch.planned = Clock::now();
    plans_.push_back(epoch.plan);
    if (epoch.plan->leader_index(node_) < 0) return follow(epoch, epoch.plan->chunk_bytes);
    auto reader = std::make_shared<LocalReader>(services_.local, epoch.job.streams, epoch.plan->chunk_bytes);
    epoch.leader = std::make_unique<Leader>(services_, epoch.plan, reader, credit_counter_);
    if (epoch.job.may_commit) epoch.leader->allow();
    if (!epoch.failure.ok()) epoch.leader->fail(epoch.failure);
}

void NodeAggregator::follow(Epoch& epoch, uint64_t chunk_bytes) {
    auto reader = std::make_shared<LocalReader>(services_.local, epoch.job.streams, chunk_bytes);
    epoch.follower = std::make_unique<Follower>(services_, epoch.job.key, reader);
    if (!epoch.failure.ok()) epoch.follower->fail(epoch.failure);
    for (auto [leader_node, credit] : epoch.early_credits) epoch.follower->take_credit(leader_node, credit);
    epoch.early_credits.clear();
}

// A node that cannot carry out its plan moves no data. But it answers what others may wait for: the
// credits of leaders, and the segment of a node that was to lead.
void NodeAggregator::refuse_plan(Epoch& epoch, const Status& why) {
    fail(epoch, why);
    epoch.ending->segment_ended(epoch.failure, {});
    follow(epoch, options_.plan.chunk_bytes);
}

// Most fates are asked for soon. Those of epochs that this node never starts must not pile up.
bool NodeAggregator::remember_fate(EpochKey key, const Status& why) {
    const bool is_new = fates_.emplace(key, why).second;
    if (fates_.size() > max_fates) fates_.erase(fates_.begin());
    return is_new;
}

void NodeAggregator::allow(EpochKey key) {
    Epoch* epoch = find(key);
    if (epoch == nullptr) return;
    epoch->job.may_commit = true;
    if (epoch->leader) epoch->leader->allow();
}

void NodeAggregator::give_up(EpochKey key, Status reason) {
    if (ended_.has(key) || !broken_.ok()) return;
    if (reason.ok()) reason = Status(Code::aborted, fmt::format("{} was given up", to_string(key)));
    if (Epoch* epoch = find(key)) {
        if (!epoch->fate) fail(*epoch, services_.here(reason));
        return;
    }
    const bool is_new = remember_fate(key, services_.here(reason));
    if (is_new && transport_.concurrent())
        tell(group_.first_node, FailedMessage{key, services_.here(reason)});
}

// Handles a failure that this node has seen.
void NodeAggregator::fail(Epoch& epoch, const Status& why) {
    if (!epoch.failure.ok()) return;
    epoch.failure = why;
    if (epoch.leader) epoch.leader->fail(why);
    if (epoch.follower) epoch.follower->fail(why);
    epoch.ending->failed(why);
}

Epoch* NodeAggregator::find(EpochKey key) {
    auto found = std::find_if(epochs_.begin(), epochs_.end(),
                              [key](const Epoch& epoch) { return epoch.job.key == key; });
    return found == epochs_.end() ? nullptr : &*found;
}

// ---- messages -----------------------------------------------------------------------------------

void NodeAggregator::tell(int node, const AggregatorMessage& message) {
    if (!broken_.ok()) return;
    if (node == node_) {
        inbox_.push_back(message);
        return;
    }
    if (Status posted = transport_.post(topology_.representative(node), encode(message)); !posted.ok()) {
        transport_broke(posted.with_context(fmt::format("telling node {} {}", node, name_of(message))));
    }
}

void NodeAggregator::handle(int source, std::span<const std::byte> bytes) {
    if (!broken_.ok()) return;
    auto message = decode_aggregator_message(bytes);
    if (!message.ok())
        return transport_broke(message.status().with_context(fmt::format("from rank {}", source)));
    if (source < 0 || static_cast<size_t>(source) >= topology_.node_of_rank.size()) {
        return transport_broke(
            Status(Code::transport,
                   fmt::format("a message came from rank {}, which is not a rank of the job", source)));
    }
    const int node = topology_.node_of_rank[static_cast<size_t>(source)];
    if (const Status wrong = check_way(*message, node, node_, group_); !wrong.ok())
        return transport_broke(wrong);
    deliver(node, *message);
}

void NodeAggregator::deliver(int node, const AggregatorMessage& message) {
    std::visit([&](const auto& body) { take(node, body); }, message);
}

bool NodeAggregator::deliver_own() {
    bool moved = false;
    while (!inbox_.empty()) {
        const AggregatorMessage message = std::move(inbox_.front());
        inbox_.pop_front();
        deliver(node_, message);
        moved = true;
    }
    return moved;
}

void NodeAggregator::take(int, const PlanMessage& message) {
    Epoch* epoch = find(message.plan.key);
    if (epoch == nullptr || epoch->has_role() || epoch->fate) return;
    const Status fits = check_fits(message.plan, epoch->job, group_, node_, options_.plan);
    if (!fits.ok()) return refuse_plan(*epoch, services_.here(fits));
    epoch->plan = std::make_shared<const FlushPlan>(message.plan);
    begin_role(*epoch);
}

void NodeAggregator::take(int node, const CreditMessage& message) {
    Epoch* epoch = find(message.key);
    if (epoch == nullptr) {
        // No leader should ask for an epoch that has ended. If one does all the same, it must not
        // wait for ever.
        const Status ended(Code::aborted,
                           fmt::format("{} has ended on node {}", to_string(message.key), node_));
        tell(node, EmptyMessage{message.key, message.credit, ended});
    } else if (epoch->follower) {
        epoch->follower->take_credit(node, message.credit);
    } else if (!epoch->has_role()) {
        // It overtook the coordinator's plan.
        epoch->early_credits.emplace_back(node, message.credit);
    }
}

void NodeAggregator::take(int node, const ChunkMessage& message) {
    Epoch* epoch = find(message.key);
    if (epoch != nullptr && epoch->leader) epoch->leader->take(node, message);
}
void NodeAggregator::take(int node, const EmptyMessage& message) {
    Epoch* epoch = find(message.key);
    if (epoch != nullptr && epoch->leader) epoch->leader->take(node, message);
}

void NodeAggregator::take(int, const AbortMessage& message) {
    Epoch* epoch = find(message.key);
    if (epoch == nullptr || !epoch->failure.ok()) return;
    epoch->failure = message.why;
    if (epoch->leader) epoch->leader->fail(message.why);
    if (epoch->follower) epoch->follower->fail(message.why);
}

void NodeAggregator::take(int, const ResultMessage& message) {
    if (ended_.has(message.key)) return;
    if (Epoch* epoch = find(message.key)) {
        if (!epoch->fate) epoch->fate = message.status;
    } else if (!message.status.ok()) {
        (void)remember_fate(message.key, message.status);  // failed before this node started it
    }
}

void NodeAggregator::transport_broke(const Status& why) {
    if (!broken_.ok()) return;
    broken_ = why;
    log(LogLevel::error, "node {} can no longer take part in flushes: {}", node_, why.message());
}

// ---- moving -------------------------------------------------------------------------------------

bool NodeAggregator::step() {
    bool moved = writers_.run_finished();
    moved = deliver_own() || moved;
    moved = test_orphans() || moved;
    bool may_take_buffers = true;
    for (Epoch& epoch : epochs_) {
        moved = advance(epoch, may_take_buffers) || moved;
        if (epoch.wants_buffers()) may_take_buffers = false;
    }
    moved = deliver_own() || moved;
    return end_epochs() || moved;
}

uint64_t NodeAggregator::bytes_under_way() const {
    uint64_t bytes = 0;
    for (const Epoch& epoch : epochs_)
        if (epoch.leader) bytes += epoch.leader->bytes_written();
    return bytes;
}

bool NodeAggregator::advance(Epoch& epoch, bool may_take_buffers) {
    bool moved = false;
    if (!broken_.ok() && !epoch.fate && epoch.ending->needs_transport()) {
        epoch.fate = broken_;
        if (epoch.leader) epoch.leader->fail(broken_);
        if (epoch.follower) epoch.follower->fail(broken_);
    }
    if (!broken_.ok()) {
        if (epoch.leader) epoch.leader->disconnect(orphans_);
        if (epoch.follower) epoch.follower->disconnect(orphans_);
    }
    if (epoch.leader) {
        moved = epoch.leader->step(may_take_buffers) || moved;
        if (!epoch.leader->failure().ok()) fail(epoch, epoch.leader->failure());
        if (epoch.leader->done() && !epoch.segment_ended) {
            epoch.segment_ended = true;
            epoch.ending->segment_ended(epoch.leader->failure(), epoch.leader->segment().written());
            moved = true;
        }
    }
    if (epoch.follower) {
        moved = epoch.follower->step(may_take_buffers) || moved;
        if (!epoch.follower->failure().ok()) fail(epoch, epoch.follower->failure());
    }
    return moved;
}

bool NodeAggregator::test_orphans() {
    const size_t before = orphans_.size();
    orphans_.remove_if([](Orphan& orphan) {
        auto done = orphan.transfer->test();
        return done.ok() ? done->has_value() : orphan.transfer->take_back();
    });
    return orphans_.size() != before;
}

bool NodeAggregator::end_epochs() {
    bool moved = false;
    for (auto epoch = epochs_.begin(); epoch != epochs_.end();) {
        if (!epoch->fate || !epoch->nothing_in_flight()) {
            ++epoch;
            continue;
        }
        FlushResult result;
        result.key = epoch->job.key;
        result.status = *epoch->fate;
        result.coordinator = node_ == group_.first_node;
        result.group = group_.index;
        if (epoch->leader) {
            result.statistics = epoch->leader->statistics();
            result.statistics.plan_seconds +=
                std::chrono::duration<double>(epoch->planned - epoch->started).count();
        }
        if (epoch->follower) result.statistics = epoch->follower->statistics();
        result.statistics.seconds = std::chrono::duration<double>(Clock::now() - epoch->started).count();
        results_.push_back(std::move(result));
        ended_.add(epoch->job.key);
        epoch = epochs_.erase(epoch);
        moved = true;
    }
    return moved;
}

Coordinator::Effects NodeAggregator::coordinator_effects() {
    Coordinator::Effects effects;
    effects.tell = [this](int node, const AggregatorMessage& message) { tell(node, message); };
    effects.discard = [this](std::shared_ptr<const FlushPlan> plan) {
        remove_files(plan, [this, key = plan->key] { coordinator_.discarded(key); });
    };
    return effects;
}

void NodeAggregator::remove_files(std::shared_ptr<const FlushPlan> plan, std::function<void()> then) {
    writers_.submit(
        Urgency::urgent,
        [this, plan = std::move(plan)] {
            discard(shared_, options_.shared_dir, *plan, options_.working_name);
            return Status();
        },
        [then = std::move(then)](const Status&) { then(); });
}

bool NodeAggregator::idle() const {
    return epochs_.empty() && inbox_.empty() && (coordinator_.idle() || !broken_.ok());
}

bool NodeAggregator::moving() const {
    return std::any_of(epochs_.begin(), epochs_.end(), [](const Epoch& epoch) {
        return (epoch.leader && epoch.leader->moving()) || (epoch.follower && epoch.follower->moving());
    });
}

}  // namespace

Result<std::unique_ptr<Aggregator>> Aggregator::create(AggregatorOptions options, Topology topology, int node,
                                                       Transport& transport, Storage& local, Storage& shared,
                                                       std::function<void()> wake) {
    const PlanSettings& plan = options.plan;
    if (node < 0 || node >= topology.node_count() || plan.file_count == 0 || plan.file_count > max_files ||
        options.writers == 0 || plan.block_bytes == 0 || plan.chunk_bytes % plan.block_bytes != 0) {
        return Status(
            Code::invalid_argument,
            fmt::format("an aggregator for node {} of {} with {} files, {} writers, buffers of {} "
                        "bytes and blocks of {} bytes cannot be made: each number must be at least one, "
                        "and a buffer must hold whole blocks",
                        node, topology.node_count(), plan.file_count, options.writers, plan.chunk_bytes,
                        plan.block_bytes));
    }
    TAILRACE_ASSIGN(auto pool, BufferPool::create(options.buffers, plan.chunk_bytes, pool_alignment));
    return std::unique_ptr<Aggregator>(new NodeAggregator(std::move(options), std::move(topology), node,
                                                          transport, local, shared, std::move(pool),
                                                          std::move(wake)));
}

bool is_aggregator_message(std::span<const std::byte> message) {
    return !message.empty() && message.front() == aggregator_message_mark;
}

}  // namespace tailrace::internal
