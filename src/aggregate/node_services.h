// NodeServices: what the parts of an aggregator share. Each part gets a reference to it.
//
// Everything in it belongs to the driving thread, except the pool, the throttle and the writers'
// submit().
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "aggregate/aggregator_options.h"
#include "aggregate/messages.h"
#include "aggregate/writer_pool.h"
#include "memory/buffer_pool.h"
#include "storage/storage.h"
#include "threads/executor.h"
#include "threads/throttle.h"
#include "transport/topology.h"
#include "transport/transport.h"

namespace tailrace::internal {

using Clock = SteadyClock;

struct NodeServices {
    const AggregatorOptions& options;
    const Topology& topology;
    int node;
    Transport& transport;
    Storage& local;
    Storage& shared;
    BufferPool& pool;
    Throttle& throttle;
    WriterPool& writers;
    std::function<void(int node, const AggregatorMessage&)> tell;
    // A call of the transport has failed: nothing can be told or moved any more.
    std::function<void(const Status&)> broken;
    // Removes the files of a plan in a writer's thread, and then calls `then` in the driving thread.
    std::function<void(std::shared_ptr<const FlushPlan>, std::function<void()> then)> discard;

    int rank_of(int other_node) const { return topology.representative(other_node); }
    // A failure of this node, as the whole group will read it.
    Status here(const Status& status) const { return status.with_context("node " + std::to_string(node)); }
};

// A piece of a stream in a pool buffer, between reading, sending, receiving and writing. The task
// that works on it and the part that waits for it share it. The buffer is free again when both have
// let go.
struct Chunk {
    uint32_t rank = 0;
    uint64_t stream_offset = 0;
    uint64_t bytes = 0;
    Buffer buffer;
    Clock::time_point ready{};  // when it was received completely
    Clock::time_point begin{};  // when receiving or sending began
    // The task sets these for the part.
    uint32_t writer = 0;  // the thread's number
    Clock::time_point read_begin{}, write_begin{}, write_end{};

    std::span<std::byte> data() const { return buffer.memory().first(bytes); }
};

// A transfer whose epoch has ended because the transport broke. It is kept with its memory until it
// ends.
struct Orphan {
    std::shared_ptr<Chunk> chunk;
    std::unique_ptr<Transfer> transfer;
    int node = -1;  // the other end
};

}  // namespace tailrace::internal
