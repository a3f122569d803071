#include "carrier/agent_world.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/caught.h"
#include "base/log.h"
#include "threads/executor.h"
#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

using namespace std::chrono_literals;

enum class Kind : uint8_t { message, data, done, all_done, leaving };

// Transports tell that many transfers between two ranks apart.
constexpr uint32_t world_tags = 1 << 14;
// The largest buffer that a session may have (config.cc). Data that nobody wants is received in memory of
// this size at most.
constexpr uint64_t most_data_bytes = uint64_t{1} << 30;
// How long a transfer that was given up is driven on, so that its memory is free again.
constexpr auto longest_take_back = 5s;

std::vector<std::byte> frame(Kind kind, const CarriedAddress& target, int source_rank,
                             std::span<const std::byte> body = {}) {
    ByteWriter out;
    out.put(static_cast<uint8_t>(kind));
    out.put(target.session);
    out.put(target.node);
    out.put(static_cast<uint32_t>(source_rank));
    out.put_bytes(body);
    return out.take();
}

}  // namespace

// ---- transfers ----------------------------------------------------------------------------------

class AgentWorld::WorldTransfer final : public Transfer {
  public:
    WorldTransfer(std::shared_ptr<AgentWorld> world, std::optional<Channel> channel,
                  std::shared_ptr<Side> side)
        : world_(std::move(world)), channel_(channel), side_{std::move(side)} {}
    ~WorldTransfer() override { world_->abandon(side_); }

    Result<std::optional<uint64_t>> test() override {
        MutexLock lock(world_->mutex_);
        auto& side = *side_.front();
        if (!side.outcome) TAILRACE_TRY(world_->pump());
        world_->test(side);
        if (!side.outcome) return std::optional<uint64_t>();
        TAILRACE_TRY(side.outcome->status());
        return std::optional<uint64_t>(**side.outcome);
    }
    bool take_back() override { return world_->take_back(channel_ ? &*channel_ : nullptr, side_.front()); }

  private:
    const std::shared_ptr<AgentWorld> world_;
    const std::optional<Channel> channel_;   // of a receive
    std::list<std::shared_ptr<Side>> side_;  // one: a list moves it without memory
};

void AgentWorld::test(Side& side) {
    if (side.outcome || !side.inner) return;
    auto moved = side.inner->test();
    if (moved.ok() && !*moved) return;
    side.outcome = moved.ok() ? Result<uint64_t>(**moved) : Result<uint64_t>(moved.status());
    if (moved.ok()) side.inner.reset();
}

// A peer takes in whatever is sent to it, and a send that was announced comes. So both end soon, unless
// the peer has failed in between.
bool AgentWorld::take_back(const Channel* channel, const std::shared_ptr<Side>& side) {
    const auto deadline = SteadyClock::now() + longest_take_back;
    while (true) {
        {
            MutexLock lock(mutex_);
            if (!side->inner && !side->outcome && channel != nullptr) {
                if (const auto found = channels_.find(*channel); found != channels_.end())
                    std::erase(found->second.receives, side);
                return true;
            }
            test(*side);
            if (side->outcome || !pump().ok() || SteadyClock::now() > deadline) {
                if (side->inner && !side->inner->take_back()) return false;
                side->inner.reset();  // until then, what comes late still goes to its memory
                return true;
            }
        }
        sleep_for(shortest_nap);
    }
}

// The owner of a transfer that has not ended keeps its memory.
void AgentWorld::abandon(std::list<std::shared_ptr<Side>>& side) noexcept {
    MutexLock lock(mutex_);
    if (side.front()->inner) abandoned_.splice(abandoned_.end(), side);
}

// ---- life ---------------------------------------------------------------------------------------

Result<std::shared_ptr<AgentWorld>> AgentWorld::create(std::shared_ptr<Transport> transport) {
    ByteWriter mine;
    mine.put(random_number());
    TAILRACE_ASSIGN(const auto bytes, transport->broadcast(0, mine.bytes()));
    CarrierPlace place;
    place.world = ByteReader(bytes).get<uint64_t>();
    place.agent = static_cast<uint32_t>(transport->rank());
    place.agents = static_cast<uint32_t>(transport->size());
    if (!transport->concurrent())
        return Status(Code::unsupported,
                      "agents that carry epochs need an MPI library with MPI_THREAD_MULTIPLE");
    return std::shared_ptr<AgentWorld>(new AgentWorld(std::move(transport), place));
}

