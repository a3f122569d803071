// The protector of a node keeps its epochs in order, passes messages on, and answers the asks of
// other members. What it makes of their data is Keeper's work.
//
// End of an epoch: it is protected when this node's object has its name and all other members have
// said the same. It has failed when anybody says so; then this node tells the others once, waits for
// what is in flight, and removes its object. An ask that is open always gets an answer, also from a
// node for which the epoch has ended, so nobody waits for ever. If the transport breaks, nobody can be
// told anything, and every epoch fails here as soon as its tasks have ended.
#include "protect/protector.h"

#include <fmt/format.h>

#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>

#include "aggregate/graveyard.h"
#include "aggregate/writer_pool.h"
#include "base/invariant.h"
#include "base/log.h"
#include "flush/recent_keys.h"
#include "memory/buffer_pool.h"
#include "protect/keeper.h"
#include "protect/protect_object.h"
#include "protect/protect_together.h"
#include "protect/set_layout.h"
#include "threads/executor.h"
#include "threads/throttle.h"

namespace tailrace::internal {

namespace {

constexpr size_t pool_alignment = 4096;
constexpr uint32_t worker_threads = 2;
constexpr size_t max_fates = 1024;
constexpr size_t begun_at_once = 2;  // one is made while the other one ends
constexpr const char* left_out = "newer epochs came before its turn";

struct Grave {
    std::unique_ptr<BufferPool> pools[2];
    std::list<KeptTransfer> orphans;
};

class NodeProtector final : public Protector {
  public:
    NodeProtector(ProtectorOptions options, Sets sets, Topology topology, int node, Transport& transport,
                  Storage& local, std::unique_ptr<BufferPool> work_pool,
                  std::unique_ptr<BufferPool> send_pool, std::function<void()> wake)
        : options_(std::move(options)),
          sets_(std::move(sets)),
          topology_(std::move(topology)),
          node_(node),
          set_(sets_.set_of(node)),
          position_(sets_.position_of(node)),
          transport_(transport),
          local_(local),
          work_pool_(std::move(work_pool)),
          send_pool_(std::move(send_pool)),
          throttle_(options_.bandwidth_cap),
          workers_(worker_threads, options_.priority, std::move(wake)) {}
    ~NodeProtector() override;

    void start(ProtectJob job) override;
    void handle(int source, std::span<const std::byte> message) override;
    void give_up(EpochKey key, const Status& reason) override;
    void abandon(const Status& reason) override {
        if (broken_.ok()) broken_ = reason;
    }
    Status abandoned() const override { return broken_; }
    bool step() override;
    std::vector<ProtectResult> take_results() override { return std::exchange(results_, {}); }
    bool idle() const override {
        return epochs_.empty() && waiting_.empty() && asked_.empty() && sends_.empty();
    }
    bool moving() const override;
    size_t most_buffers_used() const override { return work_pool_->most_taken() + send_pool_->most_taken(); }

  private:
    struct Asked {
        uint32_t by = 0;
        AskMessage ask;
    };
    struct Send {
        EpochKey key;
        KeptTransfer what;
    };
    uint32_t members() const { return static_cast<uint32_t>(set_.nodes.size()); }
    int rank_of(uint32_t position) const { return topology_.representative(set_.nodes[position]); }
    std::optional<uint32_t> position_of_rank(int rank) const;
    Status here(const Status& status) const { return status.with_context(fmt::format("node {}", node_)); }
    EpochUnderWay* find(EpochKey key);
    void begin(std::deque<ProtectJob>::iterator next);
    bool begin_waiting();
    void end_waiting(EpochKey key);
    void tell(uint32_t position, const ProtectMessage& message);
    void tell_others(const ProtectMessage& message);
    void transport_broke(const Status& why);
    void remember_fate(EpochKey key, const Status& why);
    void add_result(const EpochUnderWay& epoch, const Status& status);

    void take(uint32_t from, const TableMessage& message);
    void take(uint32_t from, const AskMessage& message);
    void take(uint32_t from, const DataMessage& message);
    void take(uint32_t from, const RefusedMessage& message);
    void take(uint32_t from, const DoneMessage& message);
    void take(uint32_t from, const UnprotectedMessage& message);

