// FlushJob describes one node's share of an epoch that is flushed: its streams, and how the flush
// may commit. FlushResult says how the group's flush ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "flush/flush_statistics.h"
#include "flush/plan.h"

namespace tailrace::internal {

// A stream that this node has captured. The aggregator may read its file until the job has ended.
struct LocalStream {
    StreamInfo info;
    std::string path;          // the captured part's file
    uint64_t path_offset = 0;  // where the stream starts in that file
};

struct FlushJob {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    std::vector<LocalStream> streams;
    // Not ok: this node cannot take part, because a rank's capture failed. The group then gives up.
    Status refused;
    // Set when ranks may not communicate in the background. These are the offers of every node of
    // the group, which the caller has exchanged. Every node then leads its own segment, and no
    // message is sent.
    std::optional<std::vector<NodeOffer>> offers;
    // False: leaders write everything but their slots, and write those when allow() is called.
    bool may_commit = true;
    // The files of this node's ranks, as the program wrote them, are in the shared directory already
    // (shared/originals.h).
    bool originals_written = false;
};

// Checks that a plan that another node has made is the one that this node would have made of the same
// offers, and that it offers what the job has. Returns failed_state or invalid_argument, and says what is
// wrong. `group` is the node's, and `settings` are those of its configuration.
Status check_fits(const FlushPlan& plan, const FlushJob& job, const Group& group, int node,
                  const PlanSettings& settings);
// The second part alone.
Status check_own_offer(const FlushPlan& plan, const FlushJob& job, int node);

struct FlushResult {
    EpochKey key;
    Status status;             // the whole group's: the same on every member
    bool coordinator = false;  // this node reports the group's result to the root
    int group = 0;
    FlushStatistics statistics;
};

}  // namespace tailrace::internal
