// The in-process transport: one Cluster that all transports share and that lives as long as any of
// them.
//
// How data moves:
//   message      post() copies it into the target's mailbox; the target's poll() moves it out
//   transfer     a send and a receive meet in the target's mailbox; the later one copies straight from the
//                sender's memory to the receiver's, outside the lock, and then tells both ranks
//   collective   every rank puts its bytes into the current gathering; the last one completes it. exchange
//                gathers addresses, and each rank copies what is meant for it
//
// Locks: one per mailbox and one for collectives, never two at a time. No data is copied under a
// lock.
//
// A rank is gone when its transport is destroyed, as if its process had been killed. Its mailbox
// stays: messages to it are accepted and never read, transfers with it never complete, and
// collectives fail on the other ranks. A transfer destroyed before its end is taken back, so nobody
// accesses its memory any more.
#include "transport/in_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

// One side of a transfer. `memory` belongs to the rank that started it, and is only read if this
// side sends.
struct Side {
    enum class State { waiting, copying, complete };

    std::span<std::byte> memory;
    State state = State::waiting;  // guarded by the mailbox's mutex
    Status failure;                // set before complete
    uint64_t moved_bytes = 0;      // set before complete
};

struct Channel {
    int source;
    uint32_t tag;
    auto operator<=>(const Channel&) const = default;
};

// Per channel, either sends wait for receives or receives wait for sends, first in first out.
struct Waiting {
    std::deque<std::shared_ptr<Side>> sends, receives;
};

struct Mailbox {
    Mutex mutex;
    Condition changed;
    bool signalled GUARDED_BY(mutex) = false;  // something happened since this rank's last wait()
    std::deque<Message> messages GUARDED_BY(mutex);
    std::map<Channel, Waiting> transfers GUARDED_BY(mutex);  // towards this rank
};

// One collective call of all ranks.
struct Gathering {
    explicit Gathering(size_t ranks) : parts(ranks) {}
    std::vector<std::vector<std::byte>> parts;
    size_t arrived = 0;
    bool complete = false;
    int missing_rank = -1;  // a rank that left before it arrived: the gathering never completes
};

class Cluster {
  public:
    explicit Cluster(std::vector<std::string> hosts)
        : hosts_(std::move(hosts)),
          mailboxes_(hosts_.size()),
          gathering_(std::make_shared<Gathering>(hosts_.size())) {}

