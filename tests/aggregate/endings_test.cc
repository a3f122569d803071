// Ends in the middle: of the transport, of aggregators while work is under way, and before anything has
// begun.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "aggregate/aggregator.h"
#include "aggregate/faults_fixture.h"
#include "transport/breaking_transport.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;
using testing_support::BreakingTransport;
using testing_support::TransportCall;

struct BrokenRun {
    std::optional<FlushResult> result;  // of the node whose transport broke
    size_t lost_transfers = 0;          // that failed under way
};

// Three nodes driven in turn by this thread. Node `broken` loses its transport after `good_calls`: later
// posts and transfers fail at their start, or transfers alone fail `under_way`. Runs until that node has its
// result, or `most_turns` are over; then everything is torn down where it stands.
BrokenRun run_in_turn(const std::vector<FlushJob>& jobs, Storage& local, Storage& shared, size_t broken,
                      uint64_t good_calls, int most_turns, bool under_way = false) {
    auto transports = make_in_process_transports({"machine", "machine", "machine"});
    const Topology topology = make_topology({"machine", "machine", "machine"}, 1);
    auto options = small(3, 1).options;
    options.shared_dir = Cluster::shared_dir;
    std::vector<std::unique_ptr<BreakingTransport>> breaking;
    std::vector<std::unique_ptr<Aggregator>> nodes;
    for (size_t node = 0; node < 3; ++node) {
        const auto breaks = [node, broken, good_calls](TransportCall, uint64_t calls) {
            return node == broken && calls >= good_calls;
        };
        const auto never = [](TransportCall, uint64_t) { return false; };
        breaking.push_back(under_way ? std::make_unique<BreakingTransport>(*transports[node], never, breaks)
                                     : std::make_unique<BreakingTransport>(*transports[node], breaks));
        auto made = Aggregator::create(options, topology, static_cast<int>(node), *breaking[node], local,
                                       shared, [transport = transports[0].get()] { transport->wake(); });
        EXPECT_TRUE(made.ok());
        nodes.push_back(std::move(made).value());
        nodes.back()->start(jobs[node]);
    }
    BrokenRun run;
    for (int turn = 0; turn < most_turns && !run.result; ++turn) {
        for (size_t node = 0; node < 3; ++node) {
            while (true) {
                auto message = transports[node]->poll();
                if (!message.ok() || !message->has_value()) break;
                nodes[node]->handle((**message).source, (**message).bytes);
            }
            nodes[node]->step();
            auto results = nodes[node]->take_results();
            if (node == broken && !results.empty()) run.result = results.front();
        }
        transports[0]->wait(std::chrono::milliseconds(1), true);
    }
    // What a transport may still touch is there after the aggregators, which is where a freed pool shows.
    nodes.clear();
    for (const std::span<const std::byte> memory : breaking[broken]->lost()) {
        const volatile std::byte* bytes = memory.data();
        for (size_t i = 0; i < memory.size(); i += 512) (void)bytes[i];
        ++run.lost_transfers;
    }
    return run;
}

