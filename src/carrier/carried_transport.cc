#include "carrier/carried_transport.h"

#include <fmt/format.h>

#include "threads/mutex.h"

namespace tailrace::internal {

namespace {

Status no_collectives() {
    return Status(Code::failed_state, "an agent process that carries epochs makes no collective calls");
}

}  // namespace

CarriedTransport::CarriedTransport(std::shared_ptr<AgentWorld> world, CarriedAddress own, int rank,
                                   std::string host, Topology topology, std::vector<uint32_t> agent_of_node,
                                   std::shared_ptr<AgentWorld::Mailbox> mailbox)
    : world_(std::move(world)),
      own_(own),
      rank_(rank),
      host_(std::move(host)),
      topology_(std::move(topology)),
      agent_of_node_(std::move(agent_of_node)),
      mailbox_(std::move(mailbox)) {}

Result<std::shared_ptr<CarriedTransport>> CarriedTransport::create(std::shared_ptr<AgentWorld> world,
                                                                   uint64_t session, int node, int rank,
                                                                   std::string host, Topology topology,
                                                                   std::vector<uint32_t> agent_of_node) {
    const CarriedAddress own{session, static_cast<uint32_t>(node)};
    TAILRACE_ASSIGN(auto mailbox, world->open(own));
    return std::shared_ptr<CarriedTransport>(
        new CarriedTransport(std::move(world), own, rank, std::move(host), std::move(topology),
                             std::move(agent_of_node), std::move(mailbox)));
}

// ---- ranks of the own node ----------------------------------------------------------------------

void CarriedTransport::connect(int rank, std::shared_ptr<LineSender> line) {
    MutexLock lock(mutex_);
    lines_[rank] = std::move(line);
}

void CarriedTransport::disconnect(int rank) {
    MutexLock lock(mutex_);
    lines_.erase(rank);
}

void CarriedTransport::heard(int rank, std::vector<std::byte> message) {
    {
        MutexLock lock(mutex_);
        from_ranks_.push_back({rank, std::move(message)});
    }
    wake();
}

bool CarriedTransport::flush() {
    MutexLock lock(mutex_);
    bool all = true;
    for (const auto& [rank, line] : lines_) all &= line->flush();
    return all;
}

// ---- messages and data --------------------------------------------------------------------------

Result<int> CarriedTransport::other_node(std::string_view attempted, int rank) const {
    if (rank < 0 || rank >= size())
        return Status(Code::invalid_argument,
                      fmt::format("{} rank {}: there are {} ranks", attempted, rank, size()));
    const int node = topology_.node_of_rank[static_cast<size_t>(rank)];
    if (rank == topology_.representative(node) && rank != rank_) return node;
    return Status(Code::invalid_argument,
                  fmt::format("{} rank {}: it is not the representative of another node", attempted, rank));
}

Status CarriedTransport::post(int target, std::span<const std::byte> message) {
    const bool own_node = target >= 0 && target < size() &&
                          topology_.node_of_rank[static_cast<size_t>(target)] == static_cast<int>(own_.node);
    if (own_node) {
        std::shared_ptr<LineSender> line;
        {
            MutexLock lock(mutex_);
            if (const auto found = lines_.find(target); found != lines_.end()) line = found->second;
        }
        // A rank that has died needs no news.
        if (line) line->send(line::Mail{{message.begin(), message.end()}});
        return {};
    }
    TAILRACE_ASSIGN(const int node, other_node("posting a message to", target));
    return world_->post(agent_of_node_[static_cast<size_t>(node)],
                        {own_.session, static_cast<uint32_t>(node)}, rank_, message);
}

Result<std::optional<Message>> CarriedTransport::poll() {
    flush();
    {
        MutexLock lock(mutex_);
        if (!from_ranks_.empty()) {
            std::optional<Message> message(std::move(from_ranks_.front()));
            from_ranks_.pop_front();
            return message;
        }
    }
    return world_->poll(*mailbox_);
}

Result<bool> CarriedTransport::posts_delivered() {
    TAILRACE_ASSIGN(const bool delivered, world_->posts_delivered());
    return flush() && delivered;
}

Result<std::unique_ptr<Transfer>> CarriedTransport::start_send(int target, uint32_t tag,
                                                               std::span<const std::byte> source) {
    TAILRACE_ASSIGN(const int node, other_node("sending data to", target));
    return world_->start_send(agent_of_node_[static_cast<size_t>(node)],
                              {own_.session, static_cast<uint32_t>(node)}, rank_, tag, source);
}

Result<std::unique_ptr<Transfer>> CarriedTransport::start_receive(int source, uint32_t tag,
                                                                  std::span<std::byte> target) {
    TAILRACE_TRY(other_node("receiving data from", source).status());
    return world_->start_receive(own_, source, tag, target);
}

// ---- collectives --------------------------------------------------------------------------------

Result<std::vector<std::vector<std::byte>>> CarriedTransport::gather(std::span<const std::byte>) {
    return no_collectives();
}
Result<std::vector<std::byte>> CarriedTransport::spread(int, std::span<const std::byte>) {
    return no_collectives();
}
Status CarriedTransport::move_pieces(std::span<const Outgoing>, std::span<const Incoming>) {
    return no_collectives();
}

}  // namespace tailrace::internal
