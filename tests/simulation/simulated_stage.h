// SimulatedStage: where the histories of session/history.h run in virtual time. Besides the faults of
// storages that a history chooses itself, messages take their time, hosts are cut off from each other, jobs
// are killed at any moment, machines sleep, and clocks are set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/history.h"
#include "simulation/network.h"
#include "simulation/timed_storage.h"
#include "simulation/virtual_executor.h"
#include "threads/mutex.h"
#include "threads/worker.h"

namespace tailrace::internal::testing_support {

// A fault that histories must not overlook. Child processes inherit it.
enum class PlantedFault {
    none,
    lost_syncs,     // files are said to be synced, and are not
    lost_writes,    // now and then something is said to be written to a file of a node, and is not
    credits_twice,  // every message that gives a credit comes twice
    kept_pool,      // buffers stay when a job ends
};
extern PlantedFault planted_fault;

class SimulatedStage final : public Stage {
  public:
    explicit SimulatedStage(VirtualExecutor& executor);
    std::shared_ptr<Storage> mount(std::shared_ptr<Storage> storage, const std::string& host,
                                   std::function<void()> named) override;
    std::vector<std::unique_ptr<Transport>> connect(const std::vector<std::string>& hosts, bool concurrent,
                                                    const Config& config) override;
    bool begin_job(bool faults, std::function<void()> kill) override;
    void end_job() override;
    bool has_agents() const override { return true; }
    AgentNetwork connect_agents(const std::vector<std::string>& hosts) override;
    void after_step(std::function<void()> check) override { executor_.after_step(std::move(check)); }

  private:
    enum class Fate { none, killed, cut_off, asleep, clock_set };
    // Of any length from some microseconds to some seconds.
    SteadyClock::duration some_time();
    // Says whether the job still runs after that time.
    bool pass(SteadyClock::duration time);
    void meet(Fate fate, const std::function<void()>& kill);

    VirtualExecutor& executor_;
    Dice dice_;
    NetworkCosts network_costs_;
    ServerCosts server_costs_;
    std::vector<std::string> hosts_;
    std::unique_ptr<CreditWatch> credits_;
    std::unique_ptr<Network> network_;
    std::vector<std::pair<std::vector<std::string>, std::weak_ptr<Network>>> agents_;  // by their hosts
    bool answers_lost_ = false;  // ranks cannot answer any more
    Mutex mutex_;
    Condition ended_;
    bool job_runs_ GUARDED_BY(mutex_) = false;
    Worker fate_;
};

}  // namespace tailrace::internal::testing_support
