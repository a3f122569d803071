// Sessions whose epochs agents carry, when agents, lines or nodes are lost.
#include <fmt/ranges.h>

#include "carrier/carried_session.h"
#include "carrier/line_messages.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
        EXPECT_THAT(waited.message(), HasSubstr("captured epochs are intact"));
        EXPECT_EQ(session.state(2)->state, EpochState::captured);
        EXPECT_FALSE(session.should_stop().ok() && session.should_stop().ok());
        const Status closed = session.close();
        EXPECT_TRUE(closed.ok()) << closed.to_string();
        EXPECT_EQ(session.state(2)->state, EpochState::committed);
    });
    EXPECT_THAT(committed(), Contains(2));
    run(door_, [&](Checkpointer& session, int) { expect_restored(session, std::nullopt, 2); });
}

// Stopped: it may go on, and write. So close must not, but it must come back.
TEST_F(CarriedSessionTest, AnAgentThatGivesNoSignOfLifeIsNamedAndHoldsNobodyUpForEver) {
    start_agents();
    slow();
    door_.silent_dir = local_dir(1);
    std::mutex mutex;
    std::vector<std::string> said;
    set_log_callback([&](LogLevel level, std::string_view message) {
        const std::lock_guard lock(mutex);
        if (level == LogLevel::warning) said.emplace_back(message);
    });
    std::barrier saved(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        saved.arrive_and_wait();
        door_.silent = true;
        if (rank == 2) {
            const Status waited = session.wait(1, for_ever);
            EXPECT_THAT(waited.message(), HasSubstr("captured epochs are intact")) << waited.to_string();
        }
        const Status closed = session.close();
        EXPECT_EQ(closed.code(), Code::timeout);
        EXPECT_THAT(closed.message(), HasSubstr("the agent process of node 1 (m1, process 0) gives no sign"));
        EXPECT_THAT(closed.message(), HasSubstr("left to the next session"));
    });
    set_log_callback({});
    const auto warns = std::count_if(said.begin(), said.end(), [](const std::string& sentence) {
        return sentence.starts_with("the agent process of node 1 (m1, process 0) has given no sign of life");
    });
    EXPECT_EQ(warns, 1) << fmt::format("{}", fmt::join(said, "\n"));
    // It was not stopped, and the ends of the lines are to both agents the death of the program.
    wait_until([&] { return committed().size() == 1; });
}

// The ranks of node 1 hear nothing of the refusal before their agent is gone, and its parts are removed.
TEST_F(CarriedSessionTest, AllRanksSayWhyTheNewestEpochFailedIfOneHasHeardIt) {
    start_agents();
    door_.silent_dir = local_dir(1);
    std::barrier all(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        std::vector<uint32_t> cells(4);
        const ArrayPiece piece{ElementType::uint32, {4}, {0}, {4}};
        ASSERT_TRUE(session.register_array("cells", cells.data(), piece).ok());
        ASSERT_TRUE(session.save(1).ok());
        all.arrive_and_wait();
        if (rank == 2) door_.silent = true;
        if (rank == 0) {
            EXPECT_THAT(session.wait(1, for_ever).message(), HasSubstr("'cells'"));
        }
        all.arrive_and_wait();
        if (rank == 0) door_.cut = true;
        all.arrive_and_wait();
        const Status closed = session.close();
        EXPECT_EQ(closed.code(), Code::invalid_argument) << closed.to_string();
        EXPECT_EQ(session.state(1)->state, EpochState::failed);
        EXPECT_THAT(session.state(1)->why.message(), HasSubstr("'cells'")) << "rank " << rank;
    });
    EXPECT_THAT(committed(), IsEmpty());
}

// The ranks that took it for gone have not told it of their later saves. The others must not wait for these.
TEST_F(CarriedSessionTest, AnAgentThatGoesOnAfterItWasTakenForGoneGivesUpAndAllRanksGoOn) {
    config_.queue_policy = QueuePolicy::wait;
    config_.queue_epochs = 1;
    start_agents();
    door_.silent_dir = local_dir(1);
    std::barrier all(ranks), node_1(2);
    std::atomic<int> others_done{0};
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(session.wait(1, for_ever).ok());
        all.arrive_and_wait();
        if (rank >= 2) {
            door_.silent = true;
            EXPECT_TRUE(save(session, state, 2).ok());
            EXPECT_FALSE(session.wait(2, for_ever).ok());
            EXPECT_TRUE(save(session, state, 3).ok());
            node_1.arrive_and_wait();
            door_.silent = false;
            (void)session.state(3);
            wait_until([&] { return others_done == 2; }, 10s);
            if (others_done < 2) door_.cut = true;
            EXPECT_TRUE(save(session, state, 4).ok());
        } else {
            for (const uint64_t epoch : {2, 3, 4}) EXPECT_TRUE(save(session, state, epoch).ok());
            ++others_done;
        }
        const Status closed = session.close();
        EXPECT_TRUE(closed.ok()) << closed.to_string();
        EXPECT_EQ(session.state(4)->state, EpochState::committed);
    });
    EXPECT_THAT(committed(), Contains(4));
}

