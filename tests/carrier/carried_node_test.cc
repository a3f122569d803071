// One carried node whose ranks are this test, without sockets.
#include "carrier/carried_node.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "doubles/memory_storage.h"
#include "session/cluster.h"
#include "threads/executor.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;

CarriedJob job_of_one_rank() {
    CarriedJob job;
    auto& context = job.context;
    context.config = testing_support::small_config();
    context.config.buffer_bytes = 256 << 10;
    context.config.local_dir = "/l";
    context.config.shared_dir = "/s";
    context.config.record = false;
    EXPECT_TRUE(complete_config(context.config, 1).ok());
    context.hosts = {"a"};
    context.topology = make_topology(context.hosts, 0);
    context.tier = local_tier("/l", "/s", context.config.name);
    context.run = 1;
    context.run_uid = 99;
    job.agent_of_node = {0};
    return job;
}

// Such a throw would end the agent process, and under MPI all agents.
TEST(CarriedNodeTest, WhatItsThreadThrowsEndsThisNodeOnly) {
    auto world = *AgentWorld::create(std::move(make_in_process_transports({"a"})[0]));
    std::atomic<int> changed{0}, thrown{0};
    auto created =
        CarriedNode::create(job_of_one_rank(), world, std::make_shared<MemoryStorage>(),
                            std::make_shared<MemoryStorage>(), CarriedNode::Locks(), [&] { ++changed; });
    ASSERT_TRUE(created.ok()) << created.status().to_string();
    const auto& node = *created;
    std::vector<std::string> said;
    const auto line = std::make_shared<LineSender>([&](std::span<const std::byte> bytes) -> Result<bool> {
        const auto message = line::decode(bytes);
        if (std::holds_alternative<line::Idle>(*message) && ++thrown == 1) throw std::bad_alloc();
        said.emplace_back(std::holds_alternative<line::Ended>(*message) ? "ended" : "other");
        return true;
    });
    ASSERT_TRUE(node->connect(0, line).ok());
    ASSERT_TRUE(node->begin({}).ok());
    set_log_level(LogLevel::off);
    node->close_asked();
    const auto deadline = SteadyClock::now() + 30s;
    while (changed == 0 && SteadyClock::now() < deadline) sleep_for(1ms);
    set_log_level(LogLevel::warning);
    EXPECT_EQ(thrown, 1 + 1) << "the message that could not be sent waits, and goes with the next";
    EXPECT_TRUE(node->has_ended());
    ASSERT_FALSE(said.empty());
    EXPECT_EQ(said.back(), "ended");
}

}  // namespace
}  // namespace tailrace::internal