    int size() const { return static_cast<int>(hosts_.size()); }
    const std::string& host(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
    Mailbox& mailbox(int rank) { return mailboxes_[static_cast<size_t>(rank)]; }

    void signal(int rank) {
        Mailbox& box = mailbox(rank);
        MutexLock lock(box.mutex);
        box.signalled = true;
        box.changed.notify_all();
    }

    // Adds one side to its channel, or lets it meet the other side that waits there.
    void start(Channel channel, int target, const std::shared_ptr<Side>& side, bool sends) {
        std::shared_ptr<Side> other;
        {
            Mailbox& box = mailbox(target);
            MutexLock lock(box.mutex);
            auto position = box.transfers.try_emplace(channel).first;
            Waiting& waiting = position->second;
            auto& others = sends ? waiting.receives : waiting.sends;
            if (others.empty()) {
                (sends ? waiting.sends : waiting.receives).push_back(side);
                return;
            }
            other = std::move(others.front());
            others.pop_front();
            if (waiting.sends.empty() && waiting.receives.empty()) box.transfers.erase(position);
            side->state = other->state = Side::State::copying;
        }
        copy(channel, target, sends ? *side : *other, sends ? *other : *side);
    }

    bool is_complete(int target, const Side& side) {
        Mailbox& box = mailbox(target);
        MutexLock lock(box.mutex);
        return side.state == Side::State::complete;
    }

    // Afterwards nobody accesses the side's memory.
    void take_back(Channel channel, int target, const Side& side, bool sends) {
        Mailbox& box = mailbox(target);
        MutexLock lock(box.mutex);
        while (side.state == Side::State::copying) box.changed.wait(lock);
        auto position = box.transfers.find(channel);
        if (position == box.transfers.end()) return;
        Waiting& waiting = position->second;
        auto& mine = sends ? waiting.sends : waiting.receives;
        std::erase_if(mine, [&](const std::shared_ptr<Side>& other) { return other.get() == &side; });
        if (waiting.sends.empty() && waiting.receives.empty()) box.transfers.erase(position);
    }

    Result<std::shared_ptr<const Gathering>> gather(int rank, std::span<const std::byte> mine) {
        MutexLock lock(collective_mutex_);
        std::shared_ptr<Gathering> gathering = gathering_;
        gathering->parts[static_cast<size_t>(rank)].assign(mine.begin(), mine.end());
        if (gathering->missing_rank < 0 && ++gathering->arrived == hosts_.size()) {
            gathering->complete = true;
            gathering_ = std::make_shared<Gathering>(hosts_.size());
            collective_changed_.notify_all();
        }
        while (!gathering->complete && gathering->missing_rank < 0) collective_changed_.wait(lock);
        if (gathering->complete) return std::shared_ptr<const Gathering>(std::move(gathering));
        return Status(Code::transport,
                      fmt::format("a collective call of {} ranks cannot complete: rank {} has left", size(),
                                  gathering->missing_rank));
    }

    // A gathering that a rank has left is never replaced, so that later collectives fail too.
    void leave(int rank) {
        MutexLock lock(collective_mutex_);
        gathering_->missing_rank = rank;
        collective_changed_.notify_all();
    }

  private:
    void copy(Channel channel, int target, Side& send, Side& receive) {
        Status failure;
        if (send.memory.size() > receive.memory.size()) {
            failure = Status(
                Code::transport,
                fmt::format(
                    "receiving from rank {} with tag {}: {} bytes were sent, but the memory that waits "
                    "for them has only {}; nothing was written to it",
                    channel.source, channel.tag, send.memory.size(), receive.memory.size()));
        } else if (!send.memory.empty()) {
            std::memcpy(receive.memory.data(), send.memory.data(), send.memory.size());
        }
        {
            Mailbox& box = mailbox(target);
            MutexLock lock(box.mutex);
            send.moved_bytes = receive.moved_bytes = send.memory.size();
            receive.failure = std::move(failure);
            send.state = receive.state = Side::State::complete;
            box.signalled = true;
            box.changed.notify_all();
        }
        signal(channel.source);
    }

    const std::vector<std::string> hosts_;
    std::vector<Mailbox> mailboxes_;  // by rank; never grows, a mailbox cannot move
    Mutex collective_mutex_;
    Condition collective_changed_;
    std::shared_ptr<Gathering> gathering_ GUARDED_BY(collective_mutex_);  // the one that ranks arrive in now
};

class InProcessTransfer final : public Transfer {
  public:
    InProcessTransfer(std::shared_ptr<Cluster> cluster, Channel channel, int target,
                      std::span<std::byte> memory, bool sends)
        : cluster_(std::move(cluster)),
          channel_(channel),
          target_(target),
          sends_(sends),
          side_(std::make_shared<Side>()) {
        side_->memory = memory;
        cluster_->start(channel_, target_, side_, sends_);
    }
    ~InProcessTransfer() override {
        if (!complete_) cluster_->take_back(channel_, target_, *side_, sends_);
    }

    Result<std::optional<uint64_t>> test() override {
        if (!complete_) complete_ = cluster_->is_complete(target_, *side_);
        if (!complete_) return std::optional<uint64_t>();
        if (!side_->failure.ok()) return side_->failure;
        return std::optional<uint64_t>(side_->moved_bytes);
    }

    bool take_back() override {
        if (!complete_) cluster_->take_back(channel_, target_, *side_, sends_);
        return true;
    }

