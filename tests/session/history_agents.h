// HistoryAgents: the agent processes on the machines of a history (history.h), and what happens to them. They
// live beside the jobs: a job asks them to let go, and they go on with what it leaves behind.
//
// Some machines have an agent. Agents die at any moment, and new ones are started, also while a job opens.
// Their storages fail for a while.
//
// In some histories agents are started together and reach each other. Then they carry the epochs of jobs that
// live. If one of them dies, the others do so a while later, as MPI has it, and a new world of agents may
// come. Such agents meet no other faults than their death while a job runs that meets none.
//
// What must hold: an epoch of which every node has its captured parts and its plan record, and whose machines
// all have an agent that can work, is committed by the agents, or a newer one has made it pointless. There is
// never a minute without progress before that.
//
// The history's own thread calls; a door may be used by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "doubles/faulty_storage.h"
#include "session/drain_agent.h"
#include "session/history.h"
#include "session/history_checks.h"
#include "session/history_state.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal::testing_support {

class HistoryAgents {
  public:
    // All references outlive it. `config` is that of the next job. Some seeds have no agents.
    HistoryAgents(uint64_t seed, const Config& config, Machines& machines, Stage& stage,
                  HistoryChecks& checks, const Promises& promises, std::ostream& story);
    ~HistoryAgents();

    // A machine's door. Who knocks meets the agent of that moment. Null if the seed has none.
    AgentDoor* door(const std::string& host);

    // A job is about to begin there. Some machines get an agent; some agents die while the job runs.
    // `faults`: agents may meet some. If they carry its epochs, they are the job's.
    void start_some(const std::vector<std::string>& hosts, bool faults);
    // Whether the agents carry epochs of jobs that live, and what they ask of the settings.
    bool carry() const { return carry_; }
    void settle_config(Config& config) const;
    // The job that runs dies, and perhaps the agents with it. `cut_off`: they have lost a machine.
    void program_dies(bool cut_off);
    // The job has ended. Nothing happens to agents any more of what was to happen while it ran.
    void settle();
    // Some time passes, in which agents work and die.
    void work();

    void die(const std::string& host);
    void all_die();
    bool lives(const std::string& host);
    bool any_lives();

  private:
    // Agents that were started together and reach each other: an MPI job.
    struct World {
        std::function<void(int agent)> lose;
        std::function<void()> end;
    };
    struct Agent {
        std::shared_ptr<FaultyStorage> local, shared;
        std::shared_ptr<DrainAgent> agent;
        std::shared_ptr<World> world;  // null: it carries nothing
        int number = 0;                // in its world
        void die() const;
        bool storage_is_dead() const { return local->dead() || shared->dead(); }
    };
    // What an agent's storages do, drawn beforehand.
    struct Luck {
        uint64_t seed = 0;
        FaultPlan local, shared;
    };
    struct Death {
        std::string host;
        bool only_lines = false;  // the agent lives, and takes the program for dead
        std::shared_ptr<World> world;
        SteadyClock::duration others_after{};  // when its world ends
        std::vector<std::string> others;       // the machines of that
        SteadyClock::duration after{};
        std::optional<SteadyClock::duration> new_one_after;
        Luck luck;
    };
    // An epoch that nodes can finish.
    struct Planned {
        EpochKey key;
        uint32_t keep_shared = 0;
        bool local = false;  // kept in the node-local tier
    };
    class Door;

    Luck choose_luck();
    static Luck choose_luck(Random& random);
    SteadyClock::duration some_time();
    void start(const std::string& host, const Luck& luck);
    void start_together(const std::vector<std::string>& hosts, uint64_t seed, bool faults);
    Agent make_agent(const std::string& host, const Luck& luck, std::shared_ptr<Transport> transport);
    void start_carriers(const std::set<std::string>& hosts, bool faults);
    void take_away(const std::string& host) REQUIRES(mutex_);
    void end_world(const std::shared_ptr<World>& world);
    std::shared_ptr<DrainAgent> agent_of(const std::string& host);
    void let_some_die_later();
    void meet(const Death& death);
    bool pass(SteadyClock::duration time);
    void bury();
    std::vector<std::string> hosts();  // where one lives

    void work_until_done();
    void heal();
    std::vector<Planned> find_planned();
    bool is_sound(Storage& storage, const std::string& directory, const PlanRecord& record);
    bool is_finished(const Planned& planned);
    uint64_t progress();
    std::string last_passes();
    void heard(const DrainedEpoch& epoch);

    Random random_;
    const bool any_, carry_;
    const Config& config_;
    Machines& machines_;
    Stage& stage_;
    HistoryChecks& checks_;
    const Promises& promises_;
    std::ostream& story_;

    Mutex mutex_;
    std::map<std::string, Agent> agents_ GUARDED_BY(mutex_);  // by machine
    std::vector<Agent> dead_ GUARDED_BY(mutex_);              // whose threads may not have ended
    size_t count_ GUARDED_BY(mutex_) = 0;                     // with all those
    std::map<std::string, std::unique_ptr<AgentDoor>> doors_ GUARDED_BY(mutex_);
    Condition settled_;
    bool settling_ GUARDED_BY(mutex_) = false;
    bool program_is_dead_ GUARDED_BY(mutex_) = false;
    bool faults_ = false;  // of the job under way
    bool all_die_with_program_ = false;
    std::vector<Worker> fates_;
};

}  // namespace tailrace::internal::testing_support
