#include "simulation/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace tailrace::internal::testing_support {

namespace {

using TimePoint = SteadyClock::time_point;

// One end of a transfer.
struct End {
    std::span<std::byte> memory;  // a sender's is only read
    std::shared_ptr<End> other;   // from when they have met until the bytes are moved or taken back
    TimePoint due;                // once met
    bool sends = false, complete = false;
    Status failure;
    uint64_t moved_bytes = 0;
};

struct Channel {
    int source, target;
    uint32_t tag;
    auto operator<=>(const Channel&) const = default;
};

struct Arrival {
    TimePoint when;
    uint64_t order;  // of posting
    bool operator<(const Arrival& other) const {
        return std::tie(when, order) < std::tie(other.when, other.order);
    }
};

struct Rank {
    std::map<Arrival, Message> messages;
    std::map<int, TimePoint> last_from;  // when the last message of each source arrives
    std::vector<TimePoint> due;          // of transfers
    bool signalled = false, lost = false, left = false;
};

// A collective call, as all ranks must make it.
struct CollectiveCall {
    enum Kind { allgather, broadcast, exchange, least, drop } kind;
    int root = 0;
    bool operator==(const CollectiveCall&) const = default;
};

struct Gathering {
    CollectiveCall call{};  // the first rank's
    std::vector<std::vector<std::byte>> parts;
    size_t arrived = 0;
    bool complete = false;
    Status failure;  // why it never completes
};

}  // namespace

class Network::Wires {
  public:
    Wires(VirtualExecutor& executor_in, std::vector<std::string> hosts_in, NetworkCosts costs_in,
          bool concurrent_in, CreditWatch* watch_in)
        : executor(executor_in),
          hosts(std::move(hosts_in)),
          costs(costs_in),
          concurrent(concurrent_in),
          watch(watch_in),
          dice(executor_in.random_number()),
          ranks(hosts.size()),
          gathering(next_gathering()) {}

    int size() const { return static_cast<int>(hosts.size()); }
    Rank& rank(int number) { return ranks[static_cast<size_t>(number)]; }

    Status check(int rank_number) {
        if (ended) return Status(Code::transport, "the job has been ended");
        if (rank(rank_number).lost)
            return Status(Code::transport, fmt::format("rank {} is lost", rank_number));
        return {};
    }

    void signal(int number) {
        rank(number).signalled = true;
        executor.wake(&rank(number), true);
    }

    Status post(int source, int target, std::span<const std::byte> bytes) {
        TAILRACE_TRY(check(source));
        executor.note("post", static_cast<uint64_t>(source * 1000 + target), bytes.size());
        if (watch != nullptr) watch->posted(source, target, bytes);
        if (rank(target).lost || rank(target).left) return {};
        TimePoint& last = rank(target).last_from[source];
        last = std::max(last, SteadyClock::now() + flight());
        rank(target).messages.emplace(Arrival{last, ++posted}, Message{source, {bytes.begin(), bytes.end()}});
        executor.wake(&rank(target), true);  // to sleep until then
        if (credits_to_double && CreditWatch::gives_credit(bytes)) {
            credits_to_double = false;
            const Status again = post(source, target, bytes);
            credits_to_double = true;
            return again;
        }
        return {};
    }

    std::optional<Message> poll(int number) {
        auto& messages = rank(number).messages;
        if (messages.empty() || messages.begin()->first.when > SteadyClock::now()) return std::nullopt;
        std::optional<Message> message(std::move(messages.begin()->second));
        messages.erase(messages.begin());
        return message;
    }

    // What comes next for a rank that sleeps. A transfer that is due rouses each of its ranks once.
    TimePoint next_event(int number, TimePoint latest) {
        if (!check(number).ok()) return latest;
        const auto& messages = rank(number).messages;
        if (!messages.empty()) latest = std::min(latest, messages.begin()->first.when);
        for (const auto& due : rank(number).due) latest = std::min(latest, due);
        std::erase_if(rank(number).due, [](const TimePoint& due) { return due <= SteadyClock::now(); });
        return latest;
    }

    void start(Channel channel, const std::shared_ptr<End>& end) {
        auto& [sends, receives] = transfers[channel];
        auto& others = end->sends ? receives : sends;
        if (others.empty()) {
            (end->sends ? sends : receives).push_back(end);
            return;
        }
        end->other = others.front();
        others.pop_front();
        end->other->other = end;
        if (sends.empty() && receives.empty()) transfers.erase(channel);
        const End& send = end->sends ? *end : *end->other;
        end->due = end->other->due = occupy_links(channel, send.memory.size());
        rank(channel.source).due.push_back(end->due);
        rank(channel.target).due.push_back(end->due);
        executor.wake(&rank(channel.source), true);
        executor.wake(&rank(channel.target), true);
    }

