// Aggregator: brings the captured streams of a group's nodes into the group's shared files, in the
// background, with bounded memory. One per node, in its representative rank.
//
// Way of the data (Algorithms 2-5 of the FGCS paper):
//   follower   start_send of a chunk from a pool buffer, only against a leader's credit
//   leader     free buffer -> credit to a follower -> receive into the buffer -> write queue
//   writers    a pool of threads: write queue first, else the next chunk of local data; allocate an aligned
//              place under a short lock; write outside every lock; give the buffer back
//   commit     docs/format.md: data, index, sync; slot, sync, once the owner allows it. The files keep their
//              unfinished names: only who hears of all groups may give the final ones
//
// A leader is a state machine driven by its owner's thread through start/handle/step, which never block; only
// writers do file I/O. All communication of the background goes through the one Transport, from the one
// driving thread. Groups are autonomous: no message leaves the group.
//
// Memory: at most buffers x buffer_bytes, plus about 100 bytes per chunk and rank of the group for the index.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "aggregate/aggregator_options.h"
#include "base/status.h"
#include "flush/flush_job.h"
#include "storage/storage.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

class Aggregator {
  public:
    // `wake` is called from writer threads when step() has something to do. Transport and storages must
    // outlive the aggregator. `node` is this node's id in the topology.
    static Result<std::unique_ptr<Aggregator>> create(AggregatorOptions options, Topology topology, int node,
                                                      Transport& transport, Storage& local, Storage& shared,
                                                      std::function<void()> wake);
    virtual ~Aggregator() = default;

    // Queues a job. Jobs of a node are flushed in the order they were started; every node of the group must
    // start the same keys in the same order (with no streams, if it has none).
    virtual void start(FlushJob job) = 0;

    // A job that was started with may_commit = false may now commit. Of unknown keys nothing is remembered.
    virtual void allow(EpochKey key) = 0;

    // A message that is_aggregator_message() recognised.
    virtual void handle(int source, std::span<const std::byte> message) = 0;

    // Ends this node's part in a job, started or not, with that reason (its owner learned that the epoch
    // cannot come about: another node saved a different one, say). The group's other nodes are told as of any
    // other failure; a result with the reason follows from take_results(). Unknown keys are remembered, so
    // that a job started later under one fails at once.
    virtual void give_up(EpochKey key, Status reason) = 0;

    // Ends every job here with that reason, and any started later at once: nobody of the group is told or
    // waited for, and messages are passed over. Results follow once writers have let go of the parts.
    virtual void abandon(const Status& reason) = 0;
    // Why this node takes part in nothing any more: abandon()'s reason, or its own transport's failure.
    virtual Status abandoned() const = 0;

    // Moves everything that can move. True when something did.
    virtual bool step() = 0;

    // Jobs that came to their end since the last call.
    virtual std::vector<FlushResult> take_results() = 0;

    virtual bool idle() const = 0;    // no job queued or running, nothing in flight
    virtual bool moving() const = 0;  // transfers in flight: latency counts
    virtual size_t most_buffers_used() const = 0;
};

// Whether a message is for an aggregator's handle(). Its owner's own messages start with another byte.
bool is_aggregator_message(std::span<const std::byte> message);

}  // namespace tailrace::internal
