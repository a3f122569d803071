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

// A fault that no history may overlook: storages lose the syncs of files. Child processes inherit it.
extern bool lost_syncs_planted;

class SimulatedStage final : public Stage {
  public:
    explicit SimulatedStage(VirtualExecutor& executor);
    std::shared_ptr<Storage> mount(std::shared_ptr<Storage> storage, const std::string& host,
                                   std::function<void()> named) override;
    std::vector<std::unique_ptr<Transport>> connect(const std::vector<std::string>& hosts,
                                                    bool concurrent) override;
    bool begin_job(bool faults, std::function<void()> kill) override;
    void end_job() override;

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
    std::unique_ptr<Network> network_;
    Mutex mutex_;
    Condition ended_;
    bool job_runs_ GUARDED_BY(mutex_) = false;
    Worker fate_;
};

}  // namespace tailrace::internal::testing_support
