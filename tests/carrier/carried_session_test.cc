// Two agent processes (threads here) that carry the epochs of a session of four ranks on two nodes, over
// real sockets. The ranks may communicate in collective calls only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <latch>
#include <thread>

#include "agent_process/agent_door.h"
#include "agent_process/agent_process.h"
#include "catalog/catalog.h"
#include "read/shared_epoch_codec.h"
#include "session/sample_program.h"
#include "storage/scratch.h"
#include "threads/executor.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A door whose lines can be cut, as by the death of the program (to the agents) and of the agents (to the
// program).
class CuttingDoor final : public AgentDoor {
  public:
    Result<std::unique_ptr<AgentLink>> ask(const std::string& local_dir,
                                           const std::string& shared_dir) override {
        auto link = system_agent_door().ask(local_dir, shared_dir);
        if (cut) {
            asked_after_cut += 1;
            still_carried += carried_at(local_dir);
        }
        return link;
    }
    static size_t carried_at(const std::string& local_dir) {
        auto agent = connect_to_agent(local_dir);
        if (!agent.ok() || !agent->send(StatusAsked{}).ok()) return 0;
        const auto answer = agent->receive(60s);
        return answer.ok() && *answer ? std::get<AgentStatus>(**answer).carried.size() : 0;
    }
    Result<std::unique_ptr<AgentLine>> line(const std::string& local_dir) override {
        TAILRACE_ASSIGN(auto line, system_agent_door().line(local_dir));
        lines_made += 1;
        return std::unique_ptr<AgentLine>(std::make_unique<Line>(*this, std::move(line)));
    }
    std::atomic<bool> cut{false};
    std::atomic<int> lines_made{0};
    std::atomic<int> asked_after_cut{0};
    std::atomic<size_t> still_carried{0};  // when agents had been asked to let go

  private:
    class Line final : public AgentLine {
      public:
        Line(const CuttingDoor& door, std::unique_ptr<AgentLine> inner)
            : door_(door), inner_(std::move(inner)) {}
        Status post(std::span<const std::byte> message, std::span<const int> descriptors) override {
            if (is_cut()) return gone();
            return inner_->post(message, descriptors);
        }
        Result<std::optional<std::vector<std::byte>>> poll() override {
            if (is_cut()) return gone();
            return inner_->poll();
        }
        void wait(std::chrono::microseconds longest) override {
            if (!is_cut()) inner_->wait(std::min<std::chrono::microseconds>(longest, 5ms));
        }
        void wake() override {}

      private:
        bool is_cut() {
            if (door_.cut) inner_.reset();
            return inner_ == nullptr;
        }
        static Status gone() { return Status(Code::transport, "the line was cut"); }
        const CuttingDoor& door_;
        std::unique_ptr<AgentLine> inner_;
    };
};

class CarriedSessionTest : public testing::Test {
  protected:
    static constexpr int ranks = 4;

    CarriedSessionTest() {
        config_ = small_config();
        config_.buffer_bytes = 256 << 10;  // settings are checked as those of a program
        config_.shared_dir = scratch_.path() + "/shared";
        config_.record = false;
        config_.checksum = true;
    }
    ~CarriedSessionTest() override { stop_agents(); }

    std::string local_dir(int node) const { return scratch_.path() + "/local" + std::to_string(node); }
    static std::shared_ptr<Storage> local(const std::string& directory) {
        SystemStorageOptions options;
        options.engine = IoEngine::posix;
        options.rules.own_in = directory;
        return *make_system_storage(options);
    }
    static std::shared_ptr<Storage> shared() { return *make_system_storage({.engine = IoEngine::posix}); }

    void start_agents(bool with_world = true) {
        auto transports = make_in_process_transports({"m0", "m1"});
        std::latch begun(2);
        for (int node = 0; node < 2; ++node)
            agents_.emplace_back(
                [&, node, with_world, transport = std::shared_ptr<Transport>(std::move(transports[node]))] {
                    AgentProcess::Options options;
                    options.config = config_;
                    options.config.local_dir = local_dir(node);
                    options.grace = 10s;
                    if (with_world) options.world = *AgentWorld::create(transport);
                    auto agent = AgentProcess::create(options, local(local_dir(node)), shared());
                    EXPECT_TRUE(agent.ok()) << agent.status().to_string();
                    serving_[node] = agent.ok() ? agent->get() : nullptr;
                    begun.count_down();
                    if (!agent.ok()) return;
                    EXPECT_TRUE((*agent)->serve().ok());
                    agent->reset();
                    if (options.world) options.world->wait_for_all_agents();
                });
        begun.wait();
    }
    void stop_agents() {
        for (auto* agent : serving_)
            if (agent != nullptr) agent->stop();
        for (auto& agent : agents_) agent.join();
        agents_.clear();
        serving_ = {};
    }

