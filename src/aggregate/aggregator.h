// Aggregator: writes the captured streams of a group's nodes to the group's shared files, in the
// background and with bounded memory. There is one per node, in its representative rank.
//
// The way of the data (Algorithms 2-5 of the FGCS paper):
//   follower   sends a chunk from a pool buffer, only against a leader's credit
//   leader     gives a follower a credit for a free buffer, receives into it, and queues it
//   writers    a pool of threads: take the write queue first, else the next chunk of local data;
//              allocate an aligned place under a short lock, write outside every lock, and give the
//              buffer back
//   commit     docs/format.md: data, index, sync; then slot and sync, once the owner allows it
//
// The files keep the names that they have while they are written, because only the root, which
// hears from all groups, may give the final ones.
//
// An aggregator is a state machine. Its owner's thread drives it through start, handle and step,
// which never block. Only writers do file I/O. All communication goes through one Transport, from
// the driving thread. Groups are autonomous: no message leaves the group.
//
// Memory: at most buffers x buffer_bytes, plus about 100 bytes per chunk and rank of the group for
// the index.
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
    // Writer threads call `wake` when step() has something to do. Transport and storages must
    // outlive the aggregator. `node` is this node's number in the topology.
    static Result<std::unique_ptr<Aggregator>> create(AggregatorOptions options, Topology topology, int node,
                                                      Transport& transport, Storage& local, Storage& shared,
                                                      std::function<void()> wake);
    virtual ~Aggregator() = default;

    // Queues a job. Jobs of a node are flushed in the order in which they were started. Every node
    // of the group must start the same keys in the same order, also those for which it has no
    // streams.
    virtual void start(FlushJob job) = 0;

    // Lets a job commit that was started with may_commit = false. Unknown keys are not remembered.
    virtual void allow(EpochKey key) = 0;

    // Takes a message for which is_aggregator_message() is true.
    virtual void handle(int source, std::span<const std::byte> message) = 0;

    // Ends this node's work on a job, started or not, with that reason. (The owner has learned that
    // the epoch cannot come about, for example because another node saved a different one.) The
    // group's other nodes hear of it as of any other failure. A result with the reason follows from
    // take_results(). Unknown keys are remembered, so that a job started later under one fails at
    // once.
    virtual void give_up(EpochKey key, Status reason) = 0;

    // Ends every job here with that reason, and later ones at once. The group's other nodes are
    // neither told nor waited for, and messages are ignored. Results follow once writers have let
    // go of the captured parts.
    virtual void abandon(const Status& reason) = 0;
    // Why this node takes part in nothing any more: abandon()'s reason, or a failure of the
    // transport.
    virtual Status abandoned() const = 0;

    // Moves everything that can move. Returns whether something moved.
    virtual bool step() = 0;

    // The results of jobs that have ended since the last call.
    virtual std::vector<FlushResult> take_results() = 0;

    // The plans that have come since the last call, even if their jobs have failed meanwhile.
    virtual std::vector<std::shared_ptr<const FlushPlan>> take_plans() = 0;

    virtual bool idle() const = 0;    // no job queued or running, nothing in flight
    virtual bool moving() const = 0;  // transfers in flight: latency counts
    virtual size_t most_buffers_used() const = 0;
    // Data that this node has written for jobs that have not ended.
    virtual uint64_t bytes_under_way() const = 0;
};

// Whether a message is for an aggregator's handle(). Messages of its owner start with another byte.
bool is_aggregator_message(std::span<const std::byte> message);

}  // namespace tailrace::internal
