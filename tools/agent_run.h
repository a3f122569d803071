// What `tailrace agent` does to run an agent process, in this process or in one that is an MPI program.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent_process/agent_process.h"
#include "base/status.h"
#include "command.h"
#include "config/config.h"

namespace tailrace::internal::tool {

struct AgentRun {
    std::string local_dir;
    std::string idle_exit;
    std::string grace = "30s";
    std::string for_lost = "1min";
    std::string log_file;
    bool background = false;
};

// Serves until the agent is told to end. `world`: how it reaches other nodes' agents, or null. `ready` is
// called with what became of the start, once; what it returns counts.
Exit run_agent(
    const AgentRun& options, const Config& config, std::shared_ptr<AgentWorld> world,
    const std::function<Status(const Status&)>& ready = [](const Status& begun) { return begun; });
// Becomes the program that does the same with MPI. Returns only if there is none.
Exit become_mpi_agent(const AgentRun& options);

// The value of a time option.
Result<std::chrono::milliseconds> time_of(const std::string& text, const char* option);
// Whether every epoch that lay here is finished, as far as the agent knows: none waits or has failed.
bool nothing_is_left(const AgentStatus& status);

}  // namespace tailrace::internal::tool
