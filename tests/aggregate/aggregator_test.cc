// The whole way from captured streams to committed shared files, over many shapes of clusters.
#include "aggregate/aggregator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "aggregate/cluster.h"
#include "aggregate/seeds.h"
#include "base/units.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;

struct Stores {
    std::shared_ptr<MemoryStorage> local = std::make_shared<MemoryStorage>();
    std::shared_ptr<MemoryStorage> shared = std::make_shared<MemoryStorage>();
};

std::vector<uint64_t> sizes_of(Random& random, int ranks, uint64_t largest) {
    std::vector<uint64_t> sizes(static_cast<size_t>(ranks));
    for (uint64_t& size : sizes) size = below(random, 5) == 0 ? 0 : below(random, largest);
    return sizes;
}

void expect_all_ok(const std::vector<FlushResult>& results, int nodes) {
    ASSERT_EQ(results.size(), static_cast<size_t>(nodes));
    for (const FlushResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status.message();
}

TEST(AggregatorTest, SingleNodeFlushesIntoOneFile) {
    Stores stores;
    Cluster cluster(small(1, 1), stores.local, stores.shared);
    const std::vector<uint64_t> sizes = {100'000};
    expect_all_ok(cluster.run_one(cluster.capture({7, 1}, sizes)), 1);
    const Status found = check_epoch(*stores.shared, {7, 1}, sizes, 1);
    EXPECT_TRUE(found.ok()) << found.message();
}

TEST(AggregatorTest, FollowersDataGoesThroughTheirLeader) {
    Stores stores;
    Cluster cluster(small(3, 1), stores.local, stores.shared);
    const std::vector<uint64_t> sizes = {50'000, 90'001, 70'000};
    const auto results = cluster.run_one(cluster.capture({7, 1}, sizes));
    expect_all_ok(results, 3);
    EXPECT_TRUE(results[0].coordinator);
    EXPECT_FALSE(results[1].coordinator);
    EXPECT_EQ(results[1].statistics.local_bytes, 90'001u);
    EXPECT_EQ(results[1].statistics.received_bytes, 120'000u);
    EXPECT_EQ(results[1].statistics.chunks_received, 13u + 18u);
    EXPECT_EQ(results[0].statistics.sent_bytes, 50'000u);
    EXPECT_EQ(results[2].statistics.sent_bytes, 70'000u);
    const Status found = check_epoch(*stores.shared, {7, 1}, sizes, 1);
    EXPECT_TRUE(found.ok()) << found.message();
}

TEST(AggregatorTest, EmptyGroupsStillMakeTheirFiles) {
    for (uint32_t files : {1u, 2u, 5u}) {
        Stores stores;
        Cluster cluster(small(2, files), stores.local, stores.shared);
        const std::vector<uint64_t> sizes = {0, 0};
        expect_all_ok(cluster.run_one(cluster.capture({1, 1}, sizes)), 2);
        const Status found = check_epoch(*stores.shared, {1, 1}, sizes, files);
        EXPECT_TRUE(found.ok()) << found.message();
    }
}

struct Shape {
    ClusterSettings settings;
    std::vector<uint64_t> sizes;
    std::string describe() const {
        const auto& options = settings.options;
        return fmt::format(
            "{} nodes x {} ranks, K {}, {} leaders, {} writers, {} buffers, chunk {}, block {}, {}{}",
            settings.nodes, settings.ranks_per_node, options.plan.file_count, options.plan.leaders_per_file,
            options.writers, options.buffers, options.plan.chunk_bytes, options.plan.block_bytes,
            options.plan.placement == Placement::append ? "append" : "contiguous",
            settings.concurrent ? "" : ", without messages");
    }
};

Shape random_shape(Random& random, int most_nodes, uint64_t most_chunks_per_rank) {
    Shape shape;
    ClusterSettings& settings = shape.settings;
    PlanSettings& plan = settings.options.plan;
    settings.nodes = static_cast<int>(1 + below(random, static_cast<uint64_t>(most_nodes)));
    settings.ranks_per_node = static_cast<int>(1 + below(random, 3));
    plan.file_count = static_cast<uint32_t>(1 + below(random, 2 * static_cast<uint64_t>(settings.nodes)));
    if (below(random, 2) == 0) plan.file_count = static_cast<uint32_t>(1 + below(random, 3));
    plan.leaders_per_file = static_cast<uint32_t>(1 + below(random, 4));
    plan.chunk_bytes = uint64_t{4096} << below(random, 4);
    plan.block_bytes = uint64_t{512} << below(random, 4);
    plan.placement = below(random, 3) == 0 ? Placement::contiguous : Placement::append;
    settings.options.writers = static_cast<uint32_t>(1 + below(random, 3));
    settings.options.buffers = static_cast<uint32_t>(1 + below(random, 8));
    shape.sizes = sizes_of(random, settings.nodes * settings.ranks_per_node,
                           plan.chunk_bytes * (1 + below(random, most_chunks_per_rank)));
    return shape;
}

void expect_epochs_come_back(uint64_t seed, int most_nodes, uint64_t epochs, bool concurrent) {
    Random random(seed);
    Shape shape = random_shape(random, most_nodes, 40);
    shape.settings.concurrent = concurrent;
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, shape.describe()));
    Stores stores;
    Cluster cluster(shape.settings, stores.local, stores.shared);
    std::vector<std::vector<uint64_t>> sizes;
    std::vector<std::vector<FlushJob>> jobs(static_cast<size_t>(shape.settings.nodes));
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
        sizes.push_back(shape.sizes);
        std::shuffle(sizes.back().begin(), sizes.back().end(), random);  // other leaders every time
        const auto of_epoch = cluster.capture({epoch, 1}, sizes.back());
        for (size_t node = 0; node < jobs.size(); ++node) jobs[node].push_back(of_epoch[node]);
    }
    const auto results = cluster.run(jobs);
    for (const auto& of_node : results) {
        ASSERT_EQ(of_node.size(), epochs);
        for (uint64_t epoch = 0; epoch < epochs; ++epoch)
            ASSERT_TRUE(of_node[epoch].status.ok()) << of_node[epoch].status.message();
    }
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
        const Status found =
            check_epoch(*stores.shared, {epoch, 1}, sizes[epoch], shape.settings.options.plan.file_count);
        ASSERT_TRUE(found.ok()) << found.message();
    }
    EXPECT_LE(cluster.most_buffers_used(), shape.settings.options.buffers);
}

TEST(AggregatorTest, AnyShapeComesBackBitForBit) {
    for (uint64_t seed : seeds(1, 120)) expect_epochs_come_back(seed, 8, 1, true);
}

TEST(AggregatorTest, EpochsBackToBackWithChangingLeadersComeBackBitForBit) {
    for (uint64_t seed : seeds(1000, 40)) expect_epochs_come_back(seed, 6, 4, true);
}

TEST(AggregatorTest, WithoutMessagesEveryNodeLeadsAndAllComesBackBitForBit) {
    for (uint64_t seed : seeds(2000, 40)) expect_epochs_come_back(seed, 8, 2, false);
}

TEST(AggregatorTest, SixtyFourNodesWithThousandsOfChunksComeBackWithinTheirBuffers) {
    for (uint32_t leaders : {1u, 4u}) {
        ClusterSettings settings = small(64, 3);
        settings.options.plan.leaders_per_file = leaders;
        settings.options.writers = 1;
        Stores stores;
        Cluster cluster(settings, stores.local, stores.shared);
        Random random(64 + leaders);
        const auto sizes = sizes_of(random, 64, 400'000);
        const auto results = cluster.run_one(cluster.capture({5, 2}, sizes));
        expect_all_ok(results, 64);
        uint64_t written = 0, chunks = 0;
        for (const FlushResult& result : results) {
            written += result.statistics.local_bytes + result.statistics.received_bytes;
            chunks += result.statistics.chunks_received;
        }
        EXPECT_EQ(written, std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
        EXPECT_GT(chunks, 1000u);
        EXPECT_LE(cluster.most_buffers_used(), settings.options.buffers);
        const Status found = check_epoch(*stores.shared, {5, 2}, sizes, 3);
        EXPECT_TRUE(found.ok()) << found.message();
    }
}

TEST(AggregatorTest, ByDefaultAllNodesOfAFileWriteIt) {
    ClusterSettings settings = small(4, 1);
    settings.options.plan.leaders_per_file = 0;
    settings.options.plan.chunk_bytes = 256 * KiB;
    settings.options.plan.block_bytes = 4096;
    Stores stores;
    Cluster cluster(settings, stores.local, stores.shared);
    const std::vector<uint64_t> sizes = {17 * MiB + 1, 16 * MiB, 18 * MiB + 77, 17 * MiB};
    const auto results = cluster.run_one(cluster.capture({1, 1}, sizes));
    expect_all_ok(results, 4);
    for (const FlushResult& result : results) {
        EXPECT_EQ(result.statistics.received_bytes, 0u) << "every node is a leader and writes its own";
        EXPECT_GT(result.statistics.local_bytes, 0u);
    }
    const Status found = check_epoch(*stores.shared, {1, 1}, sizes, 1);
    EXPECT_TRUE(found.ok()) << found.message();
}

}  // namespace
}  // namespace tailrace::internal
