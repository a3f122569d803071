// Transport: how ranks reach each other. One interface, backends in-process (ranks are threads), MPI, and
// what Python programs have (python/src/transport.h); one conformance suite (tests/transport/) for all.
//
// Three separate channels, which never see each other's traffic:
//   messages     small, buffered by the transport, never block the sender; FIFO between two ranks.
//   data         large, straight from the sender's memory into the receiver's; matched by (source, tag).
//   collectives  allgather and broadcast, called by all ranks in the same order from the program's threads.
//
// Threads: at any time at most one thread of a rank uses messages and data (the node agent's, or a program
// thread on a rank without an agent, under the owner's lock); collectives may run beside it in another
// thread when concurrent() is true. wake() may be called from any thread.
//
// A lost peer is not detected here: the job's launcher ends a job whose rank died.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
    // Nothing while it goes on; then the number of bytes moved, or the failure, the same at every later call.
    // After a failure the backend may still touch the memory: take_back() tells.
    virtual Result<std::optional<uint64_t>> test() = 0;
    // Gives up a transfer that is not complete or has failed, so that it may be destroyed. True when nobody
    // touches its memory any more; false when the backend cannot promise that: the memory must then outlive
    // the transport.
    virtual bool take_back() { return false; }
};

class Transport {
  public:
    virtual ~Transport() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    // The name of the machine this rank runs on: ranks with equal names share a node-local tier.
    virtual std::string host() const = 0;

    // May a background thread communicate while program threads do? False for MPI below
    // MPI_THREAD_MULTIPLE: then only collectives may be used.
    virtual bool concurrent() const = 0;

    // Messages. post() copies the bytes and returns at once; what was posted is delivered as long as this
    // rank goes on calling post, poll or test. poll() returns the next message that has arrived, from
    // anyone, or nothing.
    virtual Status post(int target, std::span<const std::byte> message) = 0;
    virtual Result<std::optional<Message>> poll() = 0;
    // True when nothing posted is still on its way out.
    virtual Result<bool> posts_delivered() = 0;

    // Takes in and drops what has been posted to this rank and nobody will poll, so that the backend has no
    // message left when the transport ends (MPI libraries warn of such). Collective, after every rank has
    // posted its last; messages cannot be used any more. Waits for a few seconds at most.
    virtual Status drop_messages() { return Status(); }

    // Data. The memory must stay untouched until the transfer is complete. A receive whose memory is
    // smaller than what is sent is a failure. Any size, also above 2 GiB.
    virtual Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                         std::span<const std::byte> source) = 0;
    virtual Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                            std::span<std::byte> target) = 0;

    // Sleeps until something may have happened, wake() is called, or longest has passed. Backends that can
    // only poll choose the nap themselves: `busy` says that transfers are under way and latency counts.
    virtual void wait(std::chrono::microseconds longest, bool busy) = 0;
    virtual void wake() = 0;

    // Collectives: every rank, same order, from program threads.
    virtual Result<std::vector<std::vector<std::byte>>> allgather(std::span<const std::byte> mine) = 0;
    virtual Result<std::vector<std::byte>> broadcast(int root, std::span<const std::byte> bytes) = 0;
};

// The worst of all ranks' statuses, the same on every rank: ok only when all are. The sentence names the
// lowest rank that failed. Collective.
Status agree(Transport& transport, const Status& mine);

// The transport of a program without ranks: one rank, collectives that return at once.
std::unique_ptr<Transport> make_single_transport();

}  // namespace tailrace::internal
