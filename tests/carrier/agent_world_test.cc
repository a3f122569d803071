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

// A receive as MPI has it: until it is destroyed, data that come go to its memory.
class PendingReceive final : public Transfer {
  public:
    explicit PendingReceive(std::unique_ptr<Transfer> inner) : inner_(std::move(inner)) {}
    ~PendingReceive() override { (void)inner_->take_back(); }
    Result<std::optional<uint64_t>> test() override { return inner_->test(); }
    bool take_back() override { return true; }

  private:
    const std::unique_ptr<Transfer> inner_;
};

// A transport without memory for the calls that are named.
class ScarceTransport final : public Transport {
  public:
    explicit ScarceTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
    bool no_post = false, no_send = false, no_receive = false;

    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::string host() const override { return inner_->host(); }
    bool concurrent() const override { return inner_->concurrent(); }
    Status post(int target, std::span<const std::byte> message) override {
        if (no_post) throw std::bad_alloc();
        return inner_->post(target, message);
    }
    Result<std::optional<Message>> poll() override { return inner_->poll(); }
    Result<bool> posts_delivered() override { return inner_->posts_delivered(); }
    Result<std::unique_ptr<Transfer>> start_send(int target, uint32_t tag,
                                                 std::span<const std::byte> source) override {
        if (no_send) throw std::bad_alloc();
        return inner_->start_send(target, tag, source);
    }
    Result<std::unique_ptr<Transfer>> start_receive(int source, uint32_t tag,
                                                    std::span<std::byte> target) override {
        if (no_receive) throw std::bad_alloc();
        TAILRACE_ASSIGN(auto begun, inner_->start_receive(source, tag, target));
        return std::unique_ptr<Transfer>(std::make_unique<PendingReceive>(std::move(begun)));
    }
    void wait(std::chrono::microseconds longest, bool busy) override { inner_->wait(longest, busy); }
    void wake() override { inner_->wake(); }
    Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> mine) override {
        return inner_->allgather(mine);
    }
    Result<std::vector<std::byte>> spread(int root, std::span<const std::byte> bytes) override {
        return inner_->broadcast(root, bytes);
    }
    Status move_pieces(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
        return inner_->exchange(sends, receives);
    }

  private:
    const std::shared_ptr<Transport> inner_;
};

class AgentWorldTest : public testing::Test {
  protected:
    AgentWorldTest() {
        for (auto& transport : make_in_process_transports({"a", "b"}))
            transports_.push_back(std::make_shared<ScarceTransport>(std::move(transport)));
        std::vector<std::thread> agents;
        worlds_.resize(transports_.size());
        for (size_t i = 0; i < transports_.size(); ++i)
            agents.emplace_back([&, i] { worlds_[i] = *AgentWorld::create(transports_[i]); });
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

    std::vector<std::shared_ptr<ScarceTransport>> transports_;
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

TEST_F(AgentWorldTest, AFrameForWhichThereIsNoMemoryIsTakenLaterAndFailsNobody) {
    const auto box = *worlds_[1]->open({5, 1});
    const auto other = *worlds_[1]->open({6, 1});
    const auto data = bytes(100, 1);
    std::vector<std::byte> memory(100);
    auto receive = *worlds_[1]->start_receive({5, 1}, 0, 1, memory);
    auto send = *worlds_[0]->start_send(1, {5, 1}, 0, 1, data);
    ASSERT_TRUE(worlds_[0]->post(1, {6, 1}, 0, bytes(10, 2)).ok());
    transports_[1]->no_receive = true;
    EXPECT_FALSE((*worlds_[1]->poll(*other)).has_value()) << "it comes after that frame";
    transports_[1]->no_receive = false;
    EXPECT_TRUE((*worlds_[1]->poll(*other)).has_value());
    EXPECT_FALSE((*worlds_[1]->poll(*box)).has_value());
    ASSERT_TRUE(finish(send, receive));
    EXPECT_TRUE(memory == data);
}

TEST_F(AgentWorldTest, WhatIsDroppedWaitsForMemoryAndIsReceivedOneAfterTheOther) {
    (void)*worlds_[1]->open({5, 1});
    const auto data = bytes(5000, 1);
    auto first = *worlds_[0]->start_send(1, {5, 1}, 0, 1, data);
    auto second = *worlds_[0]->start_send(1, {5, 1}, 0, 2, data);
    worlds_[1]->look();
    transports_[1]->no_receive = true;
    worlds_[1]->close({5, 1});
    worlds_[1]->look();
    EXPECT_FALSE((*first->test()).has_value());
    transports_[1]->no_receive = false;
    worlds_[1]->look();
    EXPECT_TRUE(finish(first, second));
}

TEST_F(AgentWorldTest, DataThatNeverComesHoldsUpNoOtherAgents) {
    const auto data = bytes(100, 1);
    transports_[0]->no_send = true;
    EXPECT_THROW((void)worlds_[0]->start_send(1, {5, 1}, 0, 1, data), std::bad_alloc);
    worlds_[1]->look();  // waits for it, and drops it
    auto own = *worlds_[1]->start_send(1, {5, 1}, 1, 2, data);
    EXPECT_TRUE(finish(own));
}

// The receiver waits for the data that was announced. The next data must not take its place.
TEST_F(AgentWorldTest, AfterAnnouncedDataThatDidNotComeNoneIsSentToThatAgent) {
    (void)*worlds_[1]->open({5, 1});
    const auto data = bytes(100, 1);
    transports_[0]->no_post = true;
    EXPECT_THROW((void)worlds_[0]->start_send(1, {5, 1}, 0, 1, data), std::bad_alloc);
    transports_[0]->no_post = false;
    std::vector<std::byte> memory(100), untouched(100);
    auto receive = *worlds_[1]->start_receive({5, 1}, 0, 1, memory);
    auto send = *worlds_[0]->start_send(1, {5, 1}, 0, 1, data);
    ASSERT_TRUE(finish(send, receive)) << "nothing was announced";
    EXPECT_TRUE(memory == data);

    auto without_data = *worlds_[1]->start_receive({5, 1}, 0, 1, untouched);
    transports_[0]->no_send = true;
    EXPECT_THROW((void)worlds_[0]->start_send(1, {5, 1}, 0, 1, data), std::bad_alloc);
    transports_[0]->no_send = false;
    EXPECT_EQ(worlds_[0]->start_send(1, {5, 1}, 0, 2, data).status().code(), Code::transport);
    EXPECT_FALSE((*without_data->test()).has_value());
    EXPECT_TRUE(without_data->take_back());
    constexpr uint32_t announced_tag = 1;  // the second between these two agents
    const auto late = *transports_[0]->start_send(1, announced_tag, data);
    for (int i = 0; i < 10; ++i) worlds_[1]->look();
    EXPECT_FALSE((*late->test()).has_value());
    (void)late->take_back();
    EXPECT_TRUE(untouched == std::vector<std::byte>(100));
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
