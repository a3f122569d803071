// What close() says when the agent that carries a session's epochs does not let go of them, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "carrier/line_messages.h"
#include "session/cluster.h"
#include "session/drain_agent.h"
#include "session/history_state.h"
#include "simulation/network.h"
#include "simulation/virtual_executor.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::HasSubstr;

// What happens after a rank's goodbye.
struct Mishap {
    bool is_lost = false;
    std::chrono::seconds sleep{};  // of the machine, while the rank waits
};

class GoodbyeLine final : public AgentLine {
  public:
    GoodbyeLine(std::unique_ptr<AgentLine> inner, VirtualExecutor& executor, Mishap mishap)
        : inner_(std::move(inner)), executor_(executor), mishap_(mishap) {}
    Status post(std::span<const std::byte> message, std::span<const int> descriptors) override {
        said_ = std::holds_alternative<line::Goodbye>(*line::decode(message));
        return said_ && mishap_.is_lost ? Status() : inner_->post(message, descriptors);
    }
    Result<std::optional<std::vector<std::byte>>> poll() override { return inner_->poll(); }
    void wait(std::chrono::microseconds longest) override {
        if (said_) executor_.jump(std::exchange(mishap_.sleep, {}));
        inner_->wait(longest);
    }
    void wake() override { inner_->wake(); }

  private:
    const std::unique_ptr<AgentLine> inner_;
    VirtualExecutor& executor_;
    Mishap mishap_;
    bool said_ = false;
};

class Door final : public AgentDoor {
  public:
    Door(DrainAgent& agent, Machines& machines, VirtualExecutor& executor, Mishap mishap)
        : agent_(agent), machines_(machines), executor_(executor), mishap_(mishap) {}
    Result<std::unique_ptr<AgentLink>> ask(const std::string& /*local_dir*/,
                                           const std::string& /*shared_dir*/) override {
        return agent_.ask();
    }
    Result<std::unique_ptr<AgentLine>> line(const std::string& /*local_dir*/) override {
        TAILRACE_ASSIGN(auto line, agent_.line([&](int descriptor) -> std::shared_ptr<DirectoryLock> {
            auto lock = machines_.local_of("m0")->duplicate_lock(descriptor);
            return lock ? std::move(lock) : machines_.shared->duplicate_lock(descriptor);
        }));
        return std::unique_ptr<AgentLine>(std::make_unique<GoodbyeLine>(std::move(line), executor_, mishap_));
    }

  private:
    DrainAgent& agent_;
    Machines& machines_;
    VirtualExecutor& executor_;
    const Mishap mishap_;
};

struct ClosedSession {
    Status status;
    EpochState newest = EpochState::unknown;
};

// An agent carries the epochs of a session that keeps the second of two in the node-local tier.
ClosedSession close_with(Mishap mishap) {
    set_log_level(LogLevel::off);
    ClosedSession closed;
    VirtualExecutor executor(1, {.pause = 0.1, .most_steps = 1'000'000, .story = {}});
    executor.run([&] {
        Machines machines;
        auto config = small_config();
        config.buffer_bytes = 256 << 10;  // settings are checked as those of a program
        config.shared_every = 2;
        config.agent_carries = AgentCarries::yes;
        config.record = false;
        const auto local = machines.local_of("m0");
        Network network(executor, {"m0"}, {}, true);
        DrainAgent agent(config, local, machines.shared, [](const DrainedEpoch&) {},
                         {std::move(network.transports()[0]), local, machines.shared});
        ASSERT_TRUE(agent.wait_until_it_listens());
        Door door(agent, machines, executor, mishap);
        auto session = Checkpointer::open(config, make_single_transport(), local, machines.shared, &door);
        ASSERT_TRUE(session.ok()) << session.status().to_string();
        std::vector<std::byte> state(1000);
        ASSERT_TRUE((*session)->register_region("state", state.data(), state.size()).ok());
        for (const int epoch : {1, 2}) ASSERT_TRUE((*session)->save(static_cast<uint64_t>(epoch)).ok());
        closed.status = (*session)->close();
        closed.newest = (*session)->state(2)->state;
        session->reset();
        agent.die();
    });
    return closed;
}

TEST(ClosingTest, AnAgentThatDoesNotLetGoIsWaitedForAndSaid) {
    const auto closed = close_with({.is_lost = true});
    EXPECT_EQ(closed.status.code(), Code::failed_state);
    EXPECT_THAT(closed.status.message(), HasSubstr("epoch 2 of run 1, the newest, was kept"));
    EXPECT_THAT(closed.status.message(), HasSubstr("have not let go of it"));
    EXPECT_EQ(closed.newest, EpochState::kept_local);
}

TEST(ClosingTest, TheTimeThatTheMachineSleepsDoesNotCount) {
    const auto closed = close_with({.sleep = 10min});
    EXPECT_TRUE(closed.status.ok()) << closed.status.to_string();
    EXPECT_EQ(closed.newest, EpochState::committed);
}

}  // namespace
}  // namespace tailrace::internal