  private:
    const std::shared_ptr<Cluster> cluster_;
    const Channel channel_;
    const int target_;
    const bool sends_;
    const std::shared_ptr<Side> side_;
    bool complete_ = false;
};

class InProcessTransport final : public Transport {
  public:
    InProcessTransport(std::shared_ptr<Cluster> cluster, int rank, bool concurrent)
        : cluster_(std::move(cluster)), rank_(rank), concurrent_(concurrent) {}
    ~InProcessTransport() override { cluster_->leave(rank_); }

    int rank() const override { return rank_; }
    int size() const override { return cluster_->size(); }
    std::string host() const override { return cluster_->host(rank_); }
    bool concurrent() const override { return concurrent_; }

    Status post(int target, std::span<const std::byte> message) override {
        TAILRACE_TRY(check("posting a message to", target));
        Mailbox& box = cluster_->mailbox(target);
        Message copy{rank_, {message.begin(), message.end()}};
        MutexLock lock(box.mutex);
        box.messages.push_back(std::move(copy));
        box.signalled = true;
        box.changed.notify_all();
        return Status();
    }

    Result<std::optional<Message>> poll() override {
        TAILRACE_TRY(check("receiving messages on", rank_));
        Mailbox& box = cluster_->mailbox(rank_);
        MutexLock lock(box.mutex);
        if (box.messages.empty()) return std::optional<Message>();
        std::optional<Message> message(std::move(box.messages.front()));
        box.messages.pop_front();
        return message;
    }

    Result<bool> posts_delivered() override { return true; }

    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        TAILRACE_TRY(check("sending data to", target));
        // copy() only reads the sender's side.
        std::span<std::byte> memory(const_cast<std::byte*>(source.data()), source.size());
        return std::unique_ptr<Transfer>(
            std::make_unique<InProcessTransfer>(cluster_, Channel{rank_, tag}, target, memory, true));
    }

    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        TAILRACE_TRY(check("receiving data from", source));
        return std::unique_ptr<Transfer>(
            std::make_unique<InProcessTransfer>(cluster_, Channel{source, tag}, rank_, target, false));
    }

    void wait(std::chrono::microseconds longest, bool /*busy*/) override {
        // An hour is long enough, and cannot overflow the clock.
        longest = std::clamp<std::chrono::microseconds>(longest, {}, std::chrono::hours(1));
        Mailbox& box = cluster_->mailbox(rank_);
        MutexLock lock(box.mutex);
        const auto until = SteadyClock::now() + longest;
        while (!box.signalled && SteadyClock::now() < until) box.changed.wait_until(lock, until);
        box.signalled = false;
    }

    void wake() override { cluster_->signal(rank_); }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        TAILRACE_ASSIGN(auto gathering, cluster_->gather(rank_, mine));
        return gathering->parts;
    }

    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        return exchange_by_address(*this, sends, receives);
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        TAILRACE_TRY(check_rank("broadcasting from", root));
        const bool mine_counts = root == rank_;
        TAILRACE_ASSIGN(auto gathering,
                        cluster_->gather(rank_, mine_counts ? bytes : std::span<const std::byte>()));
        return gathering->parts[static_cast<size_t>(root)];
    }

  private:
    Status check(std::string_view attempted, int rank) const {
        if (!concurrent_) {
            return Status(Code::failed_state,
                          fmt::format("{} rank {}: this transport has only collectives", attempted, rank));
        }
        return check_rank(attempted, rank);
    }
    Status check_rank(std::string_view attempted, int rank) const {
        if (rank >= 0 && rank < size()) return Status();
        return Status(Code::invalid_argument,
                      fmt::format("{} rank {}: there are {} ranks", attempted, rank, size()));
    }

    const std::shared_ptr<Cluster> cluster_;
    const int rank_;
    const bool concurrent_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(const std::vector<std::string>& hosts,
                                                                   bool concurrent) {
    auto cluster = std::make_shared<Cluster>(hosts);
    std::vector<std::unique_ptr<Transport>> transports;
    for (int rank = 0; rank < cluster->size(); ++rank)
        transports.push_back(std::make_unique<InProcessTransport>(cluster, rank, concurrent));
    return transports;
}

}  // namespace tailrace::internal
