// The settings of an aggregator, which hold for all its jobs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "flush/plan.h"
#include "format/epoch_key.h"
#include "storage/storage.h"
#include "threads/throttle.h"
#include "threads/worker.h"

namespace tailrace::internal {

struct AggregatorOptions {
    std::string shared_dir;
    PlanSettings plan;     // chunk_bytes is the size of a pool buffer
    uint32_t writers = 4;  // threads
    uint32_t buffers = 8;  // of plan.chunk_bytes
    DirectIo direct = DirectIo::automatic;
    Priority priority;
    std::shared_ptr<BandwidthCap> cap;  // on what this node writes; null: none
    uint32_t file_rights = 0;           // of shared files; 0: what the umask leaves
    WorkingName working_name = unfinished_name;
    bool trace = false;  // results bring FlushStatistics::events
};

}  // namespace tailrace::internal
