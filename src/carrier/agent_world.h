// AgentWorld: how agent processes that carry epochs reach each other. It shares one transport, whose
// ranks are the agents, among all nodes of all sessions that this process carries.
//
// Each carried node has a Mailbox. What moves:
//   message   a frame that names the session, the node it goes to and the rank it comes from
//   transfer  the sender posts a frame with the tag that the data has between these two agents, and
//             starts to send. The receiver's agent takes the frame, and receives when the node asks
//             for that tag.
//
// Every agent takes in what is sent to it, also for sessions that it does not have any more: such
// messages are dropped, and such data is received and dropped, from each agent one buffer at a time. So no
// sender waits for an agent whose part of a session has ended.
//
// Any session's thread takes frames in, also those of others. A frame for which there is no memory stays,
// and is taken at the next look. If data cannot follow its frame, the receiver's agent waits for it with
// a tag that must not be used again. So nothing more is sent to that agent.
//
// Any thread may call any member. The transport's messages and data are used under one lock. Frames
// come from processes of the same user in the same job; all the same they are decoded as hostile.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/agent_link.h"
#include "base/status.h"
#include "threads/mutex.h"
#include "transport/nap.h"
#include "transport/transport.h"

namespace tailrace::internal {

struct CarriedAddress {
    uint64_t session = 0;
    uint32_t node = 0;
    auto operator<=>(const CarriedAddress&) const = default;
};

class AgentWorld : public std::enable_shared_from_this<AgentWorld> {
  public:
    // Collective over the transport, which must be concurrent() and is used by nobody else.
    static Result<std::shared_ptr<AgentWorld>> create(std::shared_ptr<Transport> transport);
    ~AgentWorld();

    const CarrierPlace& place() const { return place_; }

    // A node of a session that this process carries. Guarded by the world's lock, but for the nap.
    struct Mailbox {
        std::deque<Message> messages;  // sources are ranks of the session
        std::set<uint32_t> done;       // at node 0: nodes that have said so
        bool all_done = false;
        Nap nap;  // one thread sleeps there
    };
    // already_exists if there is one.
    Result<std::shared_ptr<Mailbox>> open(const CarriedAddress& address);
    void close(const CarriedAddress& address) noexcept;

    Status post(uint32_t agent, const CarriedAddress& target, int source_rank,
                std::span<const std::byte> message);
    // Moves everything that can move, and returns the mailbox's next message, if there is one.
    Result<std::optional<Message>> poll(Mailbox& mailbox);
    Result<bool> posts_delivered();
    // Takes in what has come, also if no node is carried here.
    void look();

    // The data goes from `source_rank` to the node `target`, under a tag of the session.
    Result<std::unique_ptr<Transfer>> start_send(uint32_t agent, const CarriedAddress& target,
                                                 int source_rank, uint32_t tag,
                                                 std::span<const std::byte> source);
    Result<std::unique_ptr<Transfer>> start_receive(const CarriedAddress& target, int source_rank,
                                                    uint32_t tag, std::span<std::byte> memory);

    // The end of a session in all its agents: each node says that it is done. When all are, every node
    // hears it (all_done).
    Status say_done(uint32_t agent_of_node_0, const CarriedAddress& own);
    // The node has never begun, and ends. If it is node 0, nobody waits for the others any more.
    Status say_not_begun(const CarriedAddress& own, std::span<const uint32_t> agent_of_node);
    // At node 0: tells all if all are done. Elsewhere: whether all are.
    Result<bool> all_done(Mailbox& mailbox, const CarriedAddress& own,
                          std::span<const uint32_t> agent_of_node);

    // Serves other agents until all of them have called this. Afterwards the transport may be destroyed.
    void wait_for_all_agents();

  private:
    class WorldTransfer;
    struct Channel {
        CarriedAddress target;
        int source_rank = 0;
        uint32_t tag = 0;
        auto operator<=>(const Channel&) const = default;
    };
    // Data that has been announced, but that its node has not asked for yet.
    struct Announced {
        int agent = 0;
        uint32_t world_tag = 0;
        uint64_t bytes = 0;
    };
    // One side of a transfer here.
    struct Side {
        std::span<std::byte> memory;      // of a receive
        std::unique_ptr<Transfer> inner;  // once it has begun
        std::optional<Result<uint64_t>> outcome;
    };
    struct Waiting {
        std::deque<Announced> announced;
        std::deque<std::shared_ptr<Side>> receives;
    };
    struct Drain {
        Drain() = default;
        Drain(const Drain&) = delete;
        Drain& operator=(const Drain&) = delete;
        ~Drain();
        std::unique_ptr<std::byte[]> memory;
        std::unique_ptr<Transfer> transfer;
    };

    AgentWorld(std::shared_ptr<Transport> transport, CarrierPlace place)
        : place_(place), transport_(std::move(transport)), out_of_step_(place.agents) {}
    Status pump() REQUIRES(mutex_);
    Status tell_all_done(uint64_t session, std::span<const uint32_t> agent_of_node) REQUIRES(mutex_);
    Status take_next() noexcept REQUIRES(mutex_);
    void take_frame(const Message& message) REQUIRES(mutex_);
    void take_announced(const Channel& channel, Announced announced) REQUIRES(mutex_);
    void begin(Side& side, const Channel& channel, const Announced& announced) REQUIRES(mutex_);
    void begin_drains() REQUIRES(mutex_);
    void begin_drain(const Announced& announced) REQUIRES(mutex_);
    void advance_drains() noexcept REQUIRES(mutex_);
    bool end_drained() REQUIRES(mutex_);  // whether there were any
    void advance_abandoned() REQUIRES(mutex_);
    void test(Side& side) REQUIRES(mutex_);
    bool take_back(const Channel* channel, const std::shared_ptr<Side>& side);
    void abandon(std::list<std::shared_ptr<Side>>& side) noexcept;

    const CarrierPlace place_;
    Mutex mutex_;
    std::shared_ptr<Transport> transport_ GUARDED_BY(mutex_);
    std::optional<Message> frame_ GUARDED_BY(mutex_);  // has come, and is not taken yet
    std::map<CarriedAddress, std::shared_ptr<Mailbox>> mailboxes_ GUARDED_BY(mutex_);
    // Those of nodes that have no mailbox wait to be drained.
    std::map<Channel, Waiting> channels_ GUARDED_BY(mutex_);
    std::map<uint32_t, uint32_t> next_tag_ GUARDED_BY(mutex_);  // by agent
    std::vector<bool> out_of_step_ GUARDED_BY(mutex_);          // by agent: data did not follow a frame
    std::map<int, Drain> drains_ GUARDED_BY(mutex_);            // by agent
    std::list<std::shared_ptr<Side>> abandoned_ GUARDED_BY(mutex_);
    std::set<uint32_t> leaving_ GUARDED_BY(mutex_);  // agents that have called wait_for_all_agents
};

}  // namespace tailrace::internal
