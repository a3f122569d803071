// The simulated network keeps every claim that transports must keep, and takes the time it should.
#include "simulation/network.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "threads/worker.h"
#include "transport/conformance.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

class NetworkConformance : public testing::TestWithParam<conformance::Case> {};

TEST_P(NetworkConformance, Holds) {
    const auto [claim, ranks] = GetParam();
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        std::vector<conformance::Witness> witnesses(ranks);
        VirtualExecutor executor(seed, {});
        executor.run([&, claim = claim, ranks = ranks] {
            std::vector<std::string> hosts(ranks);
            for (size_t rank = 0; rank < ranks; ++rank) hosts[rank] = "node" + std::to_string(rank / 2);
            Network network(executor, hosts, {seed * 10us, seed * 100us, 1e9}, true);
            auto transports = network.transports();
            std::vector<Worker> threads;
            for (size_t rank = 0; rank < ranks; ++rank)
                threads.emplace_back("rank", Priority{}, [&, rank](const std::stop_token&) {
                    claim->check(*transports[rank], witnesses[rank]);
                });
        });
        for (size_t rank = 0; rank < ranks; ++rank)
            for (const auto& failure : witnesses[rank].failures())
                ADD_FAILURE() << "seed " << seed << ", rank " << rank << ": " << failure;
    }
}

INSTANTIATE_TEST_SUITE_P(AllClaims, NetworkConformance, testing::ValuesIn(conformance::cases()),
                         [](const auto& tried) { return conformance::name_of(tried.param); });

TEST(NetworkTest, LinksTakeTheirTime) {
    VirtualExecutor executor(1, {});
    executor.run([&] {
        Network network(executor, {"a", "b", "c"}, {1ms, 0ms, 1e9}, true);
        auto transports = network.transports();
        // 10 MB each from two hosts to one: its link takes them one after the other.
        std::vector<std::byte> memory(10'000'000), first(memory.size()), second(memory.size());
        const auto begin = SteadyClock::now();
        std::vector<std::unique_ptr<Transfer>> transfers;
        for (const int source : {1, 2}) {
            auto& target = source == 1 ? first : second;
            transfers.push_back(std::move(*transports[0]->start_receive(source, 1, target)));
            transfers.push_back(
                std::move(*transports[static_cast<size_t>(source)]->start_send(0, 1, memory)));
        }
        std::vector<Message> messages;
        for (const auto& transfer : transfers)
            ASSERT_TRUE(conformance::finish(*transports[0], *transfer, messages).ok());
        const auto took = SteadyClock::now() - begin;
        EXPECT_GE(took, 21ms);
        EXPECT_LT(took, 22ms);
    });
}

TEST(NetworkTest, WhoIsLostIsNotHeardOfAndEndingTellsAll) {
    VirtualExecutor executor(1, {});
    executor.run([&] {
        Network network(executor, {"a", "b"}, {}, true);
        auto transports = network.transports();
        const std::vector<std::byte> word(1);
        network.lose(1);
        EXPECT_FALSE(transports[1]->post(0, word).ok());
        EXPECT_TRUE(transports[0]->post(1, word).ok());
        EXPECT_FALSE(transports[0]->poll()->has_value());
        network.end();
        EXPECT_FALSE(transports[0]->post(1, word).ok());
        EXPECT_FALSE(transports[0]->allgather(word).ok());
    });
}

TEST(NetworkTest, RanksThatMeetInDifferentCollectiveCallsAreFound) {
    using Call = std::function<void(Transport&)>;
    const std::vector<std::byte> word(1);
    const Call gather = [&](Transport& transport) { (void)transport.allgather(word); };
    const Call from_0 = [&](Transport& transport) { (void)transport.broadcast(0, word); };
    const Call from_1 = [&](Transport& transport) { (void)transport.broadcast(1, word); };
    const Call exchange = [&](Transport& transport) { (void)transport.exchange({}, {}); };
    const std::vector<Call> calls{gather, from_0, from_1, exchange};
    for (size_t first = 0; first < calls.size(); ++first) {
        for (size_t second = 0; second < calls.size(); ++second) {
            bool found = false;
            VirtualExecutor executor(1, {});
            executor.run([&] {
                Network network(executor, {"a", "b"}, {}, true);
                network.on_differing_calls([&](const std::string&) { found = true; });
                auto transports = network.transports();
                std::vector<Worker> threads;
                for (const size_t rank : {0, 1})
                    threads.emplace_back("rank", Priority{}, [&, rank](const std::stop_token&) {
                        calls[rank == 0 ? first : second](*transports[rank]);
                    });
            });
            EXPECT_EQ(found, first != second) << first << " and " << second;
        }
    }
}

}  // namespace
}  // namespace tailrace::internal
