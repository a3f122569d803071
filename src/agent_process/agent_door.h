// The door of sessions to the agent process of their node (agent/agent_link.h), by its socket.
#pragma once

#include "agent/agent_link.h"

namespace tailrace::internal {

// Thread-safe; lives as long as the process.
AgentDoor& system_agent_door();

}  // namespace tailrace::internal
