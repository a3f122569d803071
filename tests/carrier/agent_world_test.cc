// Agents as threads, over in-process transports.
#include "carrier/agent_world.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "base/log.h"
#include "threads/executor.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;

class AgentWorldTest : public testing::Test {
  protected:
    AgentWorldTest() {
        auto transports = make_in_process_transports({"a", "b"});
        std::vector<std::thread> agents;
        worlds_.resize(transports.size());
        for (size_t i = 0; i < transports.size(); ++i)
            agents.emplace_back([&, i] { worlds_[i] = *AgentWorld::create(std::move(transports[i])); });
        for (auto& agent : agents) agent.join();
    }
    static std::vector<std::byte> bytes(size_t count, int seed) {
        std::vector<std::byte> made;
        for (size_t i = 0; i < count; ++i) made.push_back(static_cast<std::byte>(i * 31 + seed));
        return made;
    }
    // Drives both worlds until the transfers have ended.
    template <class... Transfers>
    static bool finish(const Transfers&... transfers) {
        const auto deadline = SteadyClock::now() + 20s;
        while (SteadyClock::now() < deadline) {
            const bool all = (... & [&] {
                const auto moved = transfers->test();
                return !moved.ok() || moved->has_value();
            }());
            if (all) return true;
        }
        return false;
    }

    std::vector<std::shared_ptr<AgentWorld>> worlds_;
};

TEST_F(AgentWorldTest, AllAgentsHaveOneWorld) {
    EXPECT_EQ(worlds_[0]->place().world, worlds_[1]->place().world);
    EXPECT_EQ(worlds_[0]->place().agent, 0u);
    EXPECT_EQ(worlds_[1]->place().agent, 1u);
    EXPECT_EQ(worlds_[1]->place().agents, 2u);
}

TEST_F(AgentWorldTest, MessagesGoToTheNodeThatTheyNameInOrder) {
    const auto box = *worlds_[1]->open({5, 1});
    const auto other = *worlds_[1]->open({6, 1});
    EXPECT_EQ(worlds_[1]->open({5, 1}).status().code(), Code::already_exists);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(worlds_[0]->post(1, {5, 1}, 3, bytes(i + 1, i)).ok());
    ASSERT_TRUE(worlds_[0]->post(1, {7, 1}, 3, bytes(1, 1)).ok()) << "to nobody";
    for (int i = 0; i < 10; ++i) {
        const auto message = *worlds_[1]->poll(*box);
        ASSERT_TRUE(message.has_value());
        EXPECT_EQ(message->source, 3);
        EXPECT_TRUE(message->bytes == bytes(i + 1, i));
    }
    EXPECT_FALSE(worlds_[1]->poll(*box)->has_value());
    EXPECT_FALSE(worlds_[1]->poll(*other)->has_value());
}

TEST_F(AgentWorldTest, TransfersOfDifferentSessionsWithOneTagAreNotConfused) {
    (void)*worlds_[1]->open({5, 1});
    (void)*worlds_[1]->open({6, 1});
    const auto first = bytes(1000, 1), second = bytes(1000, 2);
    std::vector<std::byte> to_first(1000), to_second(1000);
    auto send_first = *worlds_[0]->start_send(1, {5, 1}, 0, 9, first);
    auto receive_second = *worlds_[1]->start_receive({6, 1}, 0, 9, to_second);
    auto send_second = *worlds_[0]->start_send(1, {6, 1}, 0, 9, second);
    auto receive_first = *worlds_[1]->start_receive({5, 1}, 0, 9, to_first);
    ASSERT_TRUE(finish(send_first, send_second, receive_first, receive_second));
    EXPECT_TRUE(to_first == first);
    EXPECT_TRUE(to_second == second);
}

TEST_F(AgentWorldTest, WhatIsSentToANodeThatHasEndedHoldsNobodyUp) {
    (void)*worlds_[1]->open({5, 1});
    const auto data = bytes(5000, 1);
    auto early = *worlds_[0]->start_send(1, {5, 1}, 0, 1, data);
    worlds_[1]->close({5, 1});
    auto late = *worlds_[0]->start_send(1, {5, 1}, 0, 2, data);
    const auto box = *worlds_[1]->open({6, 1});
    for (int i = 0; i < 10; ++i) (void)worlds_[1]->poll(*box);  // somebody looks
    EXPECT_TRUE(finish(early, late));
}

// No buffer is that large, so nobody sends it but in error. Memory for it is not even asked for.
TEST_F(AgentWorldTest, DataThatNobodyWantsAndIsLargerThanAnyBufferIsRefused) {
    constexpr size_t most = size_t{1} << 30;
    void* const memory =
        mmap(nullptr, most + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    int refused = 0;
    set_log_callback([&](LogLevel, std::string_view message) {
        refused += message.find("could not be decoded and is dropped") != message.npos;
    });
    {
        const auto send =
            *worlds_[0]->start_send(1, {5, 1}, 0, 1, {static_cast<const std::byte*>(memory), most + 1});
        worlds_[1]->look();
    }
    set_log_callback({});
    EXPECT_EQ(refused, 1);
    worlds_.clear();
    EXPECT_EQ(munmap(memory, most + 1), 0);
}

TEST_F(AgentWorldTest, AReceiveThatIsGivenUpLeavesItsMemoryAlone) {
    const auto box = *worlds_[1]->open({5, 1});
    std::vector<std::byte> memory(100);
    auto receive = *worlds_[1]->start_receive({5, 1}, 0, 1, memory);
    EXPECT_TRUE(receive->take_back());
    receive.reset();
    const auto data = bytes(100, 1);
    auto send = *worlds_[0]->start_send(1, {5, 1}, 0, 1, data);
    (void)worlds_[1]->poll(*box);
    worlds_[1]->close({5, 1});
    EXPECT_TRUE(finish(send));
    EXPECT_TRUE(memory == std::vector<std::byte>(100));
}

TEST_F(AgentWorldTest, ANodeThatIsDoneWaitsUntilAllAre) {
    const std::vector<uint32_t> agent_of_node = {0, 1, 1};
    const auto zero = *worlds_[0]->open({5, 0}), one = *worlds_[1]->open({5, 1}),
               two = *worlds_[1]->open({5, 2});
    ASSERT_TRUE(worlds_[0]->say_done(0, {5, 0}).ok());
    ASSERT_TRUE(worlds_[1]->say_done(0, {5, 1}).ok());
    EXPECT_FALSE(*worlds_[0]->all_done(*zero, {5, 0}, agent_of_node));
    EXPECT_FALSE(*worlds_[1]->all_done(*one, {5, 1}, agent_of_node));
    ASSERT_TRUE(worlds_[1]->say_done(0, {5, 2}).ok());
    EXPECT_TRUE(*worlds_[0]->all_done(*zero, {5, 0}, agent_of_node));
    EXPECT_TRUE(*worlds_[1]->all_done(*one, {5, 1}, agent_of_node));
    EXPECT_TRUE(*worlds_[1]->all_done(*two, {5, 2}, agent_of_node));
}

TEST_F(AgentWorldTest, AgentsThatEndWaitForEachOther) {
    std::atomic<bool> first_ended{false};
    std::thread first([&] {
        worlds_[0]->wait_for_all_agents();
        first_ended = true;
    });
    sleep_for(50ms);
    EXPECT_FALSE(first_ended);
    worlds_[1]->wait_for_all_agents();
    first.join();
}

}  // namespace
}  // namespace tailrace::internal
