// From an epoch's offers to a node's plan record, and back. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "flush/plan.h"
#include "format/plan_record.h"

namespace tailrace::internal {

// The plan by which every node of the group leads, so that none has to send or hear anything.
// Placement is contiguous, which fixes all places in advance. Returns unsupported if the group has
// more nodes than a file may have leaders. `settings` may have any leaders_per_file and placement.
Result<FlushPlan> make_solo_plan(const std::string& job, EpochKey key, uint64_t run_uid, uint32_t rank_count,
                                 const Group& group, std::vector<NodeOffer> offers, PlanSettings settings);

// What a record has besides the plan.
struct NodePlace {
    int node = 0;
    std::vector<std::string> hosts;  // of every node of the job
    std::string shared_dir;
    uint32_t keep_shared = 0;
    uint32_t file_rights = 0;
};

// `buffer_bytes` is the PlanSettings::chunk_bytes that the plan was made with. A host's name is cut
// to max_host_bytes.
PlanRecord record_plan(const FlushPlan& solo_plan, uint64_t buffer_bytes, const NodePlace& place);

// The plan of a record. Returns unsupported if this version of the library would place the bytes
// elsewhere than the version that wrote the record.
Result<FlushPlan> recorded_plan(const PlanRecord& record);

}  // namespace tailrace::internal