TEST_F(AggregatorFaultsTest, NodeWithoutTransportEndsItsJobsWithThatReason) {
    const std::vector<uint64_t> sizes = {60'000, 90'000, 50'000};
    Cluster cluster(small(3, 1), local, memory);
    for (size_t broken = 0; broken < 3; ++broken) {
        for (uint64_t good_calls : {0u, 1u, 2u, 3u, 5u, 8u, 13u}) {
            SCOPED_TRACE(fmt::format("node {} after {} calls", broken, good_calls));
            const auto jobs = cluster.capture({1, 1}, sizes);
            const auto result = run_in_turn(jobs, *local, *memory, broken, good_calls, 20'000).result;
            ASSERT_TRUE(result.has_value());
            EXPECT_EQ(result->status.code(), Code::transport);
            EXPECT_THAT(result->status.message(), HasSubstr("the network is gone"));
        }
    }
}

TEST_F(AggregatorFaultsTest, MemoryOfATransferThatFailedUnderWayIsKept) {
    const std::vector<uint64_t> sizes = {60'000, 90'000, 50'000};
    Cluster cluster(small(3, 1), local, memory);
    size_t sends = 0, receives = 0;
    for (size_t broken = 0; broken < 3; ++broken) {
        for (uint64_t good_calls : {0u, 3u, 8u}) {
            SCOPED_TRACE(fmt::format("node {} after {} calls", broken, good_calls));
            const auto jobs = cluster.capture({1, 1}, sizes);
            const auto run = run_in_turn(jobs, *local, *memory, broken, good_calls, 20'000, true);
            (broken == 1 ? receives : sends) += run.lost_transfers;  // node 1 has most, and leads
            if (run.lost_transfers == 0) continue;                   // it was done before
            ASSERT_TRUE(run.result.has_value());
            EXPECT_EQ(run.result->status.code(), Code::transport);
            EXPECT_THAT(run.result->status.message(), HasSubstr("the network went away"));
        }
    }
    EXPECT_GT(sends, 0u);
    EXPECT_GT(receives, 0u);
}

TEST_F(AggregatorFaultsTest, MissingSharedDirectoryIsAnErrorThatNamesIt) {
    Cluster cluster(small(3, 1), local, memory);
    const auto jobs = cluster.capture({1, 1}, {40'000, 60'000, 0});
    MemoryStorage without_directory;
    const auto result = run_in_turn(jobs, *local, without_directory, 0, UINT64_MAX, 20'000).result;
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->status.code(), Code::not_found);
    EXPECT_THAT(result->status.message(), HasSubstr(Cluster::shared_dir));
}

TEST_F(AggregatorFaultsTest, AggregatorsMayEndWhileEverythingIsUnderWay) {
    const std::vector<uint64_t> sizes = {60'000, 90'000, 50'000};
    Cluster cluster(small(3, 1), local, memory);
    const auto jobs = cluster.capture({1, 1}, sizes);
    int unfinished = 0;
    for (int turns = 0; turns < 40; ++turns)
        unfinished += run_in_turn(jobs, *local, *memory, 0, UINT64_MAX, turns).result.has_value() ? 0 : 1;
    EXPECT_GT(unfinished, 3);
}

TEST_F(AggregatorFaultsTest, WriterThatWaitsForTheBandwidthCapDoesNotHoldUpTheEnd) {
    ClusterSettings settings = small(1, 1);
    settings.options.cap = std::make_shared<BandwidthCap>(1);  // a chunk takes over an hour
    settings.options.shared_dir = Cluster::shared_dir;
    Cluster cluster(settings, local, memory);
    const auto jobs = cluster.capture({1, 1}, {50'000});
    auto transport = make_single_transport();
    auto made = Aggregator::create(settings.options, make_topology({"machine"}, 1), 0, *transport, *local,
                                   *memory, [&] { transport->wake(); });
    ASSERT_TRUE(made.ok());
    (*made)->start(jobs[0]);
    for (int turn = 0; turn < 50; ++turn) {
        (*made)->step();
        transport->wait(std::chrono::milliseconds(1), true);
    }
    EXPECT_FALSE((*made)->idle());
    made->reset();  // returns
    EXPECT_NE(check_epoch(*memory, {1, 1}, {50'000}, 1).code(), Code::ok);
}

TEST_F(AggregatorFaultsTest, OptionsThatCannotWorkAreRefused) {
    auto transport = make_single_transport();
    const Topology topology = make_topology({"machine"}, 1);
    const auto refused = [&](auto change) {
        AggregatorOptions options = small(1, 1).options;
        int node = 0;
        change(options, node);
        return Aggregator::create(options, topology, node, *transport, *local, *memory, [] {})
            .status()
            .code();
    };
    EXPECT_EQ(refused([](auto& options, int&) { options.buffers = 0; }), Code::invalid_argument);
    EXPECT_EQ(refused([](auto& options, int&) { options.writers = 0; }), Code::invalid_argument);
    EXPECT_EQ(refused([](auto& options, int&) { options.plan.file_count = 0; }), Code::invalid_argument);
    EXPECT_EQ(refused([](auto& options, int&) { options.plan.chunk_bytes = 5000; }), Code::invalid_argument);
    EXPECT_EQ(refused([](auto&, int& node) { node = 1; }), Code::invalid_argument);
}

}  // namespace
}  // namespace tailrace::internal