AgentWorld::~AgentWorld() {
    MutexLock lock(mutex_);
    for (auto& side : abandoned_)
        if (!side->inner->take_back()) (void)side->inner.release();
}

Result<std::shared_ptr<AgentWorld::Mailbox>> AgentWorld::open(const CarriedAddress& address) {
    MutexLock lock(mutex_);
    const auto [position, is_new] = mailboxes_.try_emplace(address, nullptr);
    if (!is_new) return Status(Code::already_exists, "this node of the session is carried already");
    position->second = std::make_shared<Mailbox>();
    return position->second;
}

// What has been announced to it is drained now, or at a later look if there is no memory.
void AgentWorld::close(const CarriedAddress& address) noexcept {
    MutexLock lock(mutex_);
    mailboxes_.erase(address);
    for (auto channel = channels_.begin(); channel != channels_.end();) {
        const bool drained = channel->first.target == address && channel->second.announced.empty();
        channel = drained ? channels_.erase(channel) : std::next(channel);
    }
    advance_drains();
}

// ---- messages -----------------------------------------------------------------------------------

Status AgentWorld::post(uint32_t agent, const CarriedAddress& target, int source_rank,
                        std::span<const std::byte> message) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(
        transport_->post(static_cast<int>(agent), frame(Kind::message, target, source_rank, message)));
    return pump();
}

Result<std::optional<Message>> AgentWorld::poll(Mailbox& mailbox) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(pump());
    if (mailbox.messages.empty()) return std::optional<Message>();
    mailbox.nap.reset();
    std::optional<Message> message(std::move(mailbox.messages.front()));
    mailbox.messages.pop_front();
    return message;
}

Result<bool> AgentWorld::posts_delivered() {
    MutexLock lock(mutex_);
    TAILRACE_TRY(pump());
    return transport_->posts_delivered();
}

void AgentWorld::look() {
    MutexLock lock(mutex_);
    const Status looked = pump();
    if (!looked.ok()) log(LogLevel::debug, "looking for messages of other agents: {}", looked.message());
}

Status AgentWorld::pump() {
    while (true) {
        const Status taken = take_next();
        if (taken.code() == Code::out_of_memory) break;
        TAILRACE_TRY(taken);
        if (!frame_) break;
        frame_.reset();
    }
    advance_abandoned();
    advance_drains();
    return {};
}

// Leaves the frame that it has taken, or none if there is none. A frame for which there was no memory is
// taken by the next call.
Status AgentWorld::take_next() noexcept {
    try {
        if (!frame_) {
            TAILRACE_ASSIGN(frame_, transport_->poll());
        }
        if (frame_) take_frame(*frame_);
        return {};
    } catch (...) {
        Status thrown = caught_status();
        if (thrown.code() == Code::out_of_memory || !frame_) return thrown;
        log(LogLevel::error, "a message from agent {} is lost: {}", frame_->source, thrown.message());
        return {};
    }
}

