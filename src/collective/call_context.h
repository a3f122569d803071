// CallContext: what the parts of one collective call share on one rank, and CallMemory: what calls leave to
// the next one, so that memory is made and mapped once per file.
//
// Only the thread that drives the call uses these.
#pragma once

#include <memory>
#include <vector>

#include "base/buffer_pool.h"
#include "collective/file_phase.h"
#include "collective/plan.h"
#include "collective/shared_memory.h"
#include "collective/statistics.h"
#include "collective/word.h"
#include "transport/transport.h"

namespace tailrace::collective {

// A local aggregator works on so many windows at once: one is filled while another is sent.
inline constexpr size_t local_slots = 2;
// A global aggregator has so many windows open at once: one is exchanged while another is in the file phase.
inline constexpr size_t global_images = 2;

// Memory for data, by role:
//   member             its list of requests (16 bytes each)
//   local aggregator   local_slots x window of packed bytes, and a list of runs for each
//   global aggregator  (global_images + 1) x window: the images, and packed bytes on their way in or out
struct CallMemory {
    SharedMemory list;               // a member's requests
    SharedMemory packed;             // a local aggregator's slots
    SharedMemory runs[local_slots];  // the runs of each slot
    Attachments attachments;         // to all of these, at other ranks
    std::unique_ptr<BufferPool> images;
};

struct CallContext {
    Transport& transport;
    const Topology& topology;
    const std::vector<RankSummary>& ranks;
    const Groups& groups;
    const std::vector<int>& globals;
    const Domains& domains;
    CallMemory& memory;
    FilePhase* file_phase;  // of a global aggregator
    Statistics& statistics;
    const bool writes;

    // The first failure of this rank. Parts go on after one, with nothing for bytes, so that nobody waits.
    Status failure{};
    uint64_t file_end = UINT64_MAX;

    // Is there memory for the window at its owner from the beginning, as its first rounds fill the images?
    bool open_from_the_beginning(uint64_t window) const { return domains.round(window) < global_images; }

    int rank() const { return transport.rank(); }
    void fail(const Status& status) {
        if (failure.ok() && !status.ok()) failure = status;
    }
    Status post(int target, const Word& word) {
        if (target != rank()) ++statistics.messages;
        return transport.post(target, encode(word));
    }
    bool same_node(int other) const {
        return topology.node_of_rank[static_cast<size_t>(other)] ==
               topology.node_of_rank[static_cast<size_t>(rank())];
    }
};

// Which of a rank's memories an attachment is to (Attachments::at).
enum Attached : int { attached_list = 0, attached_packed = 1, attached_runs = 2 };

inline std::span<const Request> as_requests(std::span<const std::byte> memory, uint64_t count) {
    return {reinterpret_cast<const Request*>(memory.data()), static_cast<size_t>(count)};
}
inline std::span<const std::byte> as_bytes(std::span<const Request> requests) {
    return std::as_bytes(requests);
}

}  // namespace tailrace::collective
