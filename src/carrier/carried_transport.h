// CarriedTransport: the transport of a node agent that carries a session's epochs in an agent process. It
// makes the agent look like the node's representative. It reaches ranks of its own node by their lines,
// and other representatives by their agents (AgentWorld).
//
// It has no collectives, because only programs make collective calls.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "carrier/agent_world.h"
#include "carrier/line_sender.h"
#include "threads/mutex.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

class CarriedTransport final : public Transport {
  public:
    static Result<std::shared_ptr<CarriedTransport>> create(std::shared_ptr<AgentWorld> world,
                                                            uint64_t session, int node, int rank,
                                                            std::string host, Topology topology,
                                                            std::vector<uint32_t> agent_of_node);
    ~CarriedTransport() override { world_->close(own_); }

    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(topology_.node_of_rank.size()); }
    std::string host() const override { return host_; }
    bool concurrent() const override { return true; }

    Status post(int target, std::span<const std::byte> message) override;
    Result<std::optional<Message>> poll() override;
    Result<bool> posts_delivered() override;
    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override;
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override;
    void wait(std::chrono::microseconds longest, bool busy) override { mailbox_->nap.sleep(longest, busy); }
    void wake() override { mailbox_->nap.wake(); }

    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte>) override;
    Result<std::vector<std::byte>> spread(int, std::span<const std::byte>) override;
    Status move_pieces(std::span<const Outgoing>, std::span<const Incoming>) override;

    // A rank of the own node has a line now, or has none any more.
    void connect(int rank, std::shared_ptr<LineSender> line);
    void disconnect(int rank);
    // A rank of the own node has sent this.
    void heard(int rank, std::vector<std::byte> message);
    // Sends what could not be sent to ranks at once. Returns whether nothing is left.
    bool flush();

    // See AgentWorld.
    Status say_done() { return world_->say_done(agent_of_node_.front(), own_); }
    Status say_not_begun() { return world_->say_not_begun(own_, agent_of_node_); }
    Result<bool> all_done() { return world_->all_done(*mailbox_, own_, agent_of_node_); }

  private:
    CarriedTransport(std::shared_ptr<AgentWorld> world, CarriedAddress own, int rank, std::string host,
                     Topology topology, std::vector<uint32_t> agent_of_node,
                     std::shared_ptr<AgentWorld::Mailbox> mailbox);
    Result<int> other_node(std::string_view attempted, int rank) const;

    const std::shared_ptr<AgentWorld> world_;
    const CarriedAddress own_;
    const int rank_;
    const std::string host_;
    const Topology topology_;
    const std::vector<uint32_t> agent_of_node_;
    const std::shared_ptr<AgentWorld::Mailbox> mailbox_;

    Mutex mutex_;
    std::map<int, std::shared_ptr<LineSender>> lines_ GUARDED_BY(mutex_);  // by rank
    std::deque<Message> from_ranks_ GUARDED_BY(mutex_);
};

}  // namespace tailrace::internal
