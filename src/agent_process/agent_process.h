// AgentProcess: the life of `tailrace agent`, one process per node-local directory. It finishes the
// epochs of programs that have died (drain/node_drain.h), while no session needs them.
//
//   - Its lease is the lock of the agent's directory, which the kernel frees when it dies. So there
//     is one agent per node-local directory, and a dead one is never taken for alive.
//   - Sessions connect, and ask it to let go of its locks before they open (agent/agent_link.h). It
//     goes on when they have opened. The directories of a session that lives are locked, so the
//     agent passes over them. When the session's connection ends, it looks at once.
//   - If it reaches the agents of other nodes, it also carries the epochs of sessions that live, and
//     goes on when their programs have died (carrier/carried_node.h).
//   - It ends when its directory is removed, because nobody finds its socket then.
//   - It never holds the only copy of anything. If it is killed, the next agent, or the next session,
//     finds the captured parts and plan records where they were.
//
// One thread waits for clients and decides (agent_book.h); another one makes the passes. Each node of a
// session that is carried has threads of its own.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent_process/agent_book.h"
#include "agent_process/agent_socket.h"
#include "carrier/carrier.h"
#include "config/config.h"
#include "drain/node_drain.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal {

class AgentProcess {
  public:
    struct Options {
        Config config;  // complete; see NodeDrain
        std::optional<std::chrono::milliseconds> idle_exit;
        // How long the agent goes on after stop(), to finish what it can.
        std::chrono::milliseconds grace{30000};
        // How it reaches the agents of other nodes. Null: it carries no epochs of sessions that live.
        std::shared_ptr<AgentWorld> world;
        // A node whose share of an epoch was missing that long is taken for lost, and this agent writes
        // its share if a copy of what it has captured lies here. Empty: never.
        std::optional<std::chrono::milliseconds> for_lost{60000};
    };
    // Takes the lease and listens. busy if another agent serves this directory; the sentence names
    // it.
    static Result<std::unique_ptr<AgentProcess>> create(Options options, std::shared_ptr<Storage> local,
                                                        std::shared_ptr<Storage> shared);
    ~AgentProcess();

    // Serves until it is told to stop or has been idle for long enough. Returns what is left.
    Result<AgentStatus> serve();

    // May be called by a signal handler: ends serve() after the grace time at most.
    void stop() noexcept;

  private:
    AgentProcess(Options options, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared)
        : options_(std::move(options)),
          local_(std::move(local)),
          shared_(std::move(shared)),
          lost_(options_.for_lost.value_or(std::chrono::milliseconds(0))),
          book_(SteadyClock::now(), options_.idle_exit) {}

    void make_carrier();
    void wake() noexcept;

    // ---- the serving thread
    Result<AgentStatus> serve_clients();
    Status step();
    void end_if_out_of_reach(SteadyClock::time_point now);
    // Whether nothing was thrown.
    bool attempt(const std::function<void()>& work);
    Status take_clients();
    void hear(int client);
    void hear_line(int client, const LineBytes& message);
    void step_carrier();
    void end_carrier();
    bool carried_end() const;  // sessions whose programs have ended are still being finished
    void drop(int client);
    void tell(int client, const AgentProcessMessage& message);
    void answer_those_who_wait();
    void take_pass_result();
    AgentStatus status() const;

    // ---- the passing thread
    void begin_pass();
    void pass(NodeDrain::Order order);
    void say_skipped(const std::vector<std::string>& sentences);

    const Options options_;
    const std::shared_ptr<Storage> local_, shared_;
    std::unique_ptr<DirectoryLock> lease_;
    Descriptor listening_;
    Descriptor wake_read_, wake_write_;  // a pipe: stop() and the passing thread write to it

    // The passing thread uses them, and the serving one before it begins a pass.
    LostNodes lost_;
    FailedShares failed_;
    // On what all passes write.
    const std::shared_ptr<BandwidthCap> cap_ = std::make_shared<BandwidthCap>(options_.config.bandwidth_cap);
    std::set<std::string> said_;  // of directories that are skipped

    // Only the serving thread uses these.
    AgentBook book_;
    std::map<int, std::shared_ptr<AgentConnection>> clients_;
    std::map<int, std::string> opening_;  // the shared directories of sessions that wait to be let in
    std::unique_ptr<Carrier> carrier_;    // null without a world
    // Clients that have asked for a pass: for the one under way, or for a later one, because it was
    // under way already, or because carried sessions were ending. And those that have told the agent to
    // end.
    std::vector<int> wait_for_pass_, wait_for_next_pass_, wait_for_end_;
    int next_client_ = 0;
    SteadyClock::time_point listen_again_;
    SteadyClock::time_point looked_for_directory_;
    Code thrown_ = Code::ok;  // what attempt() has said last
    AgentStatus last_;
    uint64_t started_unix_ms_ = 0;

    std::atomic<bool> stop_asked_ = false;
    std::atomic<bool> give_up_ = false;  // the pass under way, at once
    std::atomic<bool> yield_ = false;    // the same, after the epoch under way
    Mutex mutex_;
    std::optional<AgentStatus> passed_ GUARDED_BY(mutex_);  // what the pass has found
    Worker passing_;
};

}  // namespace tailrace::internal