    // At once, whatever they are doing.
    void end_agents() {
        for (size_t node = 0; node < serving_.size(); ++node) {
            auto agent = connect_to_agent(local_dir(static_cast<int>(node)));
            EXPECT_TRUE(agent.ok() && agent->send(EndAsked{0}).ok());
        }
        stop_agents();
    }

    using Body = std::function<void(Checkpointer&, int rank)>;
    void run(AgentDoor& door, const Body& body, bool concurrent = false, Config* changed = nullptr) {
        const Config& config = changed != nullptr ? *changed : config_;
        auto transports = make_in_process_transports({"m0", "m0", "m1", "m1"}, concurrent);
        std::vector<std::thread> program;
        for (int rank = 0; rank < ranks; ++rank)
            program.emplace_back(
                [&, rank, transport = std::shared_ptr<Transport>(std::move(transports[rank]))] {
                    Config own = config;
                    own.local_dir = local_dir(rank / 2);
                    auto session = Checkpointer::open(own, transport, local(own.local_dir), shared(), &door);
                    ASSERT_TRUE(session.ok()) << session.status().to_string();
                    body(**session, rank);
                });
        for (auto& rank : program) rank.join();
    }
    std::vector<uint64_t> committed(const Config& config) const {
        std::vector<uint64_t> epochs;
        const auto listed = list_shared(*shared(), config.shared_dir, config.name);
        if (!listed.ok()) return epochs;
        for (const auto& files : *listed)
            if (looks_complete(files) && load_shared_epoch(*shared(), files).ok())
                epochs.push_back(files.key.epoch);
        return epochs;
    }
    std::vector<uint64_t> committed() const { return committed(config_); }
    AgentStatus status(int node) const {
        auto agent = connect_to_agent(local_dir(node));
        EXPECT_TRUE(agent.ok() && agent->send(StatusAsked{}).ok());
        const auto answer = agent->receive(60s);
        EXPECT_TRUE(answer.ok() && *answer);
        return std::get<AgentStatus>(**answer);
    }
    void wait_until(const std::function<bool()>& done) const {
        const auto deadline = SteadyClock::now() + 60s;
        while (!done() && SteadyClock::now() < deadline) sleep_for(5ms);
        EXPECT_TRUE(done());
    }
    void lose(int node) const { std::filesystem::remove_all(local_dir(node)); }
    // The flush of an epoch takes about a second.
    void slow() { config_.bandwidth_cap = 300000; }

    test::ScratchDirectory scratch_;
    Config config_;
    std::vector<std::thread> agents_;
    std::array<AgentProcess*, 2> serving_ = {};
    CuttingDoor door_;
};

TEST_F(CarriedSessionTest, ASaveNeedsNoOtherRankAndTheAgentsCommit) {
    start_agents();
    std::array<std::latch, ranks + 1> turns{std::latch(1), std::latch(1), std::latch(1), std::latch(1),
                                            std::latch(1)};
    turns[0].count_down();
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        turns[rank].wait();  // the rank before has returned from its save
        EXPECT_TRUE(save(session, state, 1).ok());
        turns[rank + 1].count_down();
        EXPECT_TRUE(save(session, state, 2).ok());
        EXPECT_TRUE(session.wait_all(for_ever).ok());
        EXPECT_EQ(session.state(1)->state, EpochState::committed);
        EXPECT_EQ(session.state(2)->state, EpochState::committed);
        EXPECT_EQ(session.agent_bytes(), 0u);
        if (rank == 0) {
            EXPECT_EQ(status(1).carried.size(), 1u);
        }
        expect_restored(session, std::nullopt, 2);
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_EQ(door_.lines_made, ranks);
    EXPECT_THAT(committed(), ElementsAre(1, 2));
    EXPECT_THAT(status(0).carried, IsEmpty());
}

