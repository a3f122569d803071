// The plan record: what one node must know to write its share of an epoch without asking anybody
// (docs/format.md, "Plan record").
//
// It lies beside the node's captured parts. It exists only if every rank of the job has captured
// the epoch and the arrays of the epoch fit together. So an epoch whose plan lies on every node can
// be finished by nodes that cannot talk to each other.
//
// Every node of the group leads: it writes its own segment of the group's files. The record has
// the numbers of the layout as they were computed, so that another version of the library cannot
// place bytes elsewhere without noticing.
//
// Pure encode and decode; the decoder takes every byte as hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "format/part_file.h"

namespace tailrace::internal {

struct PlannedNode {
    uint32_t leader = 0;              // the segment that this node writes
    std::string host;                 // for messages; 1 to max_host_bytes
    std::vector<StreamInfo> streams;  // of its ranks, ascending by rank; may be empty
    bool operator==(const PlannedNode&) const = default;
};

struct PlanRecord {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 1;
    std::string shared_dir;   // an absolute path of at most max_part_directory_bytes
    uint32_t node = 0;        // whose record this is
    uint32_t node_count = 1;  // of the job
    uint32_t file_count = 1;  // K
    uint32_t keep_shared = 0;
    uint32_t file_rights = 0;  // permission bits of the shared files; 0: not known
    // The layout of the group's files. All but the first three follow from the rest of the record.
    uint64_t block_bytes = 4096;
    uint64_t buffer_bytes = 0;
    uint64_t stripe_align = 0;
    uint64_t index_area_bytes = 0;
    uint64_t stripe_bytes = 0;  // 0 if and only if the group has one node
    // The group's nodes, from first_node on. `node` is one of them.
    uint32_t first_node = 0;
    std::vector<PlannedNode> nodes;
    bool operator==(const PlanRecord&) const = default;

    const PlannedNode& own() const { return nodes[node - first_node]; }
};

inline constexpr size_t max_host_bytes = 255;
// No record is larger. (2^26 ranks in one group are 1.5 GiB, but a job that large has more groups.)
inline constexpr uint64_t max_plan_record_bytes = uint64_t{1} << 31;

std::vector<std::byte> encode(const PlanRecord& record);
// `bytes` are the whole file. Returns corrupt or unsupported as all decoders of the format do.
Result<PlanRecord> decode_plan_record(std::span<const std::byte> bytes);

// NAME.e000000012.r0003.n00005.plan: the plan record of node 5. While it is written, ".unfinished"
// is added. With .local-plan in place of .plan, the program has kept the epoch in the node-local tier, so
// it is finished only as the newest one.
struct PlanFileName {
    std::string job;
    EpochKey key;
    uint32_t node = 0;
    bool unfinished = false;
    bool local = false;
    bool operator==(const PlanFileName&) const = default;
};
std::string to_string(const PlanFileName& name);
std::optional<PlanFileName> parse_plan_file_name(std::string_view text);

// NAME.e000000012.r0003.n00005.kept-plan: the plan record of node 5, on the node that keeps a copy of
// what node 5 has captured. While it is written, ".unfinished" is added.
struct KeptPlanFileName {
    std::string job;
    EpochKey key;
    uint32_t node = 0;
    bool unfinished = false;
    bool operator==(const KeptPlanFileName&) const = default;
};
std::string to_string(const KeptPlanFileName& name);
std::optional<KeptPlanFileName> parse_kept_plan_file_name(std::string_view text);

}  // namespace tailrace::internal