    // Moves the bytes when it is time.
    void advance(Channel channel, End& end) {
        if (end.complete || !end.other || end.due > SteadyClock::now()) return;
        if (rank(channel.source).lost || rank(channel.target).lost) return;
        End& send = end.sends ? end : *end.other;
        End& receive = end.sends ? *end.other : end;
        if (send.memory.size() > receive.memory.size())
            receive.failure =
                Status(Code::transport,
                       fmt::format("receiving from rank {} with tag {}: {} bytes were sent, but the memory "
                                   "that waits for them has only {}; nothing was written to it",
                                   channel.source, channel.tag, send.memory.size(), receive.memory.size()));
        else if (!send.memory.empty())
            std::memcpy(receive.memory.data(), send.memory.data(), send.memory.size());
        send.moved_bytes = receive.moved_bytes = send.memory.size();
        send.complete = receive.complete = true;
        executor.note("moved", static_cast<uint64_t>(channel.source * 1000 + channel.target),
                      send.memory.size());
        for (const int number : {channel.source, channel.target}) {
            auto& due = rank(number).due;
            if (const auto found = std::find(due.begin(), due.end(), end.due); found != due.end())
                due.erase(found);
            signal(number);
        }
        separate(end);
    }

    void take_back(Channel channel, End& end) {
        if (end.complete) return;
        if (end.other) {
            for (const int number : {channel.source, channel.target}) {
                auto& due = rank(number).due;
                if (const auto found = std::find(due.begin(), due.end(), end.due); found != due.end())
                    due.erase(found);
            }
            separate(end);  // it never completes
            return;
        }
        const auto found = transfers.find(channel);
        if (found == transfers.end()) return;
        for (auto* list : {&found->second.first, &found->second.second})
            std::erase_if(*list, [&](const auto& waiting) { return waiting.get() == &end; });
        if (found->second.first.empty() && found->second.second.empty()) transfers.erase(found);
    }

    Result<std::vector<std::vector<std::byte>>> gather(int number, CollectiveCall call,
                                                       std::span<const std::byte> mine) {
        executor.pause();
        TAILRACE_TRY(check(number));
        const auto here = gathering;
        TAILRACE_TRY(all_here());
        if (here->arrived == 0) here->call = call;
        if (here->call != call) give_up_gathering(number, call);
        here->parts[static_cast<size_t>(number)].assign(mine.begin(), mine.end());
        if (++here->arrived == hosts.size() && here->failure.ok()) {
            here->complete = true;
            gathering = next_gathering();
            executor.wake(here.get(), true);
        }
        while (!here->complete) {
            TAILRACE_TRY(check(number));
            TAILRACE_TRY(here->failure);
            TAILRACE_TRY(all_here());
            executor.wait(here.get(), std::nullopt);
        }
        return here->parts;
    }

    // In a real job they would wait for ever, or take each other's bytes.
    void give_up_gathering(int number, CollectiveCall call) {
        gathering->failure =
            Status(Code::transport,
                   fmt::format("ranks meet in different collective calls: rank {} comes with {} (root "
                               "{}), and others with {} (root {})",
                               number, static_cast<int>(call.kind), call.root,
                               static_cast<int>(gathering->call.kind), gathering->call.root));
        if (on_differing_calls) on_differing_calls(gathering->failure.message());
        executor.wake(std::exchange(gathering, next_gathering()).get(), true);
    }

    void leave(int number) {
        rank(number).left = true;
        executor.wake(gathering.get(), true);
    }

    void wake_all() {
        for (int number = 0; number < size(); ++number) signal(number);
        executor.wake(gathering.get(), true);
    }

    VirtualExecutor& executor;
    const std::vector<std::string> hosts;
    const NetworkCosts costs;
    const bool concurrent;
    CreditWatch* const watch;
    bool ended = false, credits_to_double = false;
    std::function<void(const std::string&)> on_differing_calls;

