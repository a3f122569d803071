// Sessions whose epochs agents carry.
#include "carrier/carried_session.h"

#include <fmt/ranges.h>

#include "format/file_table.h"
#include "format/original_files.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Their names do not fit one packet of the agent's socket.
TEST_F(CarriedSessionTest, ARankMayHaveThousandsOfFilesAsTheyWere) {
    start_agents();
    run(door_, [&](Checkpointer& session, int rank) {
        std::vector<SavedFile> files;
        for (int i = 0; i < 4000; ++i)
            files.push_back({fmt::format("rank{:05}/output/of/a/usual/length/step{:08}.vtu", rank, i), 0600});
        const auto table = encode_file_table(files);
        std::vector<RegionSource> more(2);
        more[0].name = file_table_region;
        more[0].memory = table;
        more[1].name = original_files_region;
        for (const auto& file : files) more.emplace_back().name = file_region(file.name);
        const Status saved = session.save_with(1, std::move(more));
        EXPECT_TRUE(saved.ok()) << saved.message();
        const Status waited = session.wait_all(for_ever);
        EXPECT_TRUE(waited.ok()) << waited.message();
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_THAT(committed(), ElementsAre(1));
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

TEST_F(CarriedSessionTest, WhoAsksForADrainIsAnsweredWhenTheSessionsOfDeadProgramsHaveEnded) {
    start_agents();
    slow();
    std::barrier saved(ranks);
    run(door_, [&](Checkpointer& session, int rank) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(save(session, state, 2).ok());
        saved.arrive_and_wait();
        door_.cut = true;
        (void)session.state(1);
        saved.arrive_and_wait();
        if (rank == 0) {
            EXPECT_EQ(committed().size(), 0u);
            const auto answer = ask(1, DrainAsked{});
            EXPECT_THAT(answer.carried, IsEmpty());
            EXPECT_FALSE(answer.working);
            EXPECT_THAT(committed(), ElementsAre(1, 2));
        }
        saved.arrive_and_wait();
        EXPECT_TRUE(session.close().ok());
    });
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
        EXPECT_FALSE(session.close().ok()) << "an epoch has failed, on all ranks";
    });
    EXPECT_THAT(committed(), ElementsAre(1));
}

TEST_F(CarriedSessionTest, ANewSessionTakesOverFromAgentsAtWork) {
    start_agents();
    // It may find the shared directory through a link.
    std::filesystem::create_directory_symlink(config_.shared_dir, scratch_.path() + "/link");
    door_.other_name = scratch_.path() + "/link";
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

TEST_F(CarriedSessionTest, ClosingBringsTheNewestEpochToTheSharedDirectory) {
    config_.shared_every = 100;
    config_.keep_local = 3;
    start_agents();
    run(door_, [&](Checkpointer& session, int) {
        State state;
        for (uint64_t epoch = 1; epoch <= 3; ++epoch) EXPECT_TRUE(save(session, state, epoch).ok());
        EXPECT_TRUE(session.close().ok());
        EXPECT_EQ(session.state(2)->state, EpochState::kept_local);
        EXPECT_EQ(session.state(3)->state, EpochState::committed);
    });
    EXPECT_THAT(committed(), ElementsAre(1, 3));
}

TEST_F(CarriedSessionTest, TheAgentsProtectWhatTheyCarry) {
    config_.shared_every = 100;
    config_.flush_at_close = false;
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
        if (redundancy == "partner")
            put_directory_in_place_of_part(1, {config_.name, {3, 1}, 2, false});
        else
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
