// The whole of capture, flush, recovery and restore in one process, under faults: each seed is a history
// (session/history.h). Ranks are threads of the system here, so a seed fixes the faults but not the order in
// which threads run, and sanitizers see what threads do to each other. tests/simulation runs the same
// histories in virtual time, where a seed fixes everything.
//
// TAILRACE_SEED=n replays one seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "base/log.h"
#include "session/history.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

void simulate(uint64_t seed, Tally& tally) {
    Stage threads;
    const auto story = run_history(seed, {}, threads, tally);
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "replay with TAILRACE_SEED=" << seed << "\n" << story;
}

// Cases, so that ctest can run them side by side: each has its own range of seeds.
class SimulationTest : public ::testing::TestWithParam<uint64_t> {
  protected:
    void SetUp() override {
        if (std::getenv("TAILRACE_LOG") == nullptr) set_log_level(LogLevel::off);
    }
};

// Sanitizers make a history ten to thirty times as long.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t seeds_per_case = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr uint64_t seeds_per_case = 100;
#else
constexpr uint64_t seeds_per_case = 300;
#endif
constexpr uint64_t cases = 8;

TEST_P(SimulationTest, EveryHistoryRestoresACommittedEpochBitForBitOrTellsTheTruth) {
    Tally tally;
    if (const char* replay = std::getenv("TAILRACE_SEED")) {
        if (GetParam() == 0) simulate(std::strtoull(replay, nullptr, 10), tally);
        return;
    }
    const uint64_t first = 1 + GetParam() * seeds_per_case;
    std::cout << "seeds " << first << " to " << first + seeds_per_case - 1 << "\n";
    for (uint64_t seed = first; seed < first + seeds_per_case && !HasFailure(); ++seed) simulate(seed, tally);
    std::cout << "ranks that restored an epoch: " << tally.restored << ", found none: " << tally.nothing
              << ", met an error: " << tally.refused << "\n";
    EXPECT_GT(tally.restored, seeds_per_case);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, ::testing::Range<uint64_t>(0, cases));

}  // namespace
}  // namespace tailrace::internal