    void take_table(EpochUnderWay& epoch, uint32_t from, const TableMessage& message);
    void fail(EpochUnderWay& epoch, const Status& why, bool tell_them = true);
    void submit(EpochUnderWay& epoch, std::function<Status()> work,
                std::function<void(EpochUnderWay&, const Status&)> then);
    bool lay_out(EpochUnderWay& epoch);
    bool finish(EpochUnderWay& epoch);
    bool answer_asks();
    void give(EpochUnderWay& epoch, const Asked& asked, Buffer buffer);
    bool test_sends();
    bool test_orphans();
    bool end_epochs();

    const ProtectorOptions options_;
    const Sets sets_;
    const Topology topology_;
    const int node_;
    const ProtectionSet& set_;
    const uint32_t position_;
    Transport& transport_;
    Storage& local_;
    std::unique_ptr<BufferPool> work_pool_, send_pool_;
    Throttle throttle_;
    WriterPool workers_;

    std::list<EpochUnderWay> epochs_;  // those that have begun, in the order in which they were started
    std::deque<ProtectJob> waiting_;   // the others
    bool said_that_some_are_left_out_ = false;
    std::map<EpochKey, Status> fates_;  // of epochs that failed before this node started them
    std::map<EpochKey, std::map<uint32_t, TableMessage>> early_;  // tables that came before the start
    RecentKeys ended_;
    std::deque<Asked> asked_;
    size_t reading_ = 0;
    std::list<Send> sends_;
    std::list<KeptTransfer> orphans_;
    std::vector<ProtectResult> results_;
    uint32_t numbers_ = 0;
    Status broken_;
};

NodeProtector::~NodeProtector() {
    throttle_.close();
    workers_.stop();
    for (auto& epoch : epochs_)
        if (epoch.keeper) epoch.keeper->disconnect(orphans_);
    for (auto& send : sends_) orphans_.push_back(std::move(send.what));
    epochs_.clear();
    sends_.clear();
    (void)test_orphans();
    orphans_.remove_if([](KeptTransfer& orphan) { return orphan.transfer->take_back(); });
    if (orphans_.empty()) return;
    log(LogLevel::warning,
        "the protector of node {} ends with {} transfers under way; their memory is kept until the process "
        "ends",
        node_, orphans_.size());
    auto grave = std::make_shared<Grave>();
    grave->pools[0] = std::move(work_pool_);
    grave->pools[1] = std::move(send_pool_);
    grave->orphans = std::move(orphans_);
    keep_until_exit({std::move(grave)});
}

// ---- epochs -------------------------------------------------------------------------------------

EpochUnderWay* NodeProtector::find(EpochKey key) {
    for (EpochUnderWay& epoch : epochs_)
        if (epoch.key() == key) return &epoch;
    return nullptr;
}

void NodeProtector::add_result(const EpochUnderWay& epoch, const Status& status) {
    ProtectResult result;
    result.key = epoch.key();
    result.status = status;
    result.seconds = std::chrono::duration<double>(SteadyClock::now() - epoch.started).count();
    result.sent_bytes = epoch.sent_bytes;
    if (status.ok() && epoch.writer) result.written_bytes = file_bytes(epoch.writer->head());
    results_.push_back(std::move(result));
}

void NodeProtector::start(ProtectJob job) {
    const EpochKey key = job.identity.key;
    waiting_.push_back(std::move(job));
    if (fates_.contains(key)) end_waiting(key);
    (void)begin_waiting();
}

// The oldest epoch that any node of the set has begun has begun on all, so no node leaves it out.
bool NodeProtector::begin_waiting() {
    bool moved = false;
    while (!waiting_.empty() && (epochs_.size() < begun_at_once || !broken_.ok())) {
        begin(waiting_.begin());
        moved = true;
    }
    while (waiting_.size() > options_.most_waiting) {
        const EpochKey oldest = waiting_.front().identity.key;
        if (node_ == 0 && !std::exchange(said_that_some_are_left_out_, true))
            log(LogLevel::warning, "{} is not protected from the loss of a node, nor may others be: {}. {}",
                to_string(oldest), left_out, "Raise redundancy_every, to protect every n-th save");
        give_up(oldest, Status(Code::aborted, left_out));
        end_waiting(oldest);
    }
    return moved;
}

// Its fate is known, so it has its result at once.
void NodeProtector::end_waiting(EpochKey key) {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const ProtectJob& job) { return job.identity.key == key; });
    if (found != waiting_.end()) begin(found);
}

