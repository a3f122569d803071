// The whole of capture, flush, recovery and restore in one process, under faults: each seed is a history
// (session/history.h). Ranks are threads of the system here, so a seed fixes the faults but not the order in
// which threads run, and sanitizers see what threads do to each other. tests/simulation runs the same
// histories in virtual time, where a seed fixes everything.
//
// TAILRACE_SEED=n replays one seed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <vector>

#include "base/log.h"
#include "session/history.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

// What all processes of a case have done.
struct Done {
    Tally tally;
    std::atomic<uint64_t> histories{0};
};

void simulate(uint64_t seed, Done& done) {
    Stage threads;
    const auto story = run_history(seed, {}, threads, done.tally);
    ++done.histories;
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "replay with TAILRACE_SEED=" << seed << "\n" << story;
}

// Cases, so that ctest can run them side by side: each has its own range of seeds.
class SimulationTest : public ::testing::TestWithParam<uint64_t> {
  protected:
    void SetUp() override {
        if (std::getenv("TAILRACE_LOG") == nullptr) set_log_level(LogLevel::off);
    }
};

// Sanitizers make a history ten to thirty times as long. Without them it waits most of its time, for its own
// threads, so a case runs several histories at once. Each is in a process of its own, where gtest tells which
// one has failed.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t seeds_per_case = 20, processes = 1;
#elif defined(__SANITIZE_ADDRESS__)
constexpr uint64_t seeds_per_case = 100, processes = 1;
#else
constexpr uint64_t seeds_per_case = 300, processes = 4;
#endif
constexpr uint64_t cases = 8;
constexpr std::chrono::seconds enough_time{60};  // for a case

void simulate_every(uint64_t step, uint64_t first, uint64_t end, Done& done) {
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t seed = first; seed < end && !::testing::Test::HasFailure(); seed += step) {
        if (std::chrono::steady_clock::now() - begin > enough_time) {
            std::cout << "this machine is slow: of seeds " << first << " to " << end - 1 << ", each " << step
                      << ", those from " << seed << " on are left out" << std::endl;
            break;
        }
        simulate(seed, done);
    }
}

// In `processes` children, which share `done`.
void simulate_side_by_side(uint64_t first, uint64_t end, Done& done) {
    std::fflush(nullptr);
    std::vector<pid_t> children;
    for (uint64_t i = 0; i < processes; ++i) {
        children.push_back(fork());
        if (children.back() != 0) continue;
        simulate_every(processes, first + i, end, done);
        std::fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_GT(child, 0);
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << "see above; the process's status is " << status;
    }
}

TEST_P(SimulationTest, EveryHistoryRestoresACommittedEpochBitForBitOrTellsTheTruth) {
    void* const shared =
        mmap(nullptr, sizeof(Done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    Done& done = *new (shared) Done;
    if (const char* replay = std::getenv("TAILRACE_SEED")) {
        if (GetParam() == 0) simulate(std::strtoull(replay, nullptr, 10), done);
        return;
    }
    const uint64_t first = 1 + GetParam() * seeds_per_case, end = first + seeds_per_case;
    std::cout << "seeds " << first << " to " << end - 1 << std::endl;
    if (processes == 1) {
        simulate_every(1, first, end, done);
    } else {
        simulate_side_by_side(first, end, done);
    }
    std::cout << "ranks that restored an epoch: " << done.tally.restored
              << ", found none: " << done.tally.nothing << ", met an error: " << done.tally.refused << "\n";
    EXPECT_GT(done.tally.restored, done.histories);
    munmap(shared, sizeof(Done));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimulationTest, ::testing::Range<uint64_t>(0, cases));

}  // namespace
}  // namespace tailrace::internal