  private:
    // Each end keeps the other: without this, neither would ever be freed.
    static void separate(End& end) {
        end.other->other.reset();
        end.other.reset();
    }
    std::shared_ptr<Gathering> next_gathering() const {
        auto next = std::make_shared<Gathering>();
        next->parts.resize(hosts.size());
        return next;
    }
    Status all_here() const {
        for (size_t number = 0; number < ranks.size(); ++number)
            if (ranks[number].left)
                return Status(Code::transport,
                              fmt::format("a collective call of {} ranks cannot complete: rank {} has left",
                                          size(), number));
        return {};
    }
    std::chrono::nanoseconds flight() {
        return costs.latency +
               std::chrono::nanoseconds(dice.below(static_cast<uint64_t>(costs.jitter.count()) + 1));
    }
    // The sender's and the receiver's link, one transfer after the other.
    TimePoint occupy_links(Channel channel, uint64_t bytes) {
        auto begin = SteadyClock::now();
        auto end = begin;
        const auto& from = hosts[static_cast<size_t>(channel.source)];
        const auto& to = hosts[static_cast<size_t>(channel.target)];
        if (costs.bytes_per_second > 0 && from != to) {
            auto& out = links[from].first;
            auto& in = links[to].second;
            begin = std::max({begin, out, in});
            end = begin + std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) /
                                                                        costs.bytes_per_second * 1e9));
            out = in = end;
        }
        return end + flight();
    }

    Dice dice;
    std::vector<Rank> ranks;
    uint64_t posted = 0;
    std::map<Channel, std::pair<std::deque<std::shared_ptr<End>>, std::deque<std::shared_ptr<End>>>>
        transfers;
    std::map<std::string, std::pair<TimePoint, TimePoint>> links;  // when each is free: out, in
    std::shared_ptr<Gathering> gathering;
};

class Network::WireTransfer final : public Transfer {
  public:
    WireTransfer(std::shared_ptr<Wires> wires, int rank, Channel channel, std::span<std::byte> memory,
                 bool sends)
        : wires_(std::move(wires)), rank_(rank), channel_(channel), end_(std::make_shared<End>()) {
        end_->memory = memory;
        end_->sends = sends;
        if (wires_->watch != nullptr && !sends) wires_->watch->receive_begins(rank_, channel_.tag);
        wires_->start(channel_, end_);
    }
    ~WireTransfer() override {
        wires_->take_back(channel_, *end_);
        if (wires_->watch != nullptr && !end_->sends) wires_->watch->receive_ends(rank_, channel_.tag);
    }

    Result<std::optional<uint64_t>> test() override {
        const VirtualExecutor::OwnWork own;
        wires_->advance(channel_, *end_);
        if (!end_->failure.ok()) return end_->failure;
        if (end_->complete) return std::optional<uint64_t>(end_->moved_bytes);
        TAILRACE_TRY(wires_->check(rank_));
        return std::optional<uint64_t>();
    }
    bool take_back() override {
        wires_->take_back(channel_, *end_);
        return true;
    }

  private:
    const std::shared_ptr<Wires> wires_;
    const int rank_;
    const Channel channel_;
    const std::shared_ptr<End> end_;
};

class Network::WireTransport final : public Transport {
  public:
    WireTransport(std::shared_ptr<Wires> wires, int rank) : wires_(std::move(wires)), rank_(rank) {}
    ~WireTransport() override { wires_->leave(rank_); }

    int rank() const override { return rank_; }
    int size() const override { return wires_->size(); }
    std::string host() const override { return wires_->hosts[static_cast<size_t>(rank_)]; }
    bool concurrent() const override { return wires_->concurrent; }

