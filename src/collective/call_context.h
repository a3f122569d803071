// CallContext: what the roles of one collective call share on one rank. CallMemory: what calls
// leave to the next one, so that memory is made and mapped once per file.
//
// Only the thread that drives the call uses these.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "collective/call_message.h"
#include "collective/file_phase.h"
#include "collective/plan.h"
#include "collective/shared_memory.h"
#include "memory/buffer_pool.h"
#include "requests/statistics.h"
#include "transport/nap.h"
#include "transport/transport.h"

namespace tailrace::internal::collective {

// A local aggregator works on this many windows at once: one is filled while another is sent.
inline constexpr size_t local_slots = 2;
// For small windows it has more slots, so that a small call need not wait for one. All of them
// together take little memory, because touching memory for the first time costs more than a
// message.
inline constexpr size_t most_local_slots = 16;
inline constexpr uint64_t more_slots_bytes = uint64_t{8} << 20;
// A global aggregator has this many windows open at once: one is exchanged while another is in the
// file phase.
inline constexpr size_t global_images = 2;

// Memory for data, by role:
//   member             its list of requests (16 bytes each), and up to small_write_bytes behind it
//   local aggregator   local_slots x buffer size of packed bytes, and a list of runs for each slot
//   global aggregator  (global_images + 1) x window: the images, and packed bytes on their way in or out
struct CallMemory {
    SharedMemory list;                    // a member's requests, and the bytes of its small write
    SharedMemory packed;                  // a local aggregator's slots
    SharedMemory runs[most_local_slots];  // the runs of each slot
    Attachments attachments;              // to all of these memories of other ranks
    std::unique_ptr<BufferPool> images;
    LongLook long_look;  // used at the beginning of calls
};

// Spare room, so that lists that grow a little with every call need not be made anew every time.
constexpr uint64_t spare_of_list(uint64_t bytes) {
    return bytes / 2;
}

struct CallContext {
    Transport& transport;
    const Topology& topology;
    const std::vector<RankSummary>& ranks;
    const Groups& groups;
    const std::vector<int>& globals;
    const Domains& domains;
    CallMemory& memory;
    FilePhase* file_phase;  // if this rank is a global aggregator
    Statistics& statistics;
    const bool writes;
    const size_t slots;  // if this rank is a local aggregator

    // The first failure of this rank. After one, the roles go on without bytes, so that nobody
    // waits for them.
    Status failure{};
    uint64_t file_end = UINT64_MAX;
    uint64_t steps = 0;  // of the longest chain of messages and transfers that has reached this rank
    std::deque<CallMessage> to_myself{};

    // Whether the window's owner has memory for it from the beginning, because its first rounds
    // fill the images.
    bool open_from_the_beginning(uint64_t window) const { return domains.round(window) < global_images; }

    int rank() const { return transport.rank(); }
    void fail(const Status& status) {
        if (failure.ok() && !status.ok()) failure = status;
    }
    // `after`: the steps of everything that this message had to wait for.
    Status post(int target, CallMessage message, uint64_t after) {
        message.step = after;
        if (target == rank()) {
            to_myself.push_back(std::move(message));
            return Status();
        }
        ++message.step;
        ++statistics.messages;
        return transport.post(target, encode(message));
    }
    // Notes that something has arrived that ends a chain of `step` messages and transfers.
    void note_step(uint64_t step) { steps = std::max(steps, step); }

    // The place of a message's slot in the packed bytes of its local aggregator. transport if the
    // message names more than there is.
    Result<std::span<std::byte>> slot_of(std::span<std::byte> packed, const CallMessage& message) const {
        const uint64_t begin = message.slot * domains.window_bytes();
        if (message.slot >= most_local_slots || begin > packed.size() ||
            message.bytes > packed.size() - begin)
            return Status(Code::transport,
                          fmt::format("a rank names {} bytes in slot {} of {} bytes of packed data",
                                      message.bytes, message.slot, packed.size()));
        return packed.subspan(static_cast<size_t>(begin), static_cast<size_t>(message.bytes));
    }
    bool same_node(int other) const {
        return topology.node_of_rank[static_cast<size_t>(other)] ==
               topology.node_of_rank[static_cast<size_t>(rank())];
    }
};

// Which of a rank's memories an attachment leads to (Attachments::at). After these come the runs of
// each slot.
enum Attached : int { attached_list = 0, attached_packed = 1, attached_runs = 2 };

// transport if the memory holds fewer requests than a peer says.
inline Result<std::span<const Request>> as_requests(std::span<const std::byte> memory, uint64_t count) {
    if (count > memory.size() / sizeof(Request))
        return Status(Code::transport,
                      fmt::format("a rank names {} requests in {} bytes of memory", count, memory.size()));
    return std::span(reinterpret_cast<const Request*>(memory.data()), static_cast<size_t>(count));
}
inline std::span<const std::byte> as_bytes(std::span<const Request> requests) {
    return std::as_bytes(requests);
}

}  // namespace tailrace::internal::collective
