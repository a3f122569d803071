#include "agent_process/agent_door.h"

#include <fmt/format.h>
#include <poll.h>

#include "agent_process/agent_socket.h"

namespace tailrace::internal {

namespace {

// An agent lets go between two questions of a pass, which are a fraction of a second apart, unless its
// file system hangs.
constexpr std::chrono::seconds longest_wait(30);

class SocketLink final : public AgentLink {
  public:
    explicit SocketLink(AgentConnection connection) : connection_(std::move(connection)) {}

    void opened() override { (void)connection_.send(SessionOpened{}); }

    // The agent says nothing by itself. So if there is something to read, it is the end.
    bool alive() override {
        pollfd waiting{connection_.descriptor(), POLLIN, 0};
        return poll(&waiting, 1, 0) == 0;
    }

  private:
    AgentConnection connection_;
};

class SocketDoor final : public AgentDoor {
  public:
    Result<std::unique_ptr<AgentLink>> ask(const std::string& local_dir) override {
        TAILRACE_ASSIGN(auto connection, connect_to_agent(local_dir));
        TAILRACE_TRY(connection.send(SessionOpens{}));
        TAILRACE_ASSIGN(const auto answer, connection.receive(longest_wait));
        if (!answer)
            return Status(Code::busy, fmt::format("the agent of {} has not let go of its locks within {} s",
                                                  local_dir, longest_wait.count()));
        if (!std::holds_alternative<LetGo>(*answer))
            return Status(Code::transport, fmt::format("the agent of {} gave a wrong answer", local_dir));
        return std::unique_ptr<AgentLink>(std::make_unique<SocketLink>(std::move(connection)));
    }
};

}  // namespace

AgentDoor& system_agent_door() {
    static SocketDoor door;
    return door;
}

}  // namespace tailrace::internal
