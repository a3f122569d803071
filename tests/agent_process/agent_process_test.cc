// An agent process, served by a thread, with sessions of this process as its clients.
#include "agent_process/agent_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>

#include "agent_process/agent_door.h"
#include "base/log.h"
#include "capture/local_tier.h"
#include "catalog/catalog.h"
#include "session/sample_program.h"
#include "storage/scratch.h"
#include "transport/breaking_transport.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AgentProcessTest : public testing::Test {
  protected:
    AgentProcessTest() {
        config_ = small_config();
        config_.local_dir = scratch_.path() + "/local";
        config_.shared_dir = scratch_.path() + "/shared";
        config_.ranks_per_node = 1;
        config_.record = false;
        options_.config = config_;
        options_.grace = 10s;
    }
    ~AgentProcessTest() override { stop(); }

    std::shared_ptr<Storage> local() const {
        SystemStorageOptions options;
        options.engine = IoEngine::posix;
        options.rules.own_in = config_.local_dir;
        return *make_system_storage(options);
    }
    static std::shared_ptr<Storage> shared() { return *make_system_storage({.engine = IoEngine::posix}); }

    void start() {
        auto agent = AgentProcess::create(options_, local(), shared());
        ASSERT_TRUE(agent.ok()) << agent.status().to_string();
        agent_ = std::move(*agent);
        serving_ = std::thread([this] { left_ = agent_->serve(); });
    }
    void stop() {
        if (!agent_) return;
        agent_->stop();
        serving_.join();
        agent_.reset();
    }
    // Dies as agents do: without a word.
    Result<AgentStatus> ask(const AgentProcessMessage& question) {
        TAILRACE_ASSIGN(auto agent, connect_to_agent(config_.local_dir));
        TAILRACE_TRY(agent.send(question));
        TAILRACE_ASSIGN(const auto answer, agent.receive(60s));
        if (!answer) return Status(Code::timeout, "no answer");
        return std::get<AgentStatus>(*answer);
    }

    // Two ranks as two nodes save epochs 1 to `epochs`. They die at that operation in the shared
    // directory (0: they do not).
    void run_job(uint64_t epochs, uint64_t die_at, AgentDoor* door) {
        FaultPlan faults;
        faults.die_at_operation = die_at;
        const auto faulty = std::make_shared<FaultyStorage>(shared(), 1, faults);
        auto transports = make_in_process_transports({"m", "m"});
        std::vector<std::thread> ranks;
        for (auto& transport : transports)
            ranks.emplace_back([&, transport = std::shared_ptr<Transport>(std::move(transport))] {
                auto session = Checkpointer::open(config_, transport, local(), faulty, door);
                ASSERT_TRUE(session.ok()) << session.status().to_string();
                State state;
                for (uint64_t epoch = 1; epoch <= epochs; ++epoch) (void)save(**session, state, epoch);
                EXPECT_EQ((*session)->close().ok(), die_at == 0);
            });
        for (auto& rank : ranks) rank.join();
    }
    std::vector<uint64_t> committed() const {
        std::vector<uint64_t> epochs;
        const auto listed = list_shared(*shared(), config_.shared_dir, config_.name);
        if (!listed.ok()) return epochs;
        for (const auto& files : *listed)
            if (looks_complete(files) && load_shared_epoch(*shared(), files).ok())
                epochs.push_back(files.key.epoch);
        return epochs;
    }

    test::ScratchDirectory scratch_;
    Config config_;
    AgentProcess::Options options_;
    std::unique_ptr<AgentProcess> agent_;
    std::thread serving_;
    Result<AgentStatus> left_ = Status(Code::failed_state, "not served");
};

constexpr uint64_t early_death = 12;

// Each of the two nodes keeps a copy of what the other one captures.
TEST_F(AgentProcessTest, TheShareOfALostNodeIsWrittenFromItsCopyAfterAWhile) {
    config_.redundancy = "partner";
    for (const bool stopped : {false, true}) {
        SCOPED_TRACE(stopped);
        std::filesystem::remove_all(scratch_.path() + "/local");
        std::filesystem::remove_all(scratch_.path() + "/shared");
        run_job(1, early_death, nullptr);
        ASSERT_EQ(std::filesystem::remove_all(
                      local_tier(config_.local_dir, config_.shared_dir, config_.name).directory(1)) > 0,
                  true);
        options_.for_lost = 300ms;
        start();
        auto status = ask(DrainAsked{});
        ASSERT_TRUE(status.ok()) << status.status().to_string();
        EXPECT_THAT(committed(), IsEmpty()) << "it may only be late";
        if (stopped) {  // within its grace time
            stop();
            ASSERT_TRUE(left_.ok()) << left_.status().to_string();
        } else {
            for (int tries = 0; tries < 100 && committed().empty(); ++tries) {
                std::this_thread::sleep_for(100ms);
                (void)ask(DrainAsked{});
            }
            stop();
        }
        EXPECT_THAT(committed(), ElementsAre(1));
    }
    options_.for_lost.reset();
}