TEST_F(CarriedSessionTest, OneAgentMayHaveSeveralNodes) {
    start_agents();
    config_.ranks_per_node = 1;
    config_.files = 2;
    run(door_, [&](Checkpointer& session, int) {
        State state;
        for (uint64_t epoch = 1; epoch <= 3; ++epoch) EXPECT_TRUE(save(session, state, epoch).ok());
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_THAT(committed(), ElementsAre(1, 2, 3));
}

TEST_F(CarriedSessionTest, TheSettingsDecideWhoCarries) {
    start_agents();
    const auto close = [](Checkpointer& session, int) { EXPECT_TRUE(session.close().ok()); };
    run(door_, close, true);
    EXPECT_EQ(door_.lines_made, 0) << "ranks with threads of their own";
    config_.agent_carries = AgentCarries::no;
    run(door_, close);
    EXPECT_EQ(door_.lines_made, 0) << "not wanted";
    config_.agent_carries = AgentCarries::yes;
    run(door_, close, true);
    EXPECT_EQ(door_.lines_made, ranks);
}

TEST_F(CarriedSessionTest, AgentsThatReachNobodyDoNotCarry) {
    start_agents(false);
    run(door_, [&](Checkpointer& session, int) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_EQ(door_.lines_made, 0);
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(CarriedSessionTest, WhatAllRanksHadCapturedIsCommittedAfterTheProgramsDeath) {
    start_agents();
    slow();
    std::barrier saved(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(save(session, state, 2).ok());
        saved.arrive_and_wait();
        door_.cut = true;
        if (rank == 3) (void)session.state(1);
        EXPECT_EQ(session.state(1)->state, EpochState::captured);
        saved.arrive_and_wait();
        // The session still has its locks, as a program does whose process is not quite gone.
        if (rank == 0) wait_until([&] { return committed().size() == 2; });
        if (rank == 0) wait_until([&] { return status(0).carried.empty() && status(1).carried.empty(); });
        saved.arrive_and_wait();
        EXPECT_TRUE(session.close().ok());
        EXPECT_EQ(session.state(2)->state, EpochState::committed);
    });
    EXPECT_THAT(committed(), ElementsAre(1, 2));
}

TEST_F(CarriedSessionTest, WhatARankHadNotCapturedIsDropped) {
    start_agents();
    std::barrier saved(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        saved.arrive_and_wait();
        if (rank != 2) {
            EXPECT_TRUE(save(session, state, 2).ok());
        }
        saved.arrive_and_wait();
        door_.cut = true;
        (void)session.state(1);
        saved.arrive_and_wait();
        if (rank == 0) wait_until([&] { return status(0).carried.empty() && status(1).carried.empty(); });
        if (rank == 0) {
            EXPECT_THAT(committed(), ElementsAre(1));
        }
        saved.arrive_and_wait();
        EXPECT_EQ(session.close().ok(), rank == 2) << "an epoch of the others has failed";
    });
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(CarriedSessionTest, ASessionWhoseAgentsDieGoesOnAndLosesNothing) {
    start_agents();
    config_.bandwidth_cap = 100000;
    std::barrier all(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        all.arrive_and_wait();
        if (rank == 0) door_.cut = true;
        all.arrive_and_wait();
        EXPECT_TRUE(save(session, state, 2).ok()) << "a capture needs no agent";
        const Status waited = session.wait(2, for_ever);
        EXPECT_FALSE(waited.ok());
        EXPECT_THAT(waited.message(), HasSubstr("what was captured is intact"));
        EXPECT_EQ(session.state(2)->state, EpochState::captured);
        EXPECT_FALSE(session.should_stop().ok() && session.should_stop().ok());
        const Status closed = session.close();
        EXPECT_TRUE(closed.ok()) << closed.to_string();
        EXPECT_EQ(session.state(2)->state, EpochState::committed);
    });
    EXPECT_THAT(committed(), Contains(2));
    run(door_, [&](Checkpointer& session, int) { expect_restored(session, std::nullopt, 2); });
}

TEST_F(CarriedSessionTest, AnAgentThatIsToldToEndGivesTheSessionBack) {
    start_agents();
    config_.bandwidth_cap = 60000;
    std::barrier all(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        all.arrive_and_wait();
        if (rank == 0) {
            auto agent = connect_to_agent(local_dir(1));
            EXPECT_TRUE(agent.ok() && agent->send(EndAsked{100}).ok());
        }
        EXPECT_FALSE(session.wait(1, for_ever).ok());
        const Status closed = session.close();
        EXPECT_TRUE(closed.ok()) << closed.to_string();
    });
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(CarriedSessionTest, ANewSessionTakesOverFromAgentsAtWork) {
    start_agents();
    config_.bandwidth_cap = 50000;
    std::barrier all(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        all.arrive_and_wait();
        door_.cut = true;
        (void)session.state(1);
        all.arrive_and_wait();
        if (rank == 0) {
            EXPECT_EQ(status(0).carried.size(), 1u);
            EXPECT_THAT(committed(), IsEmpty()) << "it takes seconds";
        }
        all.arrive_and_wait();
        // It asks the agents to let go, as a new session does, and writes the epoch itself.
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_EQ(door_.asked_after_cut, 2) << "by each representative";
    EXPECT_EQ(door_.still_carried, 0u);
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(CarriedSessionTest, AChildThatTheProgramForksDoesNotKeepItAliveToTheAgent) {
    start_agents();
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    pid_t child = 0;
    std::barrier all(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(session.wait_all(for_ever).ok());
        if (rank == 0) child = fork();
        if (rank == 0 && child == 0) {
            char byte = 0;
            close(ends[1]);
            (void)!read(ends[0], &byte, 1);  // lives until the test is over
            _exit(0);
        }
        all.arrive_and_wait();
        door_.cut = true;
        (void)session.state(1);
        all.arrive_and_wait();
        if (rank == 0) {
            wait_until([&] { return status(0).carried.empty() && status(1).carried.empty(); });
        }
        EXPECT_TRUE(session.close().ok());
    });
    close(ends[1]);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    close(ends[0]);
}

TEST_F(CarriedSessionTest, TwoJobsSideBySideHaveTheSameAgents) {
    start_agents();
    Config other = config_;
    other.name = "other";
    other.shared_dir = scratch_.path() + "/other";
    const auto body = [&](Checkpointer& session, int) {
        State state;
        for (uint64_t epoch = 1; epoch <= 5; ++epoch) EXPECT_TRUE(save(session, state, epoch).ok());
        EXPECT_TRUE(session.wait_all(for_ever).ok());
        expect_restored(session, std::nullopt, 5);
        EXPECT_TRUE(session.close().ok());
    };
    std::thread beside([&] { run(door_, body, false, &other); });
    run(door_, body);
    beside.join();
    EXPECT_THAT(committed(), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(committed(other), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(CarriedSessionTest, TheAgentsProtectWhatTheyCarry) {
    config_.shared_every = 100;
    config_.keep_local = 3;
    for (const std::string redundancy : {"partner", "xor", "rs:2"}) {
        SCOPED_TRACE(redundancy);
        config_.redundancy = redundancy;
        config_.name = redundancy.substr(0, 2);
        start_agents();
        run(door_, [&](Checkpointer& session, int) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
                EXPECT_TRUE(save(session, state, epoch).ok());
                EXPECT_TRUE(session.wait(epoch, for_ever).ok());
                EXPECT_EQ(session.state(epoch)->losses_survived, 1u);
            }
            EXPECT_EQ(session.state(3)->state, EpochState::kept_local);
            EXPECT_TRUE(session.close().ok());
        });
        EXPECT_EQ(door_.lines_made.exchange(0), ranks);
        stop_agents();
        lose(1);
        start_agents();
        run(door_, [&](Checkpointer& session, int) {
            expect_restored(session, std::nullopt, 3);
            EXPECT_TRUE(session.close().ok());
        });
        EXPECT_EQ(door_.lines_made.exchange(0), ranks);
        EXPECT_THAT(committed(), ElementsAre(1, 3)) << "what was rebuilt is flushed by the agents";
        stop_agents();
    }
}

// The agents end in the middle of a flush, and a node's directory is gone. The program still has all its
// ranks.
TEST_F(CarriedSessionTest, WhatTheAgentsLeftIsRebuiltAndFlushedAtCloseOrSaidToBeLost) {
    config_.bandwidth_cap = 60000;
    for (const bool is_protected : {true, false}) {
        SCOPED_TRACE(is_protected);
        config_.redundancy = is_protected ? "partner" : "none";
        config_.name = config_.redundancy;
        start_agents();
        std::barrier all(ranks);
        run(door_, [&](Checkpointer& session, int rank) {
            State state;
            EXPECT_TRUE(save(session, state, 1).ok());
            if (is_protected) wait_until([&] { return session.state(1)->losses_survived == 1; });
            all.arrive_and_wait();
            if (rank == 0) {
                EXPECT_THAT(committed(), IsEmpty());
                end_agents();
                lose(1);
            }
            all.arrive_and_wait();
            EXPECT_FALSE(session.wait(1, for_ever).ok());
            const Status closed = session.close();
            EXPECT_EQ(closed.ok(), is_protected) << closed.to_string();
            if (!is_protected) {
                EXPECT_THAT(closed.message(), HasSubstr("epoch 1 of run 1 could not be flushed"));
            }
            EXPECT_EQ(session.state(1)->state, is_protected ? EpochState::committed : EpochState::failed);
        });
        EXPECT_EQ(committed().size(), is_protected ? 1u : 0u);
        if (is_protected)
            run(door_, [&](Checkpointer& session, int) { expect_restored(session, std::nullopt, 1); });
    }
}

TEST_F(CarriedSessionTest, AllRanksStopAtTheSameCall) {
    start_agents();
    std::array<std::atomic<int>, ranks> stopped{};
    std::barrier step(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        for (int call = 1; call <= 200; ++call) {
            if (call == 3 && rank == 3) session.ask_to_stop("rank 3 has had enough");
            const auto why = session.should_stop();
            ASSERT_TRUE(why.ok()) << why.status().to_string();
            if (*why) {
                EXPECT_THAT(**why, HasSubstr("rank 3 has had enough"));
                stopped[rank] = call;
                break;
            }
            step.arrive_and_wait();
        }
        EXPECT_TRUE(session.close().ok());
    });
    for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_GT(stopped[rank], 0);
        EXPECT_EQ(stopped[rank], stopped[0]);
    }
}

}  // namespace
}  // namespace tailrace::internal
