// Histories of whole jobs in virtual time (session/history.h on a SimulatedStage): capture, flush, recovery
// and restore under faults of storages, messages, hosts and clocks. A seed decides everything, also the order
// in which tasks run.
//
// TAILRACE_SEED=n replays one, in this process, so that a debugger can follow.
// TAILRACE_LIMITS=NODES,JOBS,SAVES keeps it small; a fourth number, FEWEST_NODES, keeps it large.
// TAILRACE_SEEDS=n runs that many in place of 10,000 (`make simulate SEEDS=n`), and with TAILRACE_PROGRESS
// says after some how many they were. Without it a slow machine runs fewer: as many as fit in enough_time.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <set>

#include "base/log.h"
#include "simulation/simulate.h"
#include "simulation/simulated_stage.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t usual_histories = 800;  // each takes ten times as long
#else
constexpr uint64_t usual_histories = 10'000;
#endif
constexpr uint64_t cases = 8, of_a_child = 125;
constexpr std::chrono::seconds enough_time{75};  // for a case

bool is_usual_number() {
    return std::getenv("TAILRACE_SEEDS") == nullptr;
}

uint64_t histories() {
    return is_usual_number() ? usual_histories : std::strtoull(std::getenv("TAILRACE_SEEDS"), nullptr, 10);
}

void keep_quiet() {
    if (std::getenv("TAILRACE_LOG") == nullptr) set_log_level(LogLevel::off);
}

class HistoriesTest : public ::testing::TestWithParam<uint64_t> {
  protected:
    void SetUp() override { keep_quiet(); }
};

TEST_P(HistoriesTest, EveryOneRestoresACommittedEpochBitForBitOrTellsTheTruth) {
    const auto limits = limits_from_environment();
    if (const char* seed = std::getenv("TAILRACE_SEED")) {
        if (GetParam() != 0) return;
        Tally tally;
        const auto simulated = simulate(std::strtoull(seed, nullptr, 10), limits, tally);
        std::cout << simulated.story << simulated.steps << " steps, " << simulated.seconds
                  << " s of virtual time, trace " << std::hex << simulated.trace << std::dec << "\n";
        return;
    }
    const uint64_t here = histories() / cases, first = 1 + GetParam() * here;
    std::cout << "seeds " << first << " to " << first + here - 1 << "\n";
    Batch all;
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t done = 0; done < here; done += of_a_child) {
        if (done > 0 && is_usual_number() && std::chrono::steady_clock::now() - begin > enough_time) {
            std::cout << "this machine is slow: seeds from " << first + done << " on are left out\n";
            break;
        }
        const auto batch = simulate_in_child(first + done, std::min(of_a_child, here - done), limits, false);
        if (batch.failed) {
            FAIL() << "replay with " << replay_line(*batch.failed, limits) << "\nor, smaller, with "
                   << replay_line(*batch.failed, shrink(*batch.failed, limits));
        }
        if (std::getenv("TAILRACE_PROGRESS") != nullptr)
            std::cout << "progress " << batch.histories << std::endl;
        all.histories += batch.histories;
        all.steps += batch.steps;
        all.restored += batch.restored;
        all.announced += batch.announced;
        all.misfits += batch.misfits;
        all.drained += batch.drained;
        all.carried += batch.carried;
        all.rebuilt += batch.rebuilt;
    }
    std::cout << all.histories << " histories, " << all.steps
              << " steps; ranks that restored an epoch: " << all.restored
              << ", epochs read as they got their names: " << all.announced << ", by agents: " << all.drained
              << ", of them by agents that carried the job: " << all.carried
              << ", refused for their arrays: " << all.misfits
              << ", protected and kept although machines were lost: " << all.rebuilt << "\n";
    EXPECT_GT(all.restored, all.histories);
    EXPECT_GT(all.announced, all.histories);
    // These are rarer, and a few histories say nothing about how rare they are.
    const uint64_t many = all.histories < 1000 ? 0 : all.histories;
    EXPECT_GT(all.misfits, many / 20);
    EXPECT_GT(all.drained, many / 50);
    EXPECT_GT(all.carried, many / 20);
    EXPECT_GT(all.rebuilt, many / 100);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HistoriesTest, ::testing::Range<uint64_t>(0, cases));

// The checks of a history can fail, and a failure is cut down to a history that fails again.
class PlantedFaultTest : public ::testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaultTest, IsFoundAndCutDownAndReplayed) {
    keep_quiet();
    const HistoryLimits any;
    planted_fault = GetParam();
    const auto found = simulate_in_child(1, 125, any, true).failed;
    ASSERT_TRUE(found.has_value());
    const HistoryLimits small = shrink(*found, any);
    std::cout << "found by " << replay_line(*found, any) << ", cut down to " << replay_line(*found, small)
              << "\n";
    EXPECT_LT(small.most_nodes + small.most_jobs + small.most_saves,
              any.most_nodes + any.most_jobs + any.most_saves);
    EXPECT_TRUE(simulate_in_child(*found, 1, small, true).failed.has_value());
    planted_fault = PlantedFault::none;
    EXPECT_FALSE(simulate_in_child(*found, 1, small, true).failed.has_value());
}

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFaultTest,
                         ::testing::Values(PlantedFault::lost_syncs, PlantedFault::lost_writes,
                                           PlantedFault::credits_twice, PlantedFault::kept_pool),
                         [](const ::testing::TestParamInfo<PlantedFault>& fault) -> std::string {
                             switch (fault.param) {
                                 case PlantedFault::lost_syncs:
                                     return "LostSyncs";
                                 case PlantedFault::lost_writes:
                                     return "LostWrites";
                                 case PlantedFault::credits_twice:
                                     return "CreditsTwice";
                                 case PlantedFault::kept_pool:
                                     return "KeptPool";
                                 case PlantedFault::none:
                                     break;
                             }
                             return "None";
                         });

TEST(ReplayTest, ASeedGivesTheSameHistoryBitForBit) {
    keep_quiet();
    Tally tally;
    std::set<uint64_t> traces;
    const uint64_t first = 1'000'000;
    for (uint64_t seed = first; seed < first + 60; ++seed) {
        const auto once = simulate(seed, {}, tally), again = simulate(seed, {}, tally);
        ASSERT_EQ(once.trace, again.trace) << "seed " << seed;
        ASSERT_EQ(once.steps, again.steps) << "seed " << seed;
        ASSERT_EQ(once.story, again.story) << "seed " << seed;
        traces.insert(once.trace);
    }
    EXPECT_EQ(traces.size(), 60u);
}

}  // namespace
}  // namespace tailrace::internal