    Status post(int target, std::span<const std::byte> message) override {
        const VirtualExecutor::OwnWork own;
        TAILRACE_TRY(check("posting a message to", target));
        return wires_->post(rank_, target, message);
    }
    Result<std::optional<Message>> poll() override {
        const VirtualExecutor::OwnWork own;
        TAILRACE_TRY(check("receiving messages on", rank_));
        TAILRACE_TRY(wires_->check(rank_));
        return wires_->poll(rank_);
    }
    Result<bool> posts_delivered() override { return true; }

    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        const VirtualExecutor::OwnWork own;
        TAILRACE_TRY(check("sending data to", target));
        TAILRACE_TRY(wires_->check(rank_));
        // A sender's memory is only read.
        const std::span<std::byte> memory(const_cast<std::byte*>(source.data()), source.size());
        return std::unique_ptr<Transfer>(
            std::make_unique<WireTransfer>(wires_, rank_, Channel{rank_, target, tag}, memory, true));
    }
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        const VirtualExecutor::OwnWork own;
        TAILRACE_TRY(check("receiving data from", source));
        TAILRACE_TRY(wires_->check(rank_));
        return std::unique_ptr<Transfer>(
            std::make_unique<WireTransfer>(wires_, rank_, Channel{source, rank_, tag}, target, false));
    }

    void wait(std::chrono::microseconds longest, bool /*busy*/) override {
        const VirtualExecutor::OwnWork own;
        longest = std::clamp<std::chrono::microseconds>(longest, {}, std::chrono::hours(1));
        Rank& here = wires_->rank(rank_);
        const auto latest = SteadyClock::now() + longest;
        while (!here.signalled) {
            const auto until = wires_->next_event(rank_, latest);
            if (until <= SteadyClock::now()) break;
            wires_->executor.wait(&here, until);
        }
        here.signalled = false;
    }
    void wake() override { wires_->signal(rank_); }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        const auto all = gather_in_own_memory(mine);
        return exchanging_ ? all : catching([&] { return all; });  // as with MPI, a rank may lack memory
    }
    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        const VirtualExecutor::OwnWork own;
        exchanging_ = true;  // its memory is not the program's
        const Status exchanged = exchange_by_allgather(*this, sends, receives);
        exchanging_ = false;
        return exchanged;
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        TAILRACE_TRY(check_rank("broadcasting from", root));
        const auto spread = spread_in_own_memory(root, bytes);
        return catching([&] { return spread; });
    }
    Status drop_posted() override {
        const VirtualExecutor::OwnWork own;
        return wires_->gather(rank_, {CollectiveCall::drop}, {}).status();
    }
    Result<int> least(int mine) override {
        const VirtualExecutor::OwnWork own;
        TAILRACE_ASSIGN(const auto all,
                        wires_->gather(rank_, {CollectiveCall::least}, std::as_bytes(std::span(&mine, 1))));
        for (const auto& bytes : all) {
            int number = 0;
            std::memcpy(&number, bytes.data(), sizeof number);
            mine = std::min(mine, number);
        }
        return mine;
    }

  private:
    Result<std::vector<std::vector<std::byte>>> gather_in_own_memory(std::span<const std::byte> mine) {
        const VirtualExecutor::OwnWork own;
        return wires_->gather(rank_, {exchanging_ ? CollectiveCall::exchange : CollectiveCall::allgather},
                              mine);
    }
    Result<std::vector<std::byte>> spread_in_own_memory(int root, std::span<const std::byte> bytes) {
        const VirtualExecutor::OwnWork own;
        TAILRACE_ASSIGN(auto parts, wires_->gather(rank_, {CollectiveCall::broadcast, root},
                                                   root == rank_ ? bytes : std::span<const std::byte>()));
        return std::move(parts[static_cast<size_t>(root)]);
    }
    Status check(std::string_view attempted, int rank) const {
        if (!wires_->concurrent)
            return Status(Code::failed_state,
                          fmt::format("{} rank {}: this transport has only collectives", attempted, rank));
        return check_rank(attempted, rank);
    }
    Status check_rank(std::string_view attempted, int rank) const {
        if (rank >= 0 && rank < size()) return {};
        return Status(Code::invalid_argument,
                      fmt::format("{} rank {}: there are {} ranks", attempted, rank, size()));
    }

    const std::shared_ptr<Wires> wires_;
    const int rank_;
    bool exchanging_ = false;
};

Network::Network(VirtualExecutor& executor, std::vector<std::string> hosts, NetworkCosts costs,
                 bool concurrent, CreditWatch* watch)
    : wires_(std::make_shared<Wires>(executor, std::move(hosts), costs, concurrent, watch)) {}
Network::~Network() = default;

std::vector<std::unique_ptr<Transport>> Network::transports() {
    std::vector<std::unique_ptr<Transport>> made;
    for (int rank = 0; rank < wires_->size(); ++rank)
        made.push_back(std::make_unique<WireTransport>(wires_, rank));
    return made;
}

void Network::lose(int rank) {
    wires_->rank(rank).lost = true;
    wires_->rank(rank).messages.clear();
    wires_->wake_all();
}

void Network::on_differing_calls(std::function<void(const std::string&)> tell) {
    wires_->on_differing_calls = std::move(tell);
}

void Network::double_credits() {
    wires_->credits_to_double = true;
}

void Network::end() {
    wires_->ended = true;
    wires_->wake_all();
}

}  // namespace tailrace::internal::testing_support
