// The in-process transport: the conformance suite with a thread per rank, and what only this transport
// promises (ranks that leave, objects without threads, thousands of instances).
#include "transport/in_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>

#include "transport/conformance.h"

namespace tailrace::internal {
namespace {

using Transports = std::vector<std::unique_ptr<Transport>>;

std::vector<std::string> hosts(size_t ranks) {
    std::vector<std::string> names;
    for (size_t rank = 0; rank < ranks; ++rank) names.push_back("node" + std::to_string(rank / 2));
    return names;
}

// Runs `body` on all ranks, a thread each, and returns when all have.
void on_all_ranks(Transports& transports, const std::function<void(Transport&)>& body) {
    std::vector<std::jthread> ranks;
    for (auto& transport : transports) ranks.emplace_back([&, t = transport.get()] { body(*t); });
}

// ---- conformance -------------------------------------------------------------------------------------

class InProcessConformance : public testing::TestWithParam<conformance::Case> {};

TEST_P(InProcessConformance, Holds) {
    const conformance::Case& tried = GetParam();
    Transports transports = make_in_process_transports(hosts(tried.ranks));
    std::vector<conformance::Witness> witnesses(tried.ranks);
    on_all_ranks(transports, [&](Transport& transport) {
        tried.claim->check(transport, witnesses[static_cast<size_t>(transport.rank())]);
    });
    for (size_t rank = 0; rank < tried.ranks; ++rank)
        for (const std::string& failure : witnesses[rank].failures())
            ADD_FAILURE() << "rank " << rank << ": " << failure;
}

INSTANTIATE_TEST_SUITE_P(AllClaims, InProcessConformance, testing::ValuesIn(conformance::cases()),
                         [](const auto& tried) { return conformance::name_of(tried.param); });

// ---- its own -----------------------------------------------------------------------------------------

std::vector<std::byte> bytes_of(const std::string& text) {
    auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

TEST(InProcessTest, RanksHaveTheirHostsAndNumbers) {
    Transports transports = make_in_process_transports({"a", "b", "a"});
    ASSERT_EQ(transports.size(), 3u);
    for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(transports[static_cast<size_t>(rank)]->rank(), rank);
        EXPECT_EQ(transports[static_cast<size_t>(rank)]->size(), 3);
        EXPECT_TRUE(transports[static_cast<size_t>(rank)]->concurrent());
    }
    EXPECT_EQ(transports[0]->host(), transports[2]->host());
    EXPECT_NE(transports[0]->host(), transports[1]->host());
}

TEST(InProcessTest, OneThreadMayDriveAllRanks) {
    Transports transports = make_in_process_transports(hosts(2));
    ASSERT_TRUE(transports[0]->post(1, bytes_of("credit")).ok());
    auto message = transports[1]->poll();
    ASSERT_TRUE(message.ok() && message->has_value());
    EXPECT_EQ((*message)->bytes, bytes_of("credit"));

    const auto sent = bytes_of("chunk");
    std::vector<std::byte> received(sent.size());
    auto receive = transports[0]->start_receive(1, 5, received);
    ASSERT_TRUE(receive.ok());
    EXPECT_FALSE((*receive)->test().value().has_value()) << "nothing was sent yet";
    auto send = transports[1]->start_send(0, 5, sent);
    ASSERT_TRUE(send.ok());
    EXPECT_EQ((*receive)->test().value(), sent.size());
    EXPECT_EQ((*send)->test().value(), sent.size());
    EXPECT_EQ(received, sent);
}

TEST(InProcessTest, WaitReturnsOnAMessageAndOnATransferOfEitherSide) {
    Transports transports = make_in_process_transports(hosts(2));
    const auto begin = std::chrono::steady_clock::now();
    auto wait = [&](int rank) { transports[static_cast<size_t>(rank)]->wait(conformance::patience, false); };
    std::vector<std::byte> memory(1);
    {
        std::jthread other([&] { EXPECT_TRUE(transports[1]->post(0, bytes_of("x")).ok()); });
        wait(0);
    }
    auto receive = transports[0]->start_receive(1, 1, memory);
    auto send = transports[1]->start_send(0, 1, memory);
    wait(0);
    wait(1);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, conformance::patience);
    EXPECT_TRUE((*receive)->test().value().has_value());
    EXPECT_TRUE((*send)->test().value().has_value());
}

TEST(InProcessTest, WithoutConcurrencyOnlyCollectivesWork) {
    Transports transports = make_in_process_transports(hosts(2), false);
    on_all_ranks(transports, [](Transport& transport) {
        std::vector<std::byte> memory(4);
        EXPECT_FALSE(transport.concurrent());
        EXPECT_EQ(transport.post(0, memory).code(), Code::failed_state);
        EXPECT_EQ(transport.poll().status().code(), Code::failed_state);
        EXPECT_EQ(transport.start_send(0, 1, memory).status().code(), Code::failed_state);
        EXPECT_EQ(transport.start_receive(0, 1, memory).status().code(), Code::failed_state);
        auto all = transport.allgather(memory);
        EXPECT_TRUE(all.ok() && all->size() == 2);
    });
}

TEST(InProcessTest, ACollectiveFailsWhenARankHasLeft) {
    Transports transports = make_in_process_transports(hosts(3));
    // A collective that rank 0 took part in still counts for the others, even if they come to see it later.
    on_all_ranks(transports, [](Transport& transport) { EXPECT_TRUE(transport.allgather({}).ok()); });
    std::jthread waits([&] {
        auto all = transports[1]->allgather({});
        EXPECT_EQ(all.status().code(), Code::transport);
        EXPECT_NE(all.status().message().find("rank 0"), std::string::npos) << all.status().message();
    });
    transports[0].reset();
    waits.join();
    EXPECT_EQ(transports[2]->allgather({}).status().code(), Code::transport);
    for (int again = 0; again < 3; ++again)
        EXPECT_EQ(agree(*transports[2], Status()).code(), Code::transport) << "and stays so";
    EXPECT_EQ(agree(*transports[2], Status(Code::no_space, "mine")).code(), Code::no_space);
}

TEST(InProcessTest, MessagesAndTransfersWithARankThatHasLeftAreHarmless) {
    Transports transports = make_in_process_transports(hosts(2));
    std::vector<std::byte> memory(1000);
    auto send = transports[0]->start_send(1, 1, memory);
    transports[1].reset();
    EXPECT_TRUE(transports[0]->post(1, memory).ok());
    auto receive = transports[0]->start_receive(1, 2, memory);
    EXPECT_FALSE((*send)->test().value().has_value());
    EXPECT_FALSE((*receive)->test().value().has_value());
}

TEST(InProcessTest, ATransferThatIsGivenUpIsNeverMatched) {
    Transports transports = make_in_process_transports(hosts(2));
    const auto first = bytes_of("first"), second = bytes_of("other");
    std::vector<std::byte> given_up(5, std::byte{1}), received(5);
    {
        auto send = transports[0]->start_send(1, 4, first);
        auto receive = transports[1]->start_receive(0, 5, given_up);
    }
    auto receive = transports[1]->start_receive(0, 4, received);
    auto send = transports[0]->start_send(1, 4, second);
    EXPECT_EQ((*receive)->test().value(), 5u);
    EXPECT_EQ(received, second);
    auto to_nobody = transports[0]->start_send(1, 5, second);
    EXPECT_FALSE((*to_nobody)->test().value().has_value());
    EXPECT_EQ(given_up, std::vector<std::byte>(5, std::byte{1}));
}

// One side may be destroyed at the very moment when the other copies.
TEST(InProcessTest, GivingUpATransferWaitsForACopyUnderWay) {
    constexpr size_t size = 1 << 20;
    Transports transports = make_in_process_transports(hosts(2));
    std::barrier both(2);
    auto run = [&](bool sends) {
        for (uint32_t round = 0; round < 60; ++round) {
            std::vector<std::byte> memory(size);
            both.arrive_and_wait();
            auto transfer = sends ? transports[0]->start_send(1, round, memory)
                                  : transports[1]->start_receive(0, round, memory);
            ASSERT_TRUE(transfer.ok());
            EXPECT_EQ((*transfer)->test().value().value_or(size), size);
        }
    };
    std::jthread other(run, false);
    run(true);
}

TEST(InProcessTest, ManyRanksGatherAndAThousandInstancesAreCheap) {
    Transports transports = make_in_process_transports(hosts(256));
    on_all_ranks(transports, [](Transport& transport) {
        std::vector<std::byte> mine(static_cast<size_t>(transport.rank()));
        for (int round = 0; round < 3; ++round) {
            auto all = transport.allgather(mine);
            ASSERT_TRUE(all.ok());
            for (size_t rank = 0; rank < 256; ++rank) ASSERT_EQ((*all)[rank].size(), rank);
        }
    });
    for (int instance = 0; instance < 1000; ++instance) {
        Transports cluster = make_in_process_transports(hosts(64));
        ASSERT_EQ(cluster.size(), 64u);
        ASSERT_TRUE(cluster[0]->post(63, {}).ok());
    }
}

TEST(SingleTransportTest, IsRankZeroOfOneOnThisMachine) {
    auto transport = make_single_transport();
    EXPECT_EQ(transport->rank(), 0);
    EXPECT_EQ(transport->size(), 1);
    EXPECT_FALSE(transport->host().empty());
    EXPECT_TRUE(transport->concurrent());
    EXPECT_EQ(transport->allgather(bytes_of("a")).value().size(), 1u);
    Status refused = agree(*transport, Status(Code::busy, "why"));
    EXPECT_EQ(refused.message(), "why") << "one rank needs no name";
}

// A rank that answers with something else than a status must not count as one that succeeded.
TEST(AgreeTest, AnswersThatAreNoStatusCountAsFailures) {
    const std::vector<std::vector<std::byte>> answers = {
        {},  // of a rank without memory
        bytes_of(std::string("\0\0\0\0\0\0\0\0", 8)),
        bytes_of("\x01"),
        bytes_of(std::string("\0\0\0\0more", 8)),
        bytes_of("\xff\xff\xff\xff\0\0\0\0"),
        bytes_of(std::string("\x05\0\0\0\xff\0\0\0short", 13))};
    for (const auto& answer : answers) {
        Transports transports = make_in_process_transports(hosts(2));
        std::jthread other([&] {
            const int failed = 1;
            (void)transports[1]->allgather(std::as_bytes(std::span(&failed, 1)));
            (void)transports[1]->allgather(answer);
        });
        Status status = agree(*transports[0], Status());
        EXPECT_EQ(status.code(), answer.empty() ? Code::out_of_memory : Code::transport);
        EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
    }
}

}  // namespace
}  // namespace tailrace::internal
