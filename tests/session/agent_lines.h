// AgentLines: the lines of ranks to an agent that is simulated (drain_agent.h), without sockets. They do what
// those of agent_process/agent_door.cc and agent_process/agent_process.cc do.
//
// What either end has sent before it ended is still read at the other one. A line has room for some messages
// on their way to a rank; the agent's further ones have to wait (carrier/line_sender.h).
//
// Thread-safe. An end of a line that a rank has may live longer than the lines.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/agent_link.h"
#include "carrier/carrier.h"
#include "threads/mutex.h"

namespace tailrace::internal::testing_support {

class AgentLines {
  public:
    // `woken` is called when the agent has something to do.
    explicit AgentLines(std::function<void()> woken) : hub_(std::make_shared<Hub>(std::move(woken))) {}

    // ---- the program's side
    // Gives another process a lock by its descriptor, or null.
    using DuplicateLock = std::function<std::shared_ptr<DirectoryLock>(int descriptor)>;
    Result<std::unique_ptr<AgentLine>> connect(DuplicateLock duplicate);
    // The program dies: nothing more goes in either direction.
    void cut();

    // ---- the agent's side
    struct Come {
        int client = 0;
        std::vector<std::byte> bytes;
        std::vector<Carrier::TakeLock> locks;
    };
    std::optional<Come> next();
    // Clients whose ranks have gone, and of whom everything has been read. Each comes once.
    std::vector<int> take_gone();
    LineSender::Send sender(int client);
    void drop(int client);
    // The agent dies, or ends.
    void end();
    // It is dead, and with it its locks, although its threads may not have ended.
    void let_go_of_locks();

  private:
    class LentLock;
    struct Line {
        std::deque<std::vector<std::byte>> to_rank;
        std::deque<Come> to_agent;
        bool rank_gone = false, agent_gone = false, wake = false;
        Condition come;  // to the rank
    };
    struct Hub {
        explicit Hub(std::function<void()> woken_in) : woken(std::move(woken_in)) {}
        const std::function<void()> woken;
        Mutex mutex;
        std::map<int, std::shared_ptr<Line>> lines GUARDED_BY(mutex);
        std::vector<std::weak_ptr<LentLock>> lent GUARDED_BY(mutex);
        int next_client GUARDED_BY(mutex) = 0;
        bool ended GUARDED_BY(mutex) = false;
    };
    class RankEnd;
    const std::shared_ptr<Hub> hub_;
};

}  // namespace tailrace::internal::testing_support