void AgentWorld::take_frame(const Message& message) {
    ByteReader in(message.bytes);
    const auto kind = static_cast<Kind>(in.get<uint8_t>());
    CarriedAddress target;
    target.session = in.get<uint64_t>();
    target.node = in.get<uint32_t>();
    const auto source_rank = static_cast<int>(std::min<uint32_t>(in.get<uint32_t>(), INT32_MAX));
    const auto found = mailboxes_.find(target);
    if (kind == Kind::message && in.ok()) {
        if (found == mailboxes_.end()) return;
        const auto body = in.get_bytes(in.remaining());
        found->second->messages.push_back({source_rank, {body.begin(), body.end()}});
        found->second->nap.wake();
        return;
    }
    if (kind == Kind::data) {
        const auto tag = in.get<uint32_t>();
        const auto world_tag = in.get<uint32_t>();
        const auto bytes = in.get<uint64_t>();
        if (in.at_end() && bytes <= most_data_bytes)
            return take_announced({target, source_rank, tag}, {message.source, world_tag, bytes});
    }
    if (in.at_end() && kind == Kind::leaving) {
        leaving_.insert(static_cast<uint32_t>(message.source));
        return;
    }
    if (in.at_end() && (kind == Kind::done || kind == Kind::all_done)) {
        if (found == mailboxes_.end()) return;
        if (kind == Kind::done)
            found->second->done.insert(static_cast<uint32_t>(source_rank));
        else
            found->second->all_done = true;
        return;
    }
    log(LogLevel::warning, "a message of {} bytes from agent {} could not be decoded and is dropped",
        message.bytes.size(), message.source);
}

// ---- data ---------------------------------------------------------------------------------------

Result<std::unique_ptr<Transfer>> AgentWorld::start_send(uint32_t agent, const CarriedAddress& target,
                                                         int source_rank, uint32_t tag,
                                                         std::span<const std::byte> source) {
    auto side = std::make_shared<Side>();
    auto transfer = std::make_unique<WorldTransfer>(shared_from_this(), std::nullopt, side);
    MutexLock lock(mutex_);
    if (agent >= place_.agents || out_of_step_[agent])
        return Status(Code::transport, fmt::format("data cannot be sent to agent {} any more", agent));
    auto& next = next_tag_[agent];
    const uint32_t world_tag = next;
    ByteWriter body;
    body.put(tag);
    body.put(world_tag);
    body.put(static_cast<uint64_t>(source.size()));
    const Status posted =
        transport_->post(static_cast<int>(agent), frame(Kind::data, target, source_rank, body.bytes()));
    out_of_step_[agent] = true;  // until the data follows
    next = (next + 1) % world_tags;
    TAILRACE_TRY(posted);
    TAILRACE_ASSIGN(side->inner, transport_->start_send(static_cast<int>(agent), world_tag, source));
    out_of_step_[agent] = false;
    return std::unique_ptr<Transfer>(std::move(transfer));
}

Result<std::unique_ptr<Transfer>> AgentWorld::start_receive(const CarriedAddress& target, int source_rank,
                                                            uint32_t tag, std::span<std::byte> memory) {
    const Channel channel{target, source_rank, tag};
    auto side = std::make_shared<Side>();
    side->memory = memory;
    auto transfer = std::make_unique<WorldTransfer>(shared_from_this(), channel, side);
    MutexLock lock(mutex_);
    auto& waiting = channels_[channel];
    if (waiting.announced.empty()) {
        waiting.receives.push_back(std::move(side));
    } else {
        begin(*side, channel, waiting.announced.front());
        waiting.announced.pop_front();
        if (waiting.announced.empty()) channels_.erase(channel);
    }
    return std::unique_ptr<Transfer>(std::move(transfer));
}

void AgentWorld::take_announced(const Channel& channel, Announced announced) {
    const auto mailbox = mailboxes_.find(channel.target);
    auto& waiting = channels_[channel];
    if (mailbox == mailboxes_.end() || waiting.receives.empty()) {
        waiting.announced.push_back(announced);
        return;
    }
    begin(*waiting.receives.front(), channel, announced);
    waiting.receives.pop_front();
    if (waiting.receives.empty()) channels_.erase(channel);
    mailbox->second->nap.wake();
}

void AgentWorld::begin(Side& side, const Channel& channel, const Announced& announced) {
    auto inner = transport_->start_receive(announced.agent, announced.world_tag, side.memory);
    if (inner.ok())
        side.inner = std::move(*inner);
    else
        side.outcome = Result<uint64_t>(inner.status().with_context(
            fmt::format("receiving from rank {} of a session", channel.source_rank)));
}