TEST_F(AgentProcessTest, WhatAProgramHasCapturedIsCommittedAfterItsDeath) {
    start();
    run_job(2, early_death, &system_agent_door());
    const auto status = ask(DrainAsked{});
    ASSERT_TRUE(status.ok()) << status.status().to_string();
    EXPECT_THAT(committed(), ElementsAre(1, 2));
    EXPECT_EQ(status->sessions, 0u);
    for (const auto& epoch : status->epochs) EXPECT_EQ(epoch.state, DrainedEpoch::State::committed);
    EXPECT_EQ(status->process, static_cast<uint32_t>(getpid()));
    stop();
    ASSERT_TRUE(left_.ok()) << left_.status().to_string();
}

TEST_F(AgentProcessTest, AnAgentThatIsStartedLaterFindsEverything) {
    run_job(2, early_death, nullptr);
    EXPECT_THAT(committed(), IsEmpty());
    start();
    ASSERT_TRUE(ask(DrainAsked{}).ok());
    EXPECT_THAT(committed(), ElementsAre(1, 2));
}

TEST_F(AgentProcessTest, AnAgentThatIsToldToEndFinishesFirst) {
    run_job(2, early_death, nullptr);
    start();
    stop();
    ASSERT_TRUE(left_.ok());
    EXPECT_THAT(committed(), ElementsAre(1, 2));
}

TEST_F(AgentProcessTest, ASessionOpensWhileTheAgentIsAtWorkAndTakesItsEpochsOver) {
    run_job(2, early_death, nullptr);
    options_.config.bandwidth_cap = 4096;  // it would take half a minute
    start();
    for (auto status = ask(StatusAsked{}); status.ok() && !status->working; status = ask(StatusAsked{}))
        std::this_thread::sleep_for(1ms);
    run_job(0, 0, &system_agent_door());
    EXPECT_THAT(committed(), ElementsAre(1, 2)) << "by the session";
    const auto status = ask(StatusAsked{});
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(status->sessions, 0u);
}

TEST_F(AgentProcessTest, SessionsAreCountedAsLongAsTheyLive) {
    start();
    auto first = system_agent_door().ask(config_.local_dir, config_.shared_dir);
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    EXPECT_TRUE((*first)->alive());
    EXPECT_EQ(ask(StatusAsked{})->sessions, 1u);
    (*first)->opened();
    first->reset();
    for (int i = 0; i < 1000 && ask(StatusAsked{})->sessions > 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(ask(StatusAsked{})->sessions, 0u);
}

TEST_F(AgentProcessTest, TheDeathOfTheAgentIsNoticedAndNothingIsLost) {
    start();
    auto link = system_agent_door().ask(config_.local_dir, config_.shared_dir);
    ASSERT_TRUE(link.ok());
    (*link)->opened();
    options_.grace = 0s;
    stop();
    EXPECT_FALSE((*link)->alive());
    EXPECT_EQ(system_agent_door().ask(config_.local_dir, config_.shared_dir).status().code(),
              Code::not_found);
    run_job(1, 0, &system_agent_door());
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(AgentProcessTest, OneAgentServesADirectory) {
    start();
    const auto second = AgentProcess::create(options_, local(), shared());
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), Code::busy);
    EXPECT_THAT(second.status().message(), HasSubstr("another agent serves " + config_.local_dir));
    stop();
    EXPECT_TRUE(AgentProcess::create(options_, local(), shared()).ok()) << "after its end";
}

TEST_F(AgentProcessTest, AnIdleAgentEnds) {
    options_.idle_exit = 1ms;
    start();
    serving_.join();
    EXPECT_TRUE(left_.ok());
    serving_ = std::thread([] {});
}

TEST_F(AgentProcessTest, AnAgentWhoseDirectoryIsRemovedEnds) {
    start();
    std::filesystem::remove_all(config_.local_dir);
    serving_.join();
    EXPECT_TRUE(left_.ok());
    serving_ = std::thread([] {});
}

TEST_F(AgentProcessTest, AProgramMayInsistOnAnAgent) {
    config_.agent = AgentUse::required;
    config_.ranks_per_node = 0;
    const auto open = [&] {
        return Checkpointer::open(config_, make_single_transport(), local(), shared(), &system_agent_door());
    };
    const auto refused = open();
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.status().message(), HasSubstr("start `tailrace agent` there"));
    start();
    EXPECT_TRUE(open().ok());
    config_.agent = AgentUse::none;
    const auto without = open();
    ASSERT_TRUE(without.ok());
    EXPECT_EQ(ask(StatusAsked{})->sessions, 0u);
}

