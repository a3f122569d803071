// FlushJob: one epoch's streams of one node, on their way to the group's shared files, and how that ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "flush/flush_statistics.h"
#include "flush/plan.h"

namespace tailrace::internal {

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

struct FlushResult {
    EpochKey key;
    Status status;             // of the whole group: the same on every member
    bool coordinator = false;  // this node is the one that speaks for the group
    int group = 0;
    FlushStatistics statistics;
};

}  // namespace tailrace::internal
