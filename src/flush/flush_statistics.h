// FlushStatistics: what a node's flush of one epoch moved, and how long its phases took.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tailrace::internal {

// What one writer thread of a leader did for an epoch. Writing includes waiting for the bandwidth
// cap.
struct WriterStatistics {
    uint64_t local_bytes = 0, received_bytes = 0;
    uint64_t local_chunks = 0, received_chunks = 0;
    double read_seconds = 0;  // reading local chunks from their tier
    double local_write_seconds = 0, received_write_seconds = 0;
    double idle_seconds = 0;  // while the leader moved data, but had no chunk for this writer
    bool operator==(const WriterStatistics&) const = default;
};

// One entry of a trace. Times are those of the steady clock.
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
    uint64_t local_bytes = 0;     // this node's own streams, as far as this node wrote them
    uint64_t received_bytes = 0;  // from followers
    uint64_t sent_bytes = 0;      // to leaders
    uint64_t chunks_received = 0;
    uint64_t chunks_sent = 0;
    uint64_t largest_chunk_wait_us = 0;  // the longest time a received chunk waited for a writer
    uint64_t chunk_wait_us = 0;          // the sum of these times
    double seconds = 0;                  // from start() until the group's flush ended, on this node
    // The phases of a leader. The plan phase lasts until the leader begins with the epoch; it
    // includes the wait for buffers that earlier epochs hold. Then the leader makes the files,
    // moves the data and commits. It spends the rest of `seconds` waiting for the group.
    double plan_seconds = 0, prepare_seconds = 0, move_seconds = 0, commit_seconds = 0;
    double credit_wait_seconds = 0;  // a follower had data to send, but no credit
    double write_seconds = 0;        // sum over writers
    double sync_seconds = 0;
    std::vector<WriterStatistics> writers;  // a leader's, by thread
    // Filled with AggregatorOptions::trace; at most max_flush_events entries.
    std::vector<FlushEvent> events;
};
inline constexpr size_t max_flush_events = 1 << 16;

}  // namespace tailrace::internal