void NodeProtector::begin(std::deque<ProtectJob>::iterator next) {
    EpochUnderWay fresh;
    fresh.job = std::move(*next);
    waiting_.erase(next);
    const EpochKey key = fresh.key();
    Status why = broken_;
    if (find(key) != nullptr || ended_.has(key))
        why = Status(Code::failed_state, fmt::format("{} was started before", to_string(key)));
    if (set_.redundancy.scheme == Scheme::none) why = Status(Code::unsupported, set_.note);
    if (const auto fate = fates_.find(key); why.ok() && fate != fates_.end()) {
        why = fate->second;
        fates_.erase(fate);
        ended_.add(key);
    }
    if (!why.ok()) {
        early_.erase(key);
        return add_result(fresh, why);
    }
    EpochUnderWay& epoch = epochs_.emplace_back(std::move(fresh));
    const TableMessage own{epoch.job.identity, epoch.job.parts};
    epoch.tables[position_] = own.parts;
    MemberParts member{static_cast<uint32_t>(node_), own.parts};
    std::sort(member.parts.begin(), member.parts.end(),
              [](const StreamInfo& a, const StreamInfo& b) { return a.rank < b.rank; });
    auto part = logical_part(local_, member, epoch.job.paths);
    if (!part.ok()) return fail(epoch, here(part.status()));
    epoch.part = std::move(*part);
    tell_others(own);
    if (const auto early = early_.find(key); early != early_.end()) {
        for (const auto& [from, message] : early->second) take_table(epoch, from, message);
        early_.erase(early);
    }
}

void NodeProtector::give_up(EpochKey key, const Status& reason) {
    if (ended_.has(key) || set_.redundancy.scheme == Scheme::none) return;
    if (EpochUnderWay* epoch = find(key)) return fail(*epoch, here(reason));
    if (!fates_.contains(key)) {
        remember_fate(key, here(reason));
        tell_others(UnprotectedMessage{key, here(reason)});
    }
    end_waiting(key);
}

void NodeProtector::remember_fate(EpochKey key, const Status& why) {
    early_.erase(key);
    fates_.emplace(key, why);
    if (fates_.size() > max_fates) fates_.erase(fates_.begin());
}

void NodeProtector::fail(EpochUnderWay& epoch, const Status& why, bool tell_them) {
    if (!epoch.failure.ok() || why.ok()) return;
    epoch.failure = why;
    if (epoch.keeper) epoch.keeper->fail(why);
    if (tell_them) tell_others(UnprotectedMessage{epoch.key(), why});
}

// Runs `work` on a thread, and then `then`, if the epoch is still there.
void NodeProtector::submit(EpochUnderWay& epoch, std::function<Status()> work,
                           std::function<void(EpochUnderWay&, const Status&)> then) {
    ++epoch.tasks;
    workers_.submit(Urgency::urgent, std::move(work),
                    [this, key = epoch.key(), then = std::move(then)](const Status& outcome) {
                        EpochUnderWay* found = find(key);
                        INVARIANT(found != nullptr && found->tasks > 0);
                        --found->tasks;
                        then(*found, outcome);
                    });
}

