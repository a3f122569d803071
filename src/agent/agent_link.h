// AgentLink: a session's connection to the agent process of its node, if there is one.
//
// The agent process finishes epochs whose programs have died (agent_process/agent_process.h). It may
// be at work on an earlier run's epochs, and hold the locks that a session needs, when the program
// starts again. So a session first asks the agent to let go, and tells it when it has its locks.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace tailrace::internal {

class AgentLink {
  public:
    virtual ~AgentLink() = default;  // tells the agent that the session is over
    // The session has its locks, or gives up. The agent goes on with whatever is left to it.
    virtual void opened() = 0;
    // Whether the agent is still there. Never blocks.
    virtual bool alive() = 0;
};

// How a session reaches the agent of a node-local directory.
class AgentDoor {
  public:
    virtual ~AgentDoor() = default;
    // Asks the agent to let go of all locks, and returns when it has. not_found if there is no
    // agent. Fails if what answers there is not trusted, or does not answer in time.
    virtual Result<std::unique_ptr<AgentLink>> ask(const std::string& local_dir) = 0;
};

}  // namespace tailrace::internal
