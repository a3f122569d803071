// What goes wrong, and what must hold all the same: every node hears the group's fate, nothing hangs, no
// buffer is lost, and an epoch is there with the right bytes or not at all. A node that says what it should
// not is in played_node_test, aggregators that end in the middle in endings_test.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>

#include "aggregate/aggregator.h"
#include "aggregate/faults_fixture.h"
#include "aggregate/seeds.h"
#include "doubles/faulty_storage.h"
#include "doubles/watched_storage.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;

void expect_all_failed(const std::vector<FlushResult>& results, Code code, const std::string& part) {
    ASSERT_FALSE(results.empty());
    for (const FlushResult& result : results) {
        EXPECT_EQ(result.status.code(), code) << result.status.message();
        EXPECT_THAT(result.status.message(), HasSubstr(part));
        EXPECT_EQ(result.status.message(), results.front().status.message());
    }
}

TEST_F(AggregatorFaultsTest, RefusedNodeFailsTheGroupWithItsReasonAndLeavesNoFiles) {
    Cluster cluster(small(3, 1), local, memory);
    auto jobs = cluster.capture({1, 1}, {10'000, 10'000, 10'000});
    jobs[2].refused = Status(Code::no_space, "the capture found no room");
    expect_all_failed(cluster.run_one(jobs), Code::no_space, "node 2: the capture found no room");
    EXPECT_TRUE(directory_is_empty(*memory));
}

TEST_F(AggregatorFaultsTest, GroupsAreAutonomous) {
    Cluster cluster(small(4, 2), local, memory);
    auto jobs = cluster.capture({1, 1}, {10'000, 10'000, 10'000, 10'000});
    jobs[3].refused = Status(Code::no_space, "the capture found no room");
    const auto results = cluster.run_one(jobs);
    ASSERT_EQ(results.size(), 4u);
    EXPECT_TRUE(results[0].status.ok() && results[1].status.ok());
    EXPECT_FALSE(results[2].status.ok() || results[3].status.ok());
}

TEST_F(AggregatorFaultsTest, CapturedPartThatIsTooShortFailsTheGroupAndNamesPathAndOffset) {
    for (uint32_t rank : {0u, 1u}) {  // of the follower, of the leader
        Cluster cluster(small(2, 1), local, memory);
        auto jobs = cluster.capture({1 + rank, 1}, {40'000, 60'000});
        auto file = local->open(jobs[rank].streams[0].path, {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok() && (*file)->truncate(4096 + 30'000).ok());
        expect_all_failed(cluster.run_one(jobs), Code::corrupt,
                          fmt::format("node {}: reading 4096 bytes at offset", rank));
        EXPECT_TRUE(directory_is_empty(*memory));
    }
}

TEST_F(AggregatorFaultsTest, MissingCapturedPartFailsTheGroup) {
    Cluster cluster(small(2, 1), local, memory);
    auto jobs = cluster.capture({1, 1}, {40'000, 60'000});
    ASSERT_TRUE(local->remove(jobs[0].streams[0].path).ok());
    expect_all_failed(cluster.run_one(jobs), Code::corrupt, jobs[0].streams[0].path);
    EXPECT_TRUE(directory_is_empty(*memory));
}

TEST_F(AggregatorFaultsTest, FullSharedTierFailsTheEpochAndTheNextOneSucceedsWhenThereIsRoomAgain) {
    Cluster cluster(small(3, 1), local, memory);
    memory->set_capacity(64'000);
    const std::vector<uint64_t> sizes = {100'000, 100'000, 90'000};
    auto results = cluster.run_one(cluster.capture({1, 1}, sizes));
    ASSERT_EQ(results.size(), 3u);
    for (const auto& result : results) EXPECT_EQ(result.status.code(), Code::no_space);
    EXPECT_TRUE(directory_is_empty(*memory));
    memory->set_capacity(10'000'000);
    for (const auto& result : cluster.run_one(cluster.capture({2, 1}, sizes)))
        EXPECT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_TRUE(check_epoch(*memory, {2, 1}, sizes, 1).ok());
}

TEST_F(AggregatorFaultsTest, FailedEpochDoesNotDisturbTheOnesAroundIt) {
    Cluster cluster(small(3, 1), local, memory);
    const std::vector<uint64_t> sizes = {50'000, 60'000, 70'000};
    std::vector<std::vector<FlushJob>> jobs(3);
    for (uint64_t epoch : {1u, 2u, 3u}) {
        auto of_epoch = cluster.capture({epoch, 1}, sizes);
        if (epoch == 2) of_epoch[1].streams[0].path += ".gone";
        for (size_t node = 0; node < 3; ++node) jobs[node].push_back(of_epoch[node]);
    }
    for (const auto& of_node : cluster.run(jobs)) {
        ASSERT_EQ(of_node.size(), 3u);
        for (const FlushResult& result : of_node)
            EXPECT_EQ(result.status.ok(), result.key.epoch != 2) << result.status.message();
    }
    EXPECT_TRUE(check_epoch(*memory, {1, 1}, sizes, 1).ok());
    EXPECT_EQ(check_epoch(*memory, {2, 1}, sizes, 1).code(), Code::not_found);
    EXPECT_TRUE(check_epoch(*memory, {3, 1}, sizes, 1).ok());
}

// ---- giving up ---------------------------------------------------------------------------------------

TEST_F(AggregatorFaultsTest, GivingUpAnEpochThatOthersWaitForFailsItEverywhere) {
    // Node `stranger` (once the coordinator, once not) saved another epoch than the rest of its group.
    for (int stranger : {0, 2}) {
        Cluster cluster(small(3, 1), local, memory);
        auto common = cluster.capture({1, 1}, {10'000, 10'000, 10'000});
        auto other = cluster.capture({2, 1}, {10'000, 10'000, 10'000});
        std::vector<std::vector<FlushJob>> jobs;
        for (int node = 0; node < 3; ++node)
            jobs.push_back({(node == stranger ? other : common)[static_cast<size_t>(node)]});
        const auto results = cluster.run(
            jobs, [&, said = std::make_shared<std::array<bool, 3>>()](int node, Aggregator& aggregator) {
                auto& done = (*said)[static_cast<size_t>(node)];
                if (!done) {
                    const Status reason(Code::failed_state, "ranks have saved different epochs");
                    aggregator.give_up({1, 1}, reason);
                    aggregator.give_up({2, 1}, reason);
                    done = true;
                }
                return true;
            });
        for (const auto& of_node : results) {
            ASSERT_EQ(of_node.size(), 1u);
            EXPECT_EQ(of_node[0].status.code(), Code::failed_state);
            EXPECT_THAT(of_node[0].status.message(), HasSubstr("different epochs"));
        }
    }
}

TEST_F(AggregatorFaultsTest, OneNodesWordIsEnoughToEndAnEpochThatAnotherNeverStarts) {
    Cluster cluster(small(3, 1), local, memory);
    auto jobs = cluster.capture({1, 1}, {10'000, 10'000, 10'000});
    std::atomic<bool> said = false;
    const auto results = cluster.run({{jobs[0]}, {jobs[1]}, {}}, [&](int node, Aggregator& aggregator) {
        if (node == 1 && !said.exchange(true)) aggregator.give_up({1, 1}, Status(Code::aborted, "no hope"));
        return true;
    });
    for (size_t node : {0u, 1u}) {
        ASSERT_EQ(results[node].size(), 1u);
        EXPECT_EQ(results[node][0].status.message(), "node 1: no hope");
    }
}

TEST_F(AggregatorFaultsTest, JobStartedAfterItsEpochWasGivenUpFailsAtOnce) {
    auto transports = make_in_process_transports({"a", "b"});
    const Topology topology = make_topology({"a", "b"}, 0);
    auto options = small(2, 1).options;
    options.shared_dir = Cluster::shared_dir;
    auto made = Aggregator::create(options, topology, 1, *transports[1], *local, *memory, [] {});
    ASSERT_TRUE(made.ok());
    (*made)->give_up({1, 1}, Status(Code::aborted, "no hope"));
    FlushJob job;
    job.job = "test";
    job.key = {1, 1};
    job.rank_count = 2;
    (*made)->start(job);
    const auto results = (*made)->take_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].status.message(), "node 1: no hope");
    EXPECT_TRUE((*made)->idle());
    (*made)->start(job);  // and a second time is refused
    EXPECT_EQ((*made)->take_results().at(0).status.code(), Code::failed_state);
}

// ---- slow nodes --------------------------------------------------------------------------------------

TEST_F(AggregatorFaultsTest, StragglingFollowerHoldsUpNobodyElse) {
    auto watched = std::make_shared<WatchedStorage>(local);
    Cluster cluster(small(3, 1), watched, memory);
    const std::vector<uint64_t> sizes = {400'000, 300'000, 200'000};
    // Node 2 does not move before the other two have got rid of all they have.
    const auto results = cluster.run_one(cluster.capture({1, 1}, sizes), [&](int node, Aggregator&) {
        return node != 2 || (watched->bytes_read("p0") == sizes[0] && watched->bytes_read("p1") == sizes[1]);
    });
    for (const FlushResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_TRUE(check_epoch(*memory, {1, 1}, sizes, 1).ok());
}

TEST_F(AggregatorFaultsTest, FollowersSpendTheCreditsOfTheLeaderThatIsNotSlow) {
    auto watched = std::make_shared<WatchedStorage>(local);
    ClusterSettings settings = small(4, 1);
    settings.options.plan.leaders_per_file = 2;
    Cluster cluster(settings, watched, memory);
    const std::vector<uint64_t> sizes = {500'000, 490'000, 300'000, 200'000};
    // Leader 1 does not move before the followers have nothing left.
    const auto results = cluster.run_one(cluster.capture({1, 1}, sizes), [&](int node, Aggregator&) {
        return node != 1 || (watched->bytes_read("p2") == sizes[2] && watched->bytes_read("p3") == sizes[3]);
    });
    ASSERT_EQ(results.size(), 4u);
    for (const FlushResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.message();
    EXPECT_EQ(results[0].statistics.received_bytes, 500'000u);
    EXPECT_EQ(results[1].statistics.received_bytes, 0u);
    EXPECT_EQ(results[1].statistics.local_bytes, 490'000u);
    EXPECT_TRUE(check_epoch(*memory, {1, 1}, sizes, 1).ok());
}

// ---- injected faults ---------------------------------------------------------------------------------

struct Trial {
    ClusterSettings settings;
    std::vector<uint64_t> sizes;
};
Trial random_trial(Random& random) {
    Trial trial;
    trial.settings.nodes = static_cast<int>(1 + below(random, 5));
    auto& options = trial.settings.options;
    options.plan.file_count = static_cast<uint32_t>(1 + below(random, 3));
    options.plan.leaders_per_file = static_cast<uint32_t>(1 + below(random, 3));
    options.plan.chunk_bytes = 4096;
    options.plan.block_bytes = 512;
    options.plan.placement = below(random, 2) == 0 ? Placement::append : Placement::contiguous;
    options.writers = static_cast<uint32_t>(1 + below(random, 2));
    options.buffers = static_cast<uint32_t>(1 + below(random, 5));
    trial.settings.concurrent = below(random, 5) != 0;
    for (int node = 0; node < trial.settings.nodes; ++node)
        trial.sizes.push_back(below(random, 6) == 0 ? 0 : below(random, 60'000));
    return trial;
}

TEST_F(AggregatorFaultsTest, AnyFaultFailsWithASentenceOrTheEpochIsThereAndRight) {
    uint64_t failed = 0, complete = 0;
    for (uint64_t seed : seeds(1, 400)) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        Random random(seed);
        Trial trial = random_trial(random);
        auto parts = std::make_shared<MemoryStorage>();
        auto files = std::make_shared<MemoryStorage>();
        auto faulty_parts = std::make_shared<FaultyStorage>(parts, seed);
        auto faulty_files = std::make_shared<FaultyStorage>(files, seed + 1);
        Cluster cluster(trial.settings, faulty_parts, faulty_files);
        std::vector<std::vector<FlushJob>> jobs(static_cast<size_t>(trial.settings.nodes));
        for (uint64_t epoch : {1u, 2u}) {
            const auto of_epoch = cluster.capture({epoch, 1}, trial.sizes);
            for (size_t node = 0; node < jobs.size(); ++node) jobs[node].push_back(of_epoch[node]);
        }
        FaultPlan plan;
        const double rate = 0.05 * static_cast<double>(below(random, 100)) / 100;
        for (double* kind : {&plan.open_error, &plan.read_error, &plan.write_error, &plan.write_no_space,
                             &plan.sync_error, &plan.rename_error, &plan.short_read})
            if (below(random, 2) == 0) *kind = rate;
        if (below(random, 3) == 0) faulty_parts->set_plan(plan);
        if (below(random, 4) == 0) plan.die_at_operation = 1 + below(random, 60);
        faulty_files->set_plan(plan);

        const auto results = cluster.run(jobs);
        ASSERT_EQ(results.size(), jobs.size());
        for (uint64_t epoch : {1u, 2u}) {
            bool all_ok = true;
            std::map<int, Status> of_group;
            for (const auto& of_node : results) {
                ASSERT_EQ(of_node.size(), 2u);
                const FlushResult& result =
                    of_node[0].key.epoch == epoch ? of_node[0] : of_node[1];  // failures may overtake
                all_ok = all_ok && result.status.ok();
                if (!result.status.ok()) {
                    ASSERT_FALSE(result.status.message().empty());
                }
                if (trial.settings.concurrent) {
                    auto [group, is_new] = of_group.emplace(result.group, result.status);
                    ASSERT_EQ(group->second.message(), result.status.message());
                }
            }
            const Status found =
                check_epoch(*files, {epoch, 1}, trial.sizes, trial.settings.options.plan.file_count);
            ASSERT_NE(found.code(), Code::failed_state) << found.message();
            if (all_ok) {
                ASSERT_TRUE(found.ok()) << found.message();
            }
            ++(all_ok ? complete : failed);
        }
        ASSERT_LE(cluster.most_buffers_used(), trial.settings.options.buffers);
    }
    if (std::getenv("TAILRACE_SEED") == nullptr) {
        EXPECT_GT(failed, 100u);
        EXPECT_GT(complete, 100u);
    }
}

TEST_F(AggregatorFaultsTest, PowerCutAtAnyInstantLeavesEveryReportedEpochWholeAndNoWrongBytes) {
    uint64_t reported = 0, lost = 0;
    for (uint64_t seed : seeds(5000, 300)) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        Random random(seed);
        Trial trial = random_trial(random);
        auto parts = std::make_shared<MemoryStorage>();
        auto files = std::make_shared<MemoryStorage>();
        auto faulty = std::make_shared<FaultyStorage>(files, seed);
        Cluster cluster(trial.settings, parts, faulty);
        FaultPlan plan;
        plan.die_at_operation = faulty->operations() + 1 + below(random, 80);
        faulty->set_plan(plan);
        const auto results = cluster.run_one(cluster.capture({1, 1}, trial.sizes));
        ASSERT_EQ(results.size(), static_cast<size_t>(trial.settings.nodes));
        const bool all_ok = std::all_of(results.begin(), results.end(),
                                        [](const FlushResult& result) { return result.status.ok(); });
        files->crash(random);
        const Status found = check_epoch(*files, {1, 1}, trial.sizes, trial.settings.options.plan.file_count);
        ASSERT_NE(found.code(), Code::failed_state) << found.message();
        if (all_ok) {
            ASSERT_TRUE(found.ok()) << found.message();
        }
        ++(all_ok ? reported : lost);
    }
    if (std::getenv("TAILRACE_SEED") == nullptr) {
        EXPECT_GT(reported, 30u);
        EXPECT_GT(lost, 30u);
    }
}

}  // namespace
}  // namespace tailrace::internal
