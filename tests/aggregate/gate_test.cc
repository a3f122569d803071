// A job that may not commit yet: everything but the slots is written, and later epochs go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregate/cluster.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal {
namespace {

class GateTest : public testing::TestWithParam<bool> {
  protected:
    std::shared_ptr<MemoryStorage> local_ = std::make_shared<MemoryStorage>();
    std::shared_ptr<MemoryStorage> shared_ = std::make_shared<MemoryStorage>();
    const std::vector<uint64_t> sizes_ = {50'000, 90'001, 70'000};
    bool complete(uint64_t epoch) { return check_epoch(*shared_, {epoch, 1}, sizes_, 2).ok(); }
    ClusterSettings settings() {
        auto settings = small(3, 2);
        settings.concurrent = GetParam();
        return settings;
    }
    // Epochs 1 and 2 on every node, of which the first may not commit.
    std::vector<std::vector<FlushJob>> jobs_of(Cluster& cluster) {
        auto first = cluster.capture({1, 1}, sizes_);
        const auto second = cluster.capture({2, 1}, sizes_);
        std::vector<std::vector<FlushJob>> jobs;
        for (size_t node = 0; node < first.size(); ++node) {
            first[node].may_commit = false;
            jobs.push_back({first[node], second[node]});
        }
        return jobs;
    }
};
INSTANTIATE_TEST_SUITE_P(Nodes, GateTest, testing::Bool(),
                         [](const auto& way) { return std::string(way.param ? "Concurrent" : "Solo"); });

TEST_P(GateTest, NothingIsCommittedBeforeItIsAllowedAndLaterEpochsGoOn) {
    Cluster cluster(settings(), local_, shared_);
    const auto results = cluster.run(jobs_of(cluster), [&](int, Aggregator& aggregator) {
        EXPECT_TRUE(!complete(1) || complete(2));
        if (complete(2)) aggregator.allow({1, 1});
        return true;
    });
    for (const auto& of_node : results)
        for (const auto& result : of_node) EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    EXPECT_TRUE(complete(1) && complete(2));
}

TEST_P(GateTest, WhatIsGivenUpInPlaceOfThatIsNeverCommitted) {
    Cluster cluster(settings(), local_, shared_);
    const Status gap(Code::invalid_argument, "a gap");
    const auto results = cluster.run(jobs_of(cluster), [&](int, Aggregator& aggregator) {
        EXPECT_FALSE(complete(1));
        if (complete(2)) aggregator.give_up({1, 1}, gap);
        return true;
    });
    for (const auto& of_node : results)
        for (const auto& result : of_node) EXPECT_EQ(result.status.ok(), result.key.epoch == 2);
    EXPECT_FALSE(complete(1));
    EXPECT_TRUE(complete(2));
}

}  // namespace
}  // namespace tailrace::internal