// Nodes begin one after the other. One whose representative dies before is not there for the others, which
// may have begun.
TEST_F(CarriedSessionTest, AProgramThatDiesWhileItsSessionBeginsIsWaitedForByNoAgent) {
    config_.shared_every = 100;
    for (const bool recovered : {true, false})
        for (const int dying : {0, 1}) {
            SCOPED_TRACE(fmt::format("node {} dies, recovered epochs: {}", dying, recovered));
            config_.name = fmt::format("job{}{}", dying, recovered);
            start_agents();
            if (recovered) save_two_epochs();
            std::latch other_begins(1);
            std::atomic<bool> dead{false};
            door_.before_post = [&](const std::string& local_dir, std::span<const std::byte> message) {
                const auto said = line::decode(message);
                const bool begins = said.ok() && std::holds_alternative<line::BeginPiece>(*said);
                if (local_dir != this->local_dir(dying)) {
                    if (begins) other_begins.count_down();
                    return Status();
                }
                if (begins) other_begins.wait();
                dead = dead || begins;
                if (dead) door_.asks_nobody = true;
                return dead ? Status(Code::transport, "this node's ranks are dead") : Status();
            };
            EXPECT_EQ(open(door_), 0);
            door_.before_post = nullptr;
            door_.asks_nobody = false;
            wait_until([&] { return status(0).carried.empty() && status(1).carried.empty(); }, 8s);
            EXPECT_TRUE(ask(1 - dying, DrainAsked{}).carried.empty());
            EXPECT_EQ(open(door_), ranks) << "the next start finds all locks free";
            EXPECT_EQ(committed().size(), recovered ? 2u : 0u);
            stop_agents();
        }
}

// Its agents may be at work on recovered epochs when one of them dies.
TEST_F(CarriedSessionTest, ASessionThatLosesItsAgentsWhileItBeginsGoesOnWithoutThem) {
    for (const bool recovered : {true, false}) {
        SCOPED_TRACE(recovered);
        config_.name = recovered ? "recovered" : "new";
        config_.flush_at_close = false;
        config_.shared_every = 100;
        start_agents();
        if (recovered) save_two_epochs();
        config_.shared_every = 1;
        door_.before_post = [&](const std::string& local_dir, std::span<const std::byte> message) {
            const auto said = line::decode(message);
            const bool begins = said.ok() && std::holds_alternative<line::BeginPiece>(*said);
            return begins && local_dir == this->local_dir(1) ? Status(Code::transport, "its agent is dead")
                                                             : Status();
        };
        run(door_, [&](Checkpointer& session, int) {
            State state;
            EXPECT_TRUE(save(session, state, 3).ok());
            const Status closed = session.close();
            EXPECT_TRUE(closed.ok()) << closed.to_string();
            EXPECT_EQ(session.state(3)->state, EpochState::committed);
        });
        door_.before_post = nullptr;
        EXPECT_THAT(committed(), Contains(3));
        if (recovered) {
            EXPECT_THAT(committed(), Contains(2)) << "captured before";
        }
        wait_until([&] { return status(0).carried.empty() && status(1).carried.empty(); }, 8s);
        stop_agents();
    }
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

// The agents may have lost the lines and nothing else, and still copy what was captured.
TEST_F(CarriedSessionTest, AfterTheLinesAreLostNoCapturedPartGetsOtherBytes) {
    if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm may not be written";
    memory_.emplace("/dev/shm");  // only there the file of an old part is used again
    start_agents();
    slow();
    config_.shared_every = 1000;
    const auto bytes_of = [](const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return std::string{std::istreambuf_iterator<char>(file), {}};
    };
    const auto parts_of = [&](int node, int epoch) {
        std::vector<std::string> parts;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(local_dir(node)))
            if (entry.path().extension() == ".capture" &&
                entry.path().filename().string().find("e00000000" + std::to_string(epoch)) !=
                    std::string::npos)
                parts.push_back(entry.path());
        return parts;
    };
    std::barrier all(ranks);
    const auto kept = memory_->path() + "/kept";
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        all.arrive_and_wait();
        // A second name keeps the file that the agent may have open.
        if (rank == 0) std::filesystem::create_hard_link(parts_of(0, 1).at(0), kept);
        all.arrive_and_wait();
        const auto before = bytes_of(kept);
        door_.cut = true;
        (void)session.state(1);
        all.arrive_and_wait();
        for (uint64_t epoch = 2; epoch <= 5; ++epoch) EXPECT_TRUE(save(session, state, epoch).ok());
        all.arrive_and_wait();
        EXPECT_TRUE(bytes_of(kept) == before);
        all.arrive_and_wait();
        EXPECT_TRUE(session.close().ok());
    });
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

}  // namespace
}  // namespace tailrace::internal