// All tables are there: the object can be begun.
bool NodeProtector::lay_out(EpochUnderWay& epoch) {
    if (epoch.layout || epoch.tables.size() < members()) return false;
    std::vector<std::vector<StreamInfo>> parts;
    for (auto& [position, table] : epoch.tables) parts.push_back(table);
    auto layout = std::make_shared<SetLayout>(set_, epoch.job.identity, std::move(parts));
    epoch.layout = layout;
    // The other members' tables came by messages: are they such that a reader would believe them?
    auto head = layout->head_of(position_);
    ByteWriter writer;
    put_tables(writer, head);
    ByteReader reader(writer.bytes());
    if (const auto checked = get_tables(reader); !checked.ok()) {
        fail(epoch, here(checked.status()));
        return true;
    }
    auto made = std::make_shared<std::shared_ptr<ObjectWriter>>();
    submit(
        epoch,
        [this, head = std::move(head), made]() mutable -> Status {
            TAILRACE_ASSIGN(*made,
                            ObjectWriter::create(local_, options_.directory, std::move(head), options_.sync));
            return {};
        },
        [this, made](EpochUnderWay& opened, const Status& outcome) {
            if (!outcome.ok()) return fail(opened, here(outcome));
            opened.writer = *made;
            KeeperServices services{
                transport_,
                *work_pool_,
                workers_,
                [this](uint32_t position) { return rank_of(position); },
                [this](uint32_t position, const ProtectMessage& message) { tell(position, message); },
                [this](const Status& why) { transport_broke(why); },
                numbers_};
            opened.keeper =
                std::make_unique<Keeper>(std::move(services), opened.layout, position_, opened.writer);
            opened.keeper->fail(opened.failure);
        });
    return true;
}

bool NodeProtector::finish(EpochUnderWay& epoch) {
    if (epoch.finishing || !epoch.failure.ok() || !epoch.made()) return false;
    epoch.finishing = true;
    submit(
        epoch, [writer = epoch.writer] { return writer->finish(); },
        [this](EpochUnderWay& finished, const Status& outcome) {
            if (!outcome.ok()) return fail(finished, here(outcome));
            if (!finished.failure.ok()) return;
            finished.done.insert(position_);
            tell_others(DoneMessage{finished.key()});
        });
    return true;
}

// ---- messages -----------------------------------------------------------------------------------

std::optional<uint32_t> NodeProtector::position_of_rank(int rank) const {
    if (rank < 0 || static_cast<size_t>(rank) >= topology_.node_of_rank.size()) return std::nullopt;
    const int node = topology_.node_of_rank[static_cast<size_t>(rank)];
    if (node == node_ || topology_.representative(node) != rank || &sets_.set_of(node) != &set_)
        return std::nullopt;
    return sets_.position_of(node);
}

void NodeProtector::tell(uint32_t position, const ProtectMessage& message) {
    if (!broken_.ok()) return;
    if (auto posted = transport_.post(rank_of(position), encode(message)); !posted.ok())
        transport_broke(posted);
}

void NodeProtector::tell_others(const ProtectMessage& message) {
    for (uint32_t position = 0; position < members(); ++position)
        if (position != position_) tell(position, message);
}

void NodeProtector::transport_broke(const Status& why) {
    if (!broken_.ok()) return;
    broken_ = why;
    log(LogLevel::error, "node {} can no longer take part in protecting epochs: {}", node_, why.message());
}

void NodeProtector::handle(int source, std::span<const std::byte> message) {
    if (!broken_.ok()) return;
    auto decoded = decode_protect_message(message);
    const auto from = position_of_rank(source);
    if (!decoded.ok()) return transport_broke(decoded.status().with_context(fmt::format("rank {}", source)));
    if (!from)
        return transport_broke(Status(Code::transport, fmt::format("rank {} is in no set with node {}, but "
                                                                   "sends messages to it",
                                                                   source, node_)));
    std::visit([&](const auto& body) { take(*from, body); }, *decoded);
}

void NodeProtector::take(uint32_t from, const TableMessage& message) {
    const EpochKey key = message.identity.key;
    if (ended_.has(key) || fates_.contains(key)) return;
    if (EpochUnderWay* epoch = find(key)) return take_table(*epoch, from, message);
    early_[key].emplace(from, message);
    if (early_.size() > max_fates) early_.erase(early_.begin());
}

