// Transport: how ranks reach each other. There is one interface, with backends in-process (ranks
// are threads), MPI, and those of Python programs (python/src/transport.h). All run one conformance
// suite (tests/transport/).
//
// Three separate channels, which never see each other's traffic:
//   messages     small, buffered by the transport, never block the sender; FIFO between two ranks.
//   data         large, straight from the sender's memory into the receiver's; matched by (source, tag).
//   collectives  allgather, broadcast and exchange, called by all ranks in the same order from the program's
//   threads.
//
// Threads: at any time at most one thread of a rank uses messages and data. It is the node agent's,
// or, on a rank without an agent, a program thread under the owner's lock. Collectives may run
// beside it in another thread if concurrent() is true. Any thread may call wake().
//
// A lost peer is not detected here. The job's launcher ends a job whose rank died.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/status.h"

namespace tailrace::internal {

struct Message {
    int source = 0;
    std::vector<std::byte> bytes;
};

// One large transfer under way. Destroying one that is not complete is a broken invariant.
class Transfer {
  public:
    virtual ~Transfer() = default;
    // Returns nothing while the transfer goes on, then the number of bytes moved or the failure.
    // Later calls return the same. After a failure the backend may still access the memory:
    // take_back() tells.
    virtual Result<std::optional<uint64_t>> test() = 0;
    // Gives up a transfer that is not complete or has failed, so that it may be destroyed. Returns
    // true if nobody accesses its memory any more. If it returns false, the backend cannot promise
    // that, and the memory must outlive the transport.
    virtual bool take_back() { return false; }
};

class CommonCall;

class Transport {
  public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    // The name of the machine on which this rank runs. Ranks with equal names share a node-local
    // tier.
    virtual std::string host() const = 0;

    // Whether a background thread may communicate while program threads do. It is false for MPI
    // below MPI_THREAD_MULTIPLE. Then only collectives may be used.
    virtual bool concurrent() const = 0;

    // Messages. post() copies the bytes and returns at once. Posted messages are delivered as long
    // as this rank goes on calling post, poll or test. poll() returns the next message that has
    // arrived from any rank, or nothing. If post() throws, nothing was posted. If poll() throws, the
    // message is returned by a later call.
    virtual Status post(int target, std::span<const std::byte> message) = 0;
    virtual Result<std::optional<Message>> poll() = 0;
    // True if everything posted has left.
    virtual Result<bool> posts_delivered() = 0;

    // Data. The memory must stay untouched until the transfer is complete. A receive fails if its
    // memory is smaller than what is sent. Any size is possible, also above 2 GiB.
    virtual Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                         std::span<const std::byte> source) = 0;
    virtual Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                            std::span<std::byte> target) = 0;

    // Sleeps until something may have happened, until wake() is called, or for `longest`. Backends
    // that can only poll choose the nap themselves. `busy` says that transfers are under way and
    // latency counts.
    virtual void wait(std::chrono::microseconds longest, bool busy) = 0;
    virtual void wake() = 0;

    // Collectives. Every rank calls them in the same order, from program threads.
    Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine);
    Result<std::vector<std::byte>> broadcast(int root, std::span<const std::byte> bytes);

    // Moves pieces of data between ranks. Every rank names what it sends and what it receives, itself
    // included; what goes from one rank to another goes in order, and both must give it the same
    // length (invalid_argument on the receiver if they do not, and its memory is then undefined). The
    // pieces of one call have less than 2 GiB each.
    struct Outgoing {
        int target = 0;
        std::span<const std::byte> bytes;
    };
    struct Incoming {
        int source = 0;
        std::span<std::byte> bytes;
    };
    Status exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives);

    // Receives and drops messages that were posted to this rank and that nobody will poll. So the
    // backend has no message left when the transport ends. (MPI libraries warn of such messages.)
    // Call it after every rank has posted its last message. Messages cannot be used afterwards. Waits
    // for a few seconds at most.
    Status drop_messages();

    // Whether a rank has left the common call around this. If so, no rank communicates until the end
    // of that call. Ranks that come to the same collective have the same answer after it.
    bool common_call_left() const;

  protected:
    // The backend's own collectives. A rank may lack memory for an outcome that the others have.
    virtual Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) = 0;
    virtual Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) = 0;
    virtual Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) = 0;
    virtual Status drop_posted() { return Status(); }
    // The least of all ranks' numbers. A backend that needs no memory for it lets a rank say that it
    // has none.
    virtual Result<int> least(int mine) {
        TAILRACE_ASSIGN(const auto all, gather(std::as_bytes(std::span(&mine, 1))));
        for (const auto& bytes : all) {
            int number = 0;
            if (bytes.size() != sizeof number)
                return Status(Code::transport, "a rank is in another collective call");
            std::memcpy(&number, bytes.data(), sizeof number);
            mine = std::min(mine, number);
        }
        return mine;
    }

  private:
    friend class CommonCall;
    friend Status agree(Transport& transport, const Status& mine);
    Status meet();                       // with the ranks of the common call, if there is one
    CommonCall* common_call_ = nullptr;  // the innermost of the program threads
};

// A call that all ranks make together, such as a restore, and that each may have to leave between two
// collectives for a reason of its own, for example because memory has run out. Without this, the
// others would wait for that rank in their next collective, or take bytes of another call. Within a
// common call every collective begins with a round in which a rank can say that it has left. All
// others then fail with its reason, and no rank communicates any more until the end of the call. A
// common call within another can fail alone. Who leaves the outer one leaves both.
class CommonCall {
  public:
    explicit CommonCall(Transport& transport);
    ~CommonCall();
    CommonCall(const CommonCall&) = delete;
    CommonCall& operator=(const CommonCall&) = delete;

    // What begins each collective. The outcome is ok on all ranks or on none. If `mine` is not ok, this
    // rank has left.
    Status meet(const Status& mine) noexcept;
    bool left() const { return left_; }

  private:
    Status reason_of(int leaver, const Status& mine);

    Transport& transport_;
    const bool alone_;  // then nobody else has to hear of it, and several threads may be in such calls
    CommonCall* const outer_;
    const int depth_;  // of calls around this one
    bool left_;        // some rank has
    Status why_;
};

// Runs the body of a common call. It fails on every rank, or on none. Collective.
template <class Body>
auto together(Transport& transport, Body&& body) noexcept {
    CommonCall call(transport);
    auto mine = catching(body);
    using Outcome = decltype(mine);
    return catching([&]() -> Outcome {
        if constexpr (std::is_same_v<Outcome, Status>) {
            const Status all = call.meet(mine);
            return mine.ok() ? all : std::move(mine);
        } else {
            const Status all = mine.ok() ? call.meet({}) : call.meet(catching([&] { return mine.status(); }));
            return mine.ok() && !all.ok() ? Outcome(all) : std::move(mine);
        }
    });
}

// exchange() for transports that have nothing better: everything goes to every rank.
Status exchange_by_allgather(Transport& transport, std::span<const Transport::Outgoing> sends,
                             std::span<const Transport::Incoming> receives);
// The same for ranks that are threads of one process: each copies straight from the others' memory.
Status exchange_by_address(Transport& transport, std::span<const Transport::Outgoing> sends,
                           std::span<const Transport::Incoming> receives);

// The worst of all ranks' statuses. It is ok on every rank, or on none. The sentence names the lowest
// rank that failed, and is the same on every rank that has memory for it. Collective.
Status agree(Transport& transport, const Status& mine);

// The transport of a program without ranks. It has one rank, and its collectives return at once.
std::unique_ptr<Transport> make_single_transport();

}  // namespace tailrace::internal
