// CarriedJob: the facts about a session that an agent process needs to carry its epochs. They are the
// JobContext of the node's representative, without the members that exist only in the program.
//
// The decoder treats every byte as hostile: it checks each number against the others, and checks settings
// as a program does. The bytes come from a process of the same user, which may do anything with the
// user's files in any case. So paths get no further checks, with one exception: captured parts must lie
// in directories of the agent's own node-local tier (check_part_path).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/job_context.h"
#include "base/status.h"
#include "flush/flush_job.h"

namespace tailrace::internal {

struct CarriedJob {
    // Complete but for transport, storages, lock, points and signals.
    JobContext context;
    int rank = 0;                                                // the representative's
    std::vector<uint32_t> agent_of_node;                         // among the agents of a world
    bool brings_local_lock = false, brings_shared_lock = false;  // descriptors, in this order
};

CarriedJob carried_job_of(const JobContext& context, std::vector<uint32_t> agent_of_node);
std::vector<std::byte> encode(const CarriedJob& job);
// `agents`: how many there are in the world.
Result<CarriedJob> decode_carried_job(std::span<const std::byte> bytes, uint32_t agents);

// Recovered epochs, in order.
std::vector<std::byte> encode(const std::vector<FlushJob>& recovered);
Result<std::vector<FlushJob>> decode_flush_jobs(std::span<const std::byte> bytes);

// Refuses a path that does not lead to a file of a node's directory in `local_dir`.
Status check_part_path(const std::string& path, const std::string& local_dir);

}  // namespace tailrace::internal