void NodeProtector::take_table(EpochUnderWay& epoch, uint32_t from, const TableMessage& message) {
    if (message.identity != epoch.job.identity)
        return fail(epoch, here(Status(Code::failed_state,
                                       fmt::format("node {} has captured {} in another run, or elsewhere",
                                                   set_.nodes[from], to_string(epoch.key())))));
    epoch.tables.emplace(from, message.parts);
}

void NodeProtector::take(uint32_t from, const AskMessage& message) {
    asked_.push_back({from, message});
}

void NodeProtector::take(uint32_t from, const DataMessage& message) {
    EpochUnderWay* epoch = find(message.key);
    if (epoch != nullptr && epoch->keeper) return epoch->keeper->take(from, message);
    transport_broke(Status(Code::transport, fmt::format("node {} sends data of {} that no node has requested",
                                                        set_.nodes[from], to_string(message.key))));
}

void NodeProtector::take(uint32_t from, const RefusedMessage& message) {
    if (EpochUnderWay* epoch = find(message.key); epoch != nullptr && epoch->keeper)
        epoch->keeper->take(from, message);
}

void NodeProtector::take(uint32_t from, const DoneMessage& message) {
    if (EpochUnderWay* epoch = find(message.key)) epoch->done.insert(from);
}

void NodeProtector::take(uint32_t, const UnprotectedMessage& message) {
    if (ended_.has(message.key)) return;
    if (EpochUnderWay* epoch = find(message.key)) return fail(*epoch, message.why, false);
    if (!fates_.contains(message.key)) remember_fate(message.key, message.why);
    end_waiting(message.key);
}

// ---- giving to others ---------------------------------------------------------------------------

bool NodeProtector::answer_asks() {
    bool moved = false;
    while (!asked_.empty()) {
        const Asked asked = asked_.front();
        EpochUnderWay* epoch = find(asked.ask.key);
        const bool sound = epoch != nullptr && epoch->part && asked.ask.bytes > 0 &&
                           asked.ask.bytes <= protect_buffer_bytes &&
                           asked.ask.offset <= epoch->part->bytes() &&
                           asked.ask.bytes <= epoch->part->bytes() - asked.ask.offset;
        if (!sound || !epoch->failure.ok()) {
            tell(asked.by, RefusedMessage{asked.ask.key, asked.ask.number,
                                          epoch != nullptr ? epoch->failure : Status()});
        } else {
            Buffer buffer = send_pool_->try_take();
            if (!buffer.valid()) break;
            give(*epoch, asked, std::move(buffer));
        }
        asked_.pop_front();
        moved = true;
    }
    return moved;
}

void NodeProtector::give(EpochUnderWay& epoch, const Asked& asked, Buffer taken) {
    ++epoch.giving;
    ++reading_;
    auto buffer = std::make_shared<Buffer>(std::move(taken));
    workers_.submit(
        Urgency::relaxed,
        [this, part = epoch.part, ask = asked.ask, buffer] {
            (void)throttle_.pass(ask.bytes);
            return part->read(ask.offset, buffer->memory().first(ask.bytes));
        },
        [this, asked, buffer](const Status& outcome) {
            --reading_;
            EpochUnderWay* found = find(asked.ask.key);
            INVARIANT(found != nullptr && found->giving > 0);
            if (!outcome.ok()) fail(*found, here(outcome));
            if (!found->failure.ok() || !broken_.ok()) {
                --found->giving;
                return tell(asked.by, RefusedMessage{asked.ask.key, asked.ask.number, found->failure});
            }
            tell(asked.by, DataMessage{asked.ask.key, asked.ask.number});
            auto transfer = transport_.start_send(rank_of(asked.by), protect_tag(asked.ask.number),
                                                  buffer->memory().first(asked.ask.bytes));
            if (!transfer.ok()) {
                --found->giving;
                return transport_broke(transfer.status());
            }
            sends_.push_back({asked.ask.key, {buffer, std::move(transfer).value()}});
        });
}