TEST_F(AgentProcessTest, DamagedMessagesEndTheirClientAndNothingElse) {
    start();
    for (int i = 0; i < 10; ++i) {
        auto client = connect_to_agent(config_.local_dir);
        ASSERT_TRUE(client.ok());
        const char rubbish[] = "rubbish";
        ASSERT_GT(write(client->descriptor(), rubbish, sizeof rubbish), 0);
        EXPECT_EQ(client->receive(10s).status().code(), Code::transport);
    }
    EXPECT_TRUE(ask(StatusAsked{}).ok());
}

// Those that wait for a pass are told that it is over while the ends of their connections are looked at.
TEST_F(AgentProcessTest, ClientsThatLeaveBeforeTheirAnswerEndNothing) {
    start();
    for (int round = 0; round < 100; ++round) {
        std::vector<AgentConnection> clients;
        for (int i = 0; i < 20; ++i) {
            auto client = connect_to_agent(config_.local_dir);
            ASSERT_TRUE(client.ok()) << client.status().to_string();
            ASSERT_TRUE(client->send(DrainAsked{}).ok());
            clients.push_back(std::move(*client));
        }
    }
    const auto status = ask(StatusAsked{});
    EXPECT_TRUE(status.ok()) << status.status().to_string();
}

// As when memory is short for a moment. Programs on other nodes need this agent.
TEST_F(AgentProcessTest, WhatIsThrownBesideTheClientsEndsNothing) {
    class ThrowingTransport final : public BreakingTransport {
      public:
        explicit ThrowingTransport(Transport& inner)
            : BreakingTransport(inner, [](TransportCall, uint64_t) { return false; }) {}
        Result<std::optional<Message>> poll() override {
            if (throws > 0 && throws-- > 0) throw std::bad_alloc();
            return BreakingTransport::poll();
        }
        std::atomic<int> throws{0};
    };
    const auto inner = make_single_transport();
    const auto transport = std::make_shared<ThrowingTransport>(*inner);
    options_.world = *AgentWorld::create(transport);
    start();
    transport->throws = 3;
    for (int i = 0; i < 5; ++i) {
        const auto status = ask(StatusAsked{});
        EXPECT_TRUE(status.ok()) << status.status().to_string();
    }
    EXPECT_EQ(transport->throws, 0);
    stop();
    EXPECT_TRUE(left_.ok()) << left_.status().to_string();
    options_.world.reset();
}

// In a directory like /tmp another user may make names without an end.
TEST_F(AgentProcessTest, DirectoriesThatAreSkippedAreNamedOnceAndNotWithoutAnEnd) {
    std::mutex mutex;
    size_t skipped = 0, others = 0;
    set_log_level(LogLevel::info);
    set_log_callback([&](LogLevel, std::string_view message) {
        const std::lock_guard lock(mutex);
        skipped += message.find(" is skipped: ") != message.npos;
        others += message.find("directories that are skipped are not named") != message.npos;
    });
    start();
    for (int node = 0; node < 500; ++node) {
        std::ofstream(config_.local_dir + "/x.node" + std::to_string(node)) << "no directory";
        for (int pass = 0; pass < 2 && node % 99 == 0; ++pass) (void)ask(DrainAsked{});
    }
    stop();
    set_log_callback({});
    set_log_level(LogLevel::warning);
    EXPECT_EQ(skipped, 100u);
    EXPECT_EQ(others, 1u);
}

TEST_F(AgentProcessTest, AnotherUserReachesNeitherSocketNorDirectory) {
    if (geteuid() != 0) GTEST_SKIP() << "changing the user needs root";
    ASSERT_EQ(chmod(scratch_.path().c_str(), 0755), 0);
    start();
    struct stat info {};
    ASSERT_EQ(stat(agent_directory(config_.local_dir).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    const pid_t other = fork();
    if (other == 0) {
        // As another user: the agent is not reached, and what that user has put there is not used.
        const bool changed = setgid(65534) == 0 && setuid(65534) == 0;
        _exit(changed && !connect_to_agent(config_.local_dir).ok() ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(waitpid(other, &status, 0), other);
    EXPECT_EQ(status, 0);
    stop();

    std::filesystem::remove_all(config_.local_dir);
    std::filesystem::create_directories(agent_directory(config_.local_dir));
    ASSERT_EQ(chown(agent_directory(config_.local_dir).c_str(), 65534, 65534), 0);
    const auto planted = connect_to_agent(config_.local_dir);
    ASSERT_FALSE(planted.ok());
    EXPECT_THAT(planted.status().message(), HasSubstr("it belongs to"));
    const auto agent = AgentProcess::create(options_, local(), shared());
    ASSERT_FALSE(agent.ok());
    EXPECT_THAT(agent.status().message(), HasSubstr("it belongs to"));
}

}  // namespace
}  // namespace tailrace::internal
