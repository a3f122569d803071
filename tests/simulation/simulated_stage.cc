#include "simulation/simulated_stage.h"

#include <gtest/gtest.h>

#include "memory/buffer_pool.h"

namespace tailrace::internal::testing_support {

using namespace std::chrono_literals;

PlantedFault planted_fault = PlantedFault::none;

SimulatedStage::SimulatedStage(VirtualExecutor& executor)
    : executor_(executor), dice_(executor.random_number()) {
    // In some histories nothing takes time, so that all happens at once.
    if (dice_.chance(0.7)) {
        network_costs_.latency = std::chrono::nanoseconds(dice_.below(100'000));
        network_costs_.jitter = std::chrono::nanoseconds(dice_.below(2'000'000));
    }
    if (dice_.chance(0.3)) network_costs_.bytes_per_second = 1e6 * static_cast<double>(1 + dice_.below(1000));
    if (dice_.chance(0.7)) {
        server_costs_.operation = std::chrono::nanoseconds(dice_.below(100'000));
        server_costs_.jitter = std::chrono::nanoseconds(dice_.below(5'000'000));
    }
}

std::shared_ptr<Storage> SimulatedStage::mount(std::shared_ptr<Storage> storage, const std::string& host,
                                               std::function<void()> named) {
    auto server = std::make_shared<Server>(executor_, host.empty() ? server_costs_ : ServerCosts{});
    if (planted_fault == PlantedFault::lost_syncs) server->lose_syncs();
    if (planted_fault == PlantedFault::lost_writes && !host.empty()) server->lose_writes();
    Renamed renamed;
    if (named) renamed = [named = std::move(named)](const std::string&) { named(); };
    return timed(std::move(storage), std::move(server), std::move(renamed));
}

std::vector<std::unique_ptr<Transport>> SimulatedStage::connect(const std::vector<std::string>& hosts,
                                                                bool concurrent, const Config& config) {
    hosts_ = hosts;
    const auto broken = [](const std::string& what) { ADD_FAILURE() << what; };
    credits_ =
        std::make_unique<CreditWatch>(CreditWatch::Bounds{config.buffers, config.buffer_bytes}, broken);
    network_ = std::make_unique<Network>(executor_, hosts, network_costs_, concurrent, credits_.get());
    network_->on_differing_calls(broken);
    if (planted_fault == PlantedFault::credits_twice) network_->double_credits();
    return network_->transports();
}

AgentNetwork SimulatedStage::connect_agents(const std::vector<std::string>& hosts) {
    const auto network = std::make_shared<Network>(executor_, hosts, network_costs_, true);
    network->on_differing_calls([](const std::string& what) { ADD_FAILURE() << what; });
    agents_.emplace_back(hosts, network);
    return {network->transports(), [network](int agent) { network->lose(agent); },
            [network] { network->end(); }};
}

SteadyClock::duration SimulatedStage::some_time() {
    const uint64_t most = uint64_t{1} << (10 + dice_.below(23));  // 1 us to 4 s
    return std::chrono::nanoseconds(dice_.below(most));
}

bool SimulatedStage::begin_job(bool faults, std::function<void()> kill) {
    {
        MutexLock lock(mutex_);
        job_runs_ = true;
    }
    answers_lost_ = false;
    auto fate = Fate::none;
    const uint64_t drawn = dice_.below(20);
    if (drawn < 3) fate = drawn == 0 ? Fate::clock_set : Fate::asleep;
    if (faults && drawn >= 3 && drawn < 12) fate = drawn < 9 ? Fate::killed : Fate::cut_off;
    if (fate == Fate::none) return false;
    fate_ = Worker("fate", {},
                   [this, fate, kill = std::move(kill)](const std::stop_token&) { meet(fate, kill); });
    return fate == Fate::cut_off;
}

bool SimulatedStage::pass(SteadyClock::duration time) {
    MutexLock lock(mutex_);
    const auto until = SteadyClock::now() + time;
    while (job_runs_ && SteadyClock::now() < until) ended_.wait_until(lock, until);
    return job_runs_;
}

void SimulatedStage::meet(Fate fate, const std::function<void()>& kill) {
    if (!pass(some_time()) || network_ == nullptr) return;
    switch (fate) {
        case Fate::none:
            return;
        case Fate::asleep:
            executor_.note("asleep");
            return executor_.jump(some_time() * 100);
        case Fate::clock_set:
            executor_.note("clock set");
            return executor_.set_clock(
                std::chrono::seconds(static_cast<int64_t>(dice_.below(20000)) - 10000));
        case Fate::cut_off: {
            const std::string& lost = hosts_[dice_.below(hosts_.size())];
            executor_.note("cut off " + lost);
            for (size_t rank = 0; rank < hosts_.size(); ++rank)
                if (hosts_[rank] == lost) network_->lose(static_cast<int>(rank));
            for (const auto& [hosts, weak] : agents_)
                for (size_t agent = 0; agent < hosts.size(); ++agent)
                    if (const auto network = weak.lock(); network && hosts[agent] == lost)
                        network->lose(static_cast<int>(agent));
            answers_lost_ = true;
            // The launcher finds out, and ends the job.
            (void)pass(some_time() * 10);
            break;
        }
        case Fate::killed:
            break;
    }
    executor_.note("killed");
    answers_lost_ = true;
    kill();
    network_->end();
}

void SimulatedStage::end_job() {
    {
        MutexLock lock(mutex_);
        job_runs_ = false;
        ended_.notify_all();
    }
    fate_ = Worker();
    network_.reset();
    if (planted_fault == PlantedFault::kept_pool) (void)BufferPool::create(1, 4096, 4096)->release();
    if (credits_ && !std::exchange(answers_lost_, false)) {
        EXPECT_EQ(credits_->open(), 0u) << "the job has ended in order";
    }
    credits_.reset();
}

}  // namespace tailrace::internal::testing_support