// From each agent one at a time. Data that never come hold up no other agent's.
void AgentWorld::begin_drains() {
    for (auto channel = channels_.begin(); channel != channels_.end();) {
        auto& announced = channel->second.announced;
        const bool unwanted = !announced.empty() && !mailboxes_.contains(channel->first.target);
        if (unwanted && !drains_.contains(announced.front().agent)) {
            begin_drain(announced.front());
            announced.pop_front();
        }
        const bool empty = announced.empty() && channel->second.receives.empty();
        channel = empty ? channels_.erase(channel) : std::next(channel);
    }
}

// If there is no memory, nothing has been begun.
void AgentWorld::begin_drain(const Announced& announced) {
    const auto [agent, world_tag, bytes] = announced;
    std::map<int, Drain> begun;
    Drain& drain = begun[agent];
    drain.memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    auto transfer =
        transport_->start_receive(agent, world_tag, {drain.memory.get(), static_cast<size_t>(bytes)});
    if (transfer.ok()) {
        drain.transfer = std::move(*transfer);
        drains_.merge(begun);
    } else {
        log(LogLevel::warning, "{} bytes that nobody waits for could not be received: {}", bytes,
            transfer.status().message());
    }
}

// What lacks memory is tried again by a later call.
void AgentWorld::advance_drains() noexcept {
    try {
        end_drained();
        do begin_drains();
        while (end_drained());
    } catch (...) {
    }
}

bool AgentWorld::end_drained() {
    const auto ended = [](const auto& entry) {
        const auto moved = entry.second.transfer->test();
        return !moved.ok() || moved->has_value();
    };
    return std::erase_if(drains_, ended) > 0;
}

AgentWorld::Drain::~Drain() {
    if (transfer == nullptr || transfer->take_back()) return;
    (void)transfer.release();
    (void)memory.release();  // somebody may still write there
}

void AgentWorld::advance_abandoned() {
    std::erase_if(abandoned_, [&](const std::shared_ptr<Side>& side) {
        const auto moved = side->inner->test();
        return moved.ok() ? moved->has_value() : side->inner->take_back();
    });
}

// ---- the end ------------------------------------------------------------------------------------

Status AgentWorld::say_done(uint32_t agent_of_node_0, const CarriedAddress& own) {
    MutexLock lock(mutex_);
    const auto node = static_cast<int>(own.node);
    TAILRACE_TRY(
        transport_->post(static_cast<int>(agent_of_node_0), frame(Kind::done, {own.session, 0}, node)));
    return pump();
}

Result<bool> AgentWorld::all_done(Mailbox& mailbox, const CarriedAddress& own,
                                  std::span<const uint32_t> agent_of_node) {
    MutexLock lock(mutex_);
    TAILRACE_TRY(pump());
    if (own.node != 0 || mailbox.all_done || mailbox.done.size() < agent_of_node.size())
        return mailbox.all_done;
    TAILRACE_TRY(tell_all_done(own.session, agent_of_node));
    mailbox.all_done = true;
    return true;
}

Status AgentWorld::tell_all_done(uint64_t session, std::span<const uint32_t> agent_of_node) {
    for (uint32_t node = 1; node < agent_of_node.size(); ++node)
        TAILRACE_TRY(transport_->post(static_cast<int>(agent_of_node[node]),
                                      frame(Kind::all_done, {session, node}, 0)));
    return {};
}

Status AgentWorld::say_not_begun(const CarriedAddress& own, std::span<const uint32_t> agent_of_node) {
    if (own.node != 0) return say_done(agent_of_node.front(), own);
    MutexLock lock(mutex_);
    TAILRACE_TRY(tell_all_done(own.session, agent_of_node));
    return pump();
}

void AgentWorld::wait_for_all_agents() {
    bool told = false;
    while (true) {
        {
            MutexLock lock(mutex_);
            for (uint32_t agent = 0; !told && agent < place_.agents; ++agent)
                if (!transport_->post(static_cast<int>(agent), frame(Kind::leaving, {}, 0)).ok()) return;
            told = true;
            if (!pump().ok()) return;
            const auto delivered = transport_->posts_delivered();
            if (!delivered.ok() || (leaving_.size() == place_.agents && *delivered)) return;
        }
        sleep_for(longest_idle_nap);
    }
}

}  // namespace tailrace::internal
