// Protector: copies or codes a node's captured parts into other nodes' protect objects, in the
// background and with bounded memory. There is one per node, in its representative rank, beside the
// aggregator.
//
// Each member of a set makes its own object: for a block of it, it asks the members whose parts the
// block is made of, sums up what they send, and writes. So each node's link carries K times its part
// out, and as much in, whatever the size of the set. A ring would carry the same, and every node
// would wait for all before it. A node never asks itself.
//
// A protector is a state machine, as the aggregator is. Its owner's thread drives it through start,
// handle and step, which never block; two threads of its own read, sum up and write. Sets are
// autonomous: no message leaves the set.
//
// Epochs: objects are made one epoch after the other, in the order of start(). Asks of other members
// are answered for any epoch, also one that has ended here. So every node of a set must start the same
// epochs in the same order, or give them up, and its owner must drive it until all others are idle.
//
// Two epochs are under way at a time, and more wait. If too many wait, because epochs are captured faster
// than they are protected, the oldest of these is given up on the whole set. Its parts would fill the
// node-local tier otherwise.
//
// An epoch that cannot be protected is not failed by it: the result says why, and no object of this
// node stays. Its parts must stay until the result has come.
//
// Memory: protect_buffers buffers of protect_buffer_bytes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "protect/messages.h"
#include "protect/protect_file.h"
#include "protect/sets.h"
#include "storage/storage.h"
#include "threads/worker.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

inline constexpr uint64_t protect_buffer_bytes = 512 << 10;  // whole check blocks
// Two sums that are made, four blocks on their way to them, and four on their way to other nodes.
inline constexpr size_t protect_sums = 2, protect_receives = 4, protect_sends = 4;
inline constexpr size_t protect_buffers = protect_sums + protect_receives + protect_sends;

struct ProtectorOptions {
    std::string directory;       // this node's, of the node-local tier
    bool sync = false;           // setting local_sync
    uint64_t bandwidth_cap = 0;  // bytes per second that this node sends; 0: no cap
    Priority priority;
    size_t most_waiting = 2;  // epochs; at least 1
};

struct ProtectJob {
    EpochIdentity identity;
    std::vector<StreamInfo> parts;  // what this node has captured, in any order
    // The file of each part, by rank.
    std::vector<std::pair<uint32_t, std::string>> paths;
};

struct ProtectResult {
    EpochKey key;
    // Ok: every member of the set has its object. The same on every member, except where a node was
    // cut off.
    Status status;
    double seconds = 0;
    uint64_t sent_bytes = 0;
    uint64_t written_bytes = 0;  // of the object
};

class Protector {
  public:
    // Threads call `wake` when step() has something to do. Transport and storage must outlive the
    // protector. `node` is this node's number in the topology; it has a place in the sets.
    static Result<std::unique_ptr<Protector>> create(ProtectorOptions options, Sets sets, Topology topology,
                                                     int node, Transport& transport, Storage& local,
                                                     std::function<void()> wake);
    virtual ~Protector() = default;

    // Queues an epoch. A node without others in its set gets a result at once, which says so.
    virtual void start(ProtectJob job) = 0;
    // Takes a message for which is_protect_message() is true.
    virtual void handle(int source, std::span<const std::byte> message) = 0;
    // The epoch need not or cannot be protected any more, started or not. The set's other nodes hear of
    // it. If it was started here, a result with the reason follows.
    virtual void give_up(EpochKey key, const Status& reason) = 0;
    // Ends every epoch here with that reason, and later ones at once. Nobody is told or waited for.
    virtual void abandon(const Status& reason) = 0;
    // abandon()'s reason, or a failure of the transport.
    virtual Status abandoned() const = 0;

    // Moves everything that can move. Returns whether something moved.
    virtual bool step() = 0;
    // The results of epochs that have ended since the last call.
    virtual std::vector<ProtectResult> take_results() = 0;

    virtual bool idle() const = 0;    // no epoch queued or under way, nothing in flight
    virtual bool moving() const = 0;  // transfers in flight: latency counts
    virtual size_t most_buffers_used() const = 0;
};

}  // namespace tailrace::internal
