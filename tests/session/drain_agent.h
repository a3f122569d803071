// DrainAgent: an agent process (agent_process/agent_process.h) without its socket and its lease, as two
// threads of this process. The same book decides what it does next, and the same NodeDrain does it.
//
// Sessions ask it to let go as they ask the process, by ask(). Their messages take a moment. If it reaches
// the agents of other machines, it also carries epochs of sessions that live: ranks have lines to it
// (agent_lines.h), and a Carrier does the work.
//
// Thread-safe. It dies with its storages: call die() when they fail for ever.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/agent_link.h"
#include "agent_process/agent_book.h"
#include "carrier/carrier.h"
#include "config/config.h"
#include "drain/node_drain.h"
#include "session/agent_lines.h"
#include "storage/storage.h"
#include "threads/mutex.h"
#include "threads/worker.h"
#include "transport/transport.h"

namespace tailrace::internal::testing_support {

class DrainAgent {
  public:
    // `heard` is called for each epoch that a pass has looked at, by the thread that made the pass.
    using Heard = std::function<void(const DrainedEpoch&)>;
    // How it carries epochs, and what it sees of the storages meanwhile.
    struct Carrying {
        std::shared_ptr<Transport> transport;  // to the other agents; none: it carries nothing
        std::shared_ptr<Storage> local, shared;
    };
    DrainAgent(Config config, std::shared_ptr<Storage> local, std::shared_ptr<Storage> shared, Heard heard,
               Carrying carrying);
    ~DrainAgent();

    // It does and answers nothing more. Its threads end soon.
    void die();
    // As AgentDoor::ask().
    Result<std::unique_ptr<AgentLink>> ask();
    // As AgentDoor::line().
    Result<std::unique_ptr<AgentLine>> line(AgentLines::DuplicateLock duplicate);
    // The program on its machine dies.
    void cut_lines() { lines_.cut(); }
    void let_go_of_locks() { lines_.let_go_of_locks(); }
    // Agents that carry can be asked when all of them are there. False: it has died before.
    bool wait_until_it_listens();

    // What the last pass has come to, in words.
    std::string last_pass() const;
    // Grows when a share has been written on, and when the state of an epoch has changed.
    uint64_t progress() const { return progress_; }

  private:
    // What links share with the agent; they may live longer.
    struct Desk {
        Desk(SteadyClock::time_point now, bool listens_at_once)
            : book(now, std::nullopt), listens(listens_at_once) {}
        mutable Mutex mutex;
        Condition changed;
        AgentBook book GUARDED_BY(mutex);
        std::map<int, bool> let_in GUARDED_BY(mutex);  // sessions that have asked: whether they were told
        int next_client GUARDED_BY(mutex) = 0;
        bool dead GUARDED_BY(mutex) = false;
        PassSummary last GUARDED_BY(mutex);
        std::string last_in_words GUARDED_BY(mutex);
        bool listens GUARDED_BY(mutex);
        bool work GUARDED_BY(mutex) = false;  // for its carrier
        std::optional<CarrierPlace> place GUARDED_BY(mutex);
        bool pass_has_ended GUARDED_BY(mutex) = false;
        std::atomic<bool> give_up{false};  // the pass under way
    };
    class Link;

    void serve();
    std::unique_ptr<Carrier> make_carrier();
    bool serve_lines(Carrier& carrier);
    void make_pass();

    const Config config_;
    const std::shared_ptr<Storage> local_, shared_;
    const Heard heard_;
    Carrying carrying_;
    const std::shared_ptr<Desk> desk_;
    AgentLines lines_;
    std::atomic<uint64_t> progress_{0};
    // What passes have found, by directory. Only the thread of the pass uses it.
    struct Known {
        DrainedEpoch::State state = DrainedEpoch::State::stopped;
        uint64_t most_bytes = 0;
    };
    std::map<std::pair<std::string, EpochKey>, Known> known_;
    Worker serving_;
};

}  // namespace tailrace::internal::testing_support
