// The connections between a session and the agent process of its node.
//
// The agent process finishes epochs whose programs have died (agent_process/agent_process.h). When the
// program starts again, the agent may still work on an earlier run's epochs, and hold the locks that the
// session needs. So a session first asks the agent to let go of its locks. It tells the agent when it has
// its own locks (AgentLink).
//
// If the agents of all nodes reach each other, they can also carry the session's epochs while the program
// lives. Then every rank has an AgentLine to its node's agent, for messages of carrier/line_messages.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailrace::internal {

// An agent's place among the agents that reach each other.
struct CarrierPlace {
    uint64_t world = 0;  // a random number that these agents have in common
    uint32_t agent = 0;  // its number among them
    uint32_t agents = 0;
    bool operator==(const CarrierPlace&) const = default;
};

class AgentLink {
  public:
    virtual ~AgentLink() = default;  // tells the agent that the session is over
    // The session has its locks, or gives up. The agent goes on with whatever is left to it.
    virtual void opened() = 0;
    // Whether the agent is still there. Never blocks.
    virtual bool alive() = 0;
    // Empty if the agent carries no epochs of sessions that live.
    virtual std::optional<CarrierPlace> carries() const { return std::nullopt; }
};

// One thread at a time uses it, but any thread may call wake(). To the agent, the end of a line without
// a goodbye is the death of the rank.
class AgentLine {
  public:
    virtual ~AgentLine() = default;
    // Neither blocks. Both fail (transport) if the agent is gone. The agent gets copies of the
    // descriptors.
    virtual Status post(std::span<const std::byte> message, std::span<const int> descriptors = {}) = 0;
    virtual Result<std::optional<std::vector<std::byte>>> poll() = 0;
    // Sleeps until something may have come, until wake() is called, or for `longest`.
    virtual void wait(std::chrono::microseconds longest) = 0;
    virtual void wake() = 0;
    // The agent's process; 0 if it is not known.
    virtual int process() const { return 0; }
    // How long the agent may owe a sign of life until that is said, and until it counts as gone.
    struct Patience {
        std::chrono::milliseconds until_said{10000}, until_gone{60000};
    };
    virtual Patience patience() const { return {}; }
};

// How a session reaches the agent of a node-local directory.
class AgentDoor {
  public:
    virtual ~AgentDoor() = default;
    // Asks the agent to let go of all locks that it holds on `shared_dir` or a node's directory, and
    // returns when it has. not_found if there is no agent. Fails if what answers there is not trusted, or
    // does not answer in time.
    virtual Result<std::unique_ptr<AgentLink>> ask(const std::string& local_dir,
                                                   const std::string& shared_dir) = 0;
    virtual Result<std::unique_ptr<AgentLine>> line(const std::string& local_dir) = 0;
};

}  // namespace tailrace::internal
