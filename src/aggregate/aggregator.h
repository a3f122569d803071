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

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aggregate/plan.h"
#include "base/status.h"
#include "base/worker.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace tailrace {

struct AggregatorOptions {
    std::string shared_dir;
    PlanSettings plan;     // chunk_bytes is the size of a pool buffer
    uint32_t writers = 4;  // threads
    uint32_t buffers = 8;  // of plan.chunk_bytes
    DirectIo direct = DirectIo::automatic;
    Priority priority;
    uint64_t bandwidth_cap = 0;  // bytes per second this node writes; 0: no cap
    bool trace = false;          // results bring what happened when (FlushStatistics::events)
};

// A stream this node has captured and the aggregator may read until the job is over.
struct LocalStream {
    StreamInfo info;
    std::string path;          // of the captured part
    uint64_t path_offset = 0;  // where the stream starts in it
};

struct FlushJob {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    std::vector<LocalStream> streams;
    Status refused;  // not ok: this node cannot take part (a rank's capture failed); the group gives up
    // Set when ranks may not communicate in the background: the offers of every node of the group, exchanged
    // by the caller. Then every node leads its own segment and no message is sent.
    std::optional<std::vector<NodeOffer>> offers;
    // Not yet: everything but the slots is written, and those when allow() is called.
    bool may_commit = true;
};

// What one writer thread of a leader did for an epoch. Writing includes waiting for the bandwidth cap.
struct WriterStatistics {
    uint64_t local_bytes = 0, received_bytes = 0;
    uint64_t local_chunks = 0, received_chunks = 0;
    double read_seconds = 0;  // local chunks, from their tier
    double local_write_seconds = 0, received_write_seconds = 0;
    double idle_seconds = 0;  // of the time in which the leader moved data: no chunk was there for it
    bool operator==(const WriterStatistics&) const = default;
};

// Something that took time, for a trace. Times are of the steady clock.
struct FlushEvent {
    enum class Kind : uint8_t {
        plan,
        prepare,
        move,
        commit,
        read,
        write_local,
        write_received,
        receive,
        send
    };
    Kind kind = Kind::plan;
    int writer = -1;  // the thread's number; -1: the driving thread
    std::chrono::steady_clock::time_point begin, end;
    uint64_t bytes = 0;
    uint32_t rank = 0;  // whose bytes
};

struct FlushStatistics {
    bool leader = false;
    uint64_t local_bytes = 0;     // of this node's streams, written by this node
    uint64_t received_bytes = 0;  // from followers
    uint64_t sent_bytes = 0;      // to leaders
    uint64_t chunks_received = 0;
    uint64_t chunks_sent = 0;
    uint64_t largest_chunk_wait_us = 0;  // of a received chunk, for a writer
    uint64_t chunk_wait_us = 0;          // sum of those
    double seconds = 0;                  // from start() to the group's end, on this node
    // The phases of a leader: until it begins with the epoch (the plan, and earlier epochs' buffers), making
    // the files, moving the data, committing. What is left of `seconds` is waiting for the group.
    double plan_seconds = 0, prepare_seconds = 0, move_seconds = 0, commit_seconds = 0;
    double credit_wait_seconds = 0;  // of a follower: data were there, and no leader had asked for them
    double write_seconds = 0;        // sum over writers
    double sync_seconds = 0;
    std::vector<WriterStatistics> writers;  // of a leader, by thread
    std::vector<FlushEvent> events;         // with AggregatorOptions::trace; at most most_flush_events
};
inline constexpr size_t most_flush_events = 1 << 16;

struct FlushResult {
    EpochKey key;
    Status status;             // of the whole group: the same on every member
    bool coordinator = false;  // this node is the one that speaks for the group
    int group = 0;
    FlushStatistics statistics;
};

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

// Messages of the aggregator start with this byte; its owner's own messages start with another.
inline constexpr std::byte aggregator_message_mark{0xA6};
bool is_aggregator_message(std::span<const std::byte> message);

}  // namespace tailrace
