#include "simulation/simulate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "simulation/simulated_stage.h"

namespace tailrace::internal::testing_support {

Simulated simulate(uint64_t seed, const HistoryLimits& limits, Tally& tally) {
    VirtualExecutor::Options options;
    options.pause = std::array{0.0, 0.05, 0.3}[seed % 3];
    options.story = "Replay it with " + replay_line(seed, limits);
    VirtualExecutor executor(seed, options);
    Simulated simulated;
    const auto begin = executor.now();
    executor.run([&] {
        SimulatedStage stage(executor);
        simulated.story = run_history(seed, limits, stage, tally);
    });
    simulated.trace = executor.trace();
    simulated.steps = executor.steps();
    simulated.seconds = std::chrono::duration<double>(executor.now() - begin).count();
    return simulated;
}

std::string replay_line(uint64_t seed, const HistoryLimits& limits) {
    return fmt::format("TAILRACE_SEED={} TAILRACE_LIMITS={},{},{},{}", seed, limits.most_nodes,
                       limits.most_jobs, limits.most_saves, limits.fewest_nodes);
}

HistoryLimits limits_from_environment() {
    HistoryLimits limits;
    if (const char* text = std::getenv("TAILRACE_LIMITS"))
        if (std::sscanf(text, "%d,%d,%d,%d", &limits.most_nodes, &limits.most_jobs, &limits.most_saves,
                        &limits.fewest_nodes) < 3) {
            ADD_FAILURE() << "TAILRACE_LIMITS is NODES,JOBS,SAVES[,FEWEST_NODES], not \"" << text << "\"";
        }
    return limits;
}

namespace {

// A history that has failed may go round in circles for long.
class EndsAtAFailure : public ::testing::EmptyTestEventListener {
    void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (result.failed()) _exit(1);
    }
};

[[noreturn]] void run_child(uint64_t first, uint64_t count, const HistoryLimits& limits, bool silent,
                            int report) {
    if (silent) {
        for (const int stream : {1, 2}) dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), stream);
        ::testing::UnitTest::GetInstance()->listeners().Append(new EndsAtAFailure);
    }
    Tally tally;
    Batch batch;
    for (uint64_t seed = first; seed < first + count && !batch.failed; ++seed) {
        batch.failed = seed;  // should it end here
        if (pwrite(report, &batch, sizeof batch, 0) != sizeof batch) _exit(2);
        const auto simulated = simulate(seed, limits, tally);
        if (::testing::Test::HasFailure()) {
            std::fprintf(stderr, "%s\n", simulated.story.c_str());
        } else {
            batch.failed.reset();
        }
        ++batch.histories;
        batch.steps += simulated.steps;
        batch.restored = tally.restored;
        batch.announced = tally.announced;
        batch.misfits = tally.misfits;
        batch.drained = tally.drained;
        batch.carried = tally.carried;
        batch.rebuilt = tally.rebuilt;
    }
    if (pwrite(report, &batch, sizeof batch, 0) != sizeof batch) _exit(2);
    std::fflush(nullptr);
    _exit(0);
}

}  // namespace

Batch simulate_in_child(uint64_t first, uint64_t count, const HistoryLimits& limits, bool silent) {
    std::FILE* report = std::tmpfile();
    Batch batch;
    batch.failed = first;
    if (report == nullptr) {
        ADD_FAILURE() << "no file for what a child process reports";
        return batch;
    }
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) run_child(first, count, limits, silent, fileno(report));
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child ||
        pread(fileno(report), &batch, sizeof batch, 0) != sizeof batch)
        ADD_FAILURE() << "no child process, or none that reports";
    std::fclose(report);
    return batch;
}

HistoryLimits shrink(uint64_t seed, const HistoryLimits& limits) {
    HistoryLimits smallest = limits;
    const auto fails = [&](const HistoryLimits& tried) {
        return simulate_in_child(seed, 1, tried, true).failed.has_value();
    };
    const auto reduce = [&](int HistoryLimits::*what, int least) {
        for (int value = least; value < smallest.*what; value = value < 4 ? value + 1 : value * 2) {
            HistoryLimits tried = smallest;
            tried.*what = value;
            if (!fails(tried)) continue;
            smallest = tried;
            return;
        }
    };
    reduce(&HistoryLimits::fewest_nodes, 1);
    reduce(&HistoryLimits::most_nodes, 1);
    reduce(&HistoryLimits::most_jobs, 0);
    reduce(&HistoryLimits::most_saves, 0);
    return smallest;
}

}  // namespace tailrace::internal::testing_support