bool NodeProtector::test_sends() {
    bool moved = false;
    for (auto send = sends_.begin(); send != sends_.end();) {
        auto done = send->what.transfer->test();
        if (!done.ok()) {
            // It stays with its buffer, which the transport may still read.
            transport_broke(done.status());
            return moved;
        }
        if (!done->has_value()) {
            ++send;
            continue;
        }
        EpochUnderWay* epoch = find(send->key);
        INVARIANT(epoch != nullptr && epoch->giving > 0);
        --epoch->giving;
        epoch->sent_bytes += **done;
        send = sends_.erase(send);
        moved = true;
    }
    return moved;
}

// ---- moving -------------------------------------------------------------------------------------

bool NodeProtector::step() {
    bool moved = workers_.run_finished();
    moved = test_sends() || moved;
    moved = test_orphans() || moved;
    moved = answer_asks() || moved;
    bool may_begin = true;
    for (EpochUnderWay& epoch : epochs_) {
        if (!broken_.ok()) fail(epoch, broken_, false);
        if (epoch.failure.ok()) moved = lay_out(epoch) || moved;
        if (epoch.keeper) {
            moved = epoch.keeper->step(may_begin) || moved;
            if (!epoch.keeper->failure().ok()) fail(epoch, here(epoch.keeper->failure()));
        }
        moved = finish(epoch) || moved;
        if (epoch.failure.ok() && !epoch.made()) may_begin = false;
    }
    if (!broken_.ok()) {
        for (EpochUnderWay& epoch : epochs_)
            if (epoch.keeper) epoch.keeper->disconnect(orphans_);
        for (auto& send : sends_) {
            if (EpochUnderWay* epoch = find(send.key)) --epoch->giving;
            orphans_.push_back(std::move(send.what));
        }
        sends_.clear();
        asked_.clear();
    }
    moved = end_epochs() || moved;
    return begin_waiting() || moved;
}

bool NodeProtector::test_orphans() {
    const size_t before = orphans_.size();
    orphans_.remove_if([](KeptTransfer& orphan) {
        auto done = orphan.transfer->test();
        return done.ok() ? done->has_value() : orphan.transfer->take_back();
    });
    return orphans_.size() != before;
}

bool NodeProtector::end_epochs() {
    bool moved = false;
    for (auto epoch = epochs_.begin(); epoch != epochs_.end();) {
        const bool all_done = epoch->failure.ok() && epoch->done.size() == members();
        if ((epoch->failure.ok() && !all_done) || !epoch->nothing_in_flight()) {
            ++epoch;
            continue;
        }
        if (!epoch->failure.ok() && epoch->writer && !epoch->discarded) {
            if (!std::exchange(epoch->discarding, true))
                submit(
                    *epoch,
                    [writer = epoch->writer] {
                        writer->discard();
                        return Status();
                    },
                    [](EpochUnderWay& gone, const Status&) { gone.discarded = true; });
            ++epoch;
            continue;
        }
        add_result(*epoch, epoch->failure);
        ended_.add(epoch->key());
        epoch = epochs_.erase(epoch);
        moved = true;
    }
    return moved;
}

bool NodeProtector::moving() const {
    if (!sends_.empty() || !asked_.empty() || reading_ > 0) return true;
    for (const EpochUnderWay& epoch : epochs_)
        if (epoch.keeper && epoch.keeper->moving()) return true;
    return false;
}

}  // namespace

Result<std::unique_ptr<Protector>> Protector::create(ProtectorOptions options, Sets sets, Topology topology,
                                                     int node, Transport& transport, Storage& local,
                                                     std::function<void()> wake) {
    if (node < 0 || static_cast<size_t>(node) >= sets.of_node.size() || sets.sets.empty())
        return Status(Code::invalid_argument,
                      fmt::format("node {} is in none of {} sets", node, sets.sets.size()));
    TAILRACE_ASSIGN(auto work_pool, BufferPool::create(protect_sums + protect_receives, protect_buffer_bytes,
                                                       pool_alignment));
    TAILRACE_ASSIGN(auto send_pool, BufferPool::create(protect_sends, protect_buffer_bytes, pool_alignment));
    return std::unique_ptr<Protector>(
        new NodeProtector(std::move(options), std::move(sets), std::move(topology), node, transport, local,
                          std::move(work_pool), std::move(send_pool), std::move(wake)));
}

}  // namespace tailrace::internal
