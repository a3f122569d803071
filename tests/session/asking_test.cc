// should_save and should_stop with ranks as threads: that they fire on all ranks at the same call, whoever
// was asked, whoever is behind, and that nobody waits for ever when somebody leaves or the transport fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <random>

#include "base/log.h"
#include "session/sample_program.h"
#include "threads/executor.h"
#include "when/halt_file.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

void pause(uint64_t microseconds) {
    sleep_for(std::chrono::microseconds(microseconds));
}

// The call at which should_stop says yes on this rank; 0: at none of `most`.
uint64_t asked_until_stop(Checkpointer& session, uint64_t most, std::string* why = nullptr,
                          const std::function<void(uint64_t)>& between = nullptr) {
    for (uint64_t call = 1; call <= most; ++call) {
        if (between) between(call);
        const auto stop = session.should_stop();
        if (!stop.ok()) {
            ADD_FAILURE() << "rank " << session.rank() << ", call " << call << ": "
                          << stop.status().message();
            return 0;
        }
        if (!*stop) continue;
        if (why != nullptr) *why = **stop;
        return call;
    }
    return 0;
}

class AskingTest : public testing::TestWithParam<bool> {
  protected:
    // Six ranks on three machines, each its own node's or node-mate's; below THREAD_MULTIPLE or not.
    Job job(int nodes = 3, int per_node = 2) {
        auto job = job_on(machines, hosts_of(nodes, per_node));
        job.concurrent = GetParam();
        return job;
    }
    // Whether all ranks stopped at the same call; returns that.
    static uint64_t same(const std::vector<uint64_t>& calls) {
        for (const uint64_t call : calls) EXPECT_EQ(call, calls[0]);
        return calls[0];
    }
    Machines machines;
};
INSTANTIATE_TEST_SUITE_P(Backgrounds, AskingTest, testing::Values(true, false),
                         [](const auto& concurrent) { return concurrent.param ? "Messages" : "Collective"; });

TEST_P(AskingTest, AnyRanksWishToStopIsHeardByAllAtTheSameCall) {
    for (int asked = 0; asked < 6; ++asked) {
        SCOPED_TRACE(asked);
        machines = Machines();
        std::vector<uint64_t> at(6);
        std::vector<std::string> why(6);
        run(job(), [&](Checkpointer& session) {
            const auto rank = static_cast<size_t>(session.rank());
            at[rank] = asked_until_stop(session, 10'000, &why[rank], [&](uint64_t call) {
                pause(500);
                if (call == 5 && session.rank() == asked) session.ask_to_stop("signal TERM");
            });
            EXPECT_EQ(session.should_stop().value(), why[rank]) << "it stays so";
            EXPECT_TRUE(session.close().ok());
        });
        EXPECT_GE(same(at), 5u);
        for (const auto& reason : why) EXPECT_EQ(reason, "signal TERM");
    }
}

TEST_P(AskingTest, AProgramSavesOnceMoreAndStops) {
    run(job(), [&](Checkpointer& session) {
        State state;
        uint64_t step = 0;
        while (true) {
            ++step;
            const auto stop = session.should_stop();
            ASSERT_TRUE(stop.ok());
            if (*stop) break;
            if (step == 3 && session.rank() == 4) session.ask_to_stop("a signal");
            pause(300);
        }
        EXPECT_TRUE(save(session, state, step).ok());
        const auto closed = session.close();
        EXPECT_TRUE(closed.ok()) << closed.message();  // all ranks have saved the same step
    });
}

TEST_P(AskingTest, EveryNthCallIsASaveWithoutAMessage) {
    auto counted = job();
    counted.config.save_every = 7;
    run(counted, [&](Checkpointer& session) {
        for (uint64_t call = 1; call <= 50; ++call)
            EXPECT_EQ(session.should_save().value(), call % 7 == 0) << call;
        EXPECT_TRUE(session.close().ok());
    });
}

TEST_P(AskingTest, WithoutASettingItIsNeverTimeToSave) {
    run(job(), [&](Checkpointer& session) {
        for (uint64_t call = 1; call <= 200; ++call) EXPECT_FALSE(session.should_save().value());
        EXPECT_TRUE(session.close().ok());
    });
}

TEST_P(AskingTest, TheIntervalFiresAgainAndAgainOnAllRanksAtOnce) {
    auto timed = job();
    timed.config.save_interval_ms = 20;
    std::vector<std::vector<uint64_t>> saves(6);
    run(timed, [&](Checkpointer& session) {
        State state;
        for (uint64_t call = 1; call <= 400; ++call) {
            pause(static_cast<uint64_t>(session.rank() % 3) * 300 + 500);
            const auto yes = session.should_save();
            ASSERT_TRUE(yes.ok()) << yes.status().message();
            if (!*yes) continue;
            saves[static_cast<size_t>(session.rank())].push_back(call);
            EXPECT_TRUE(save(session, state, call).ok());
        }
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_GE(saves[0].size(), 2u);
    for (const auto& of_rank : saves) EXPECT_EQ(of_rank, saves[0]);
}

TEST_P(AskingTest, TheEndOfTheJobIsAReasonToStop) {
    auto ending = job(2, 1);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    ending.config.job_end =
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count() + 1000);
    ending.config.stop_before_ms = 1001 * 1000;
    std::vector<uint64_t> at(2);
    std::vector<std::string> why(2);
    run(ending, [&](Checkpointer& session) {
        const auto rank = static_cast<size_t>(session.rank());
        at[rank] = asked_until_stop(session, 100, &why[rank]);
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_GT(same(at), 0u);
    EXPECT_THAT(why[1], HasSubstr("the job ends in"));
}

TEST_P(AskingTest, AHaltFileIsObeyedOnceByAllRanks) {
    auto halted = job();
    ASSERT_TRUE(machines.shared->make_directories(halted.config.shared_dir).ok());
    const Halt order{.after_saves = 2, .id = 5, .by = "anna"};
    ASSERT_TRUE(write_halt(*machines.shared, halted.config.shared_dir, order).ok());
    std::vector<uint64_t> at(6);
    std::vector<std::string> why(6);
    std::vector<uint64_t> saves(6, 0);
    run(halted, [&](Checkpointer& session) {
        const auto rank = static_cast<size_t>(session.rank());
        State state;
        at[rank] = asked_until_stop(session, 100'000, &why[rank], [&](uint64_t call) {
            pause(500);
            if (call % 50 != 0) return;
            EXPECT_TRUE(save(session, state, ++saves[rank]).ok());
        });
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_GE(same(at), 100u);
    EXPECT_EQ(why[3], "halted by anna after 2 saves");
    EXPECT_FALSE(read_halt(*machines.shared, halted.config.shared_dir).value()) << "the next run goes on";
}

TEST_P(AskingTest, ASessionClearsAwayWhatADeadOneLeftOfAHaltFile) {
    auto halted = job(1, 1);
    const auto& directory = halted.config.shared_dir;
    ASSERT_TRUE(machines.shared->make_directories(directory).ok());
    ASSERT_TRUE(write_halt(*machines.shared, directory, {.now = true, .id = 5}).ok());
    ASSERT_TRUE(machines.shared
                    ->rename(join_path(directory, "tailrace.halt"),
                             join_path(directory, "tailrace.halt.obeyed.00000000.0000000000000001"))
                    .ok());
    run(halted, [&](Checkpointer& session) { EXPECT_TRUE(session.close().ok()); });
    EXPECT_TRUE(read_halt(*machines.shared, directory).value()) << "the dead one had obeyed another order";
    EXPECT_EQ(machines.shared->list(directory)->size(), 1u);
}

TEST_P(AskingTest, AHaltFileIsNoEpoch) {
    auto halted = job(1, 1);
    ASSERT_TRUE(machines.shared->make_directories(halted.config.shared_dir).ok());
    halted.config.name = "tailrace";
    run(halted, [&](Checkpointer& session) {
        State state;
        EXPECT_TRUE(save(session, state, 1).ok());
        EXPECT_TRUE(session.close().ok());
    });
    ASSERT_TRUE(write_halt(*machines.shared, halted.config.shared_dir, {.at_unix = 250'000'000'000}).ok());
    run(halted, [&](Checkpointer& session) {
        expect_restored(session, std::nullopt, 1);
        EXPECT_FALSE(session.should_stop().value());
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_TRUE(read_halt(*machines.shared, halted.config.shared_dir).value()) << "not due, so it stays";
}

// ---- ranks that are apart ------------------------------------------------------------------------------

TEST_P(AskingTest, AloneTheAnswerIsThereAtOnce) {
    run(job(1, 1), [&](Checkpointer& session) {
        EXPECT_FALSE(session.should_stop().value());
        session.ask_to_stop("now");
        uint64_t calls = 1;
        while (!session.should_stop().value()) {
            pause(1000);
            ASSERT_LT(++calls, 1000u);
        }
        EXPECT_TRUE(session.close().ok());
    });
}

class RanksApartTest : public AskingTest {};
INSTANTIATE_TEST_SUITE_P(Backgrounds, RanksApartTest, testing::Values(true),
                         [](const auto&) { return "Messages"; });

// A rank that is far behind, and has no thread of its own, answers nobody. The others go on as far as rank 0
// has decided, and nobody waits for it.
TEST_P(RanksApartTest, NobodyWaitsForARankThatLags) {
    std::vector<uint64_t> at(6);
    std::atomic<int> stopped{0};
    run(job(), [&](Checkpointer& session) {
        const auto rank = static_cast<size_t>(session.rank());
        at[rank] = asked_until_stop(session, 10'000, nullptr, [&](uint64_t call) {
            pause(500);
            if (rank == 2 && call == 10) session.ask_to_stop("a signal");
            // The laggards come to their fourth call when all others have stopped.
            if ((rank == 3 || rank == 5) && call == 4)
                while (stopped < 4) pause(1000);
        });
        ++stopped;
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_GE(same(at), 10u);
}

// Ranks that are ahead wait in the program's own communication for one that lags: what a protocol that stops
// ranks until all have answered would never end.
TEST_P(RanksApartTest, ARankAheadMayWaitForOneThatIsBehind) {
    std::vector<std::atomic<uint64_t>> progress(6);
    std::vector<uint64_t> at(6);
    run(job(), [&](Checkpointer& session) {
        const auto rank = static_cast<size_t>(session.rank());
        at[rank] = asked_until_stop(session, 10'000, nullptr, [&](uint64_t call) {
            progress[rank] = call;
            if (rank == 0) pause(300);
            if (rank == 4 && call == 10) session.ask_to_stop("a signal");
            // Each rank needs every eighth step of its left neighbour.
            if (call % 8 == 0 && rank > 0)
                while (progress[rank - 1] < call) pause(100);
        });
        progress[rank] = UINT64_MAX;
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_GE(same(at), 10u);
}

void play(uint64_t seed, Machines& machines) {
    SCOPED_TRACE(testing::Message() << "TAILRACE_SEED=" << seed);
    std::mt19937_64 random(seed);
    const int nodes = 1 + static_cast<int>(random() % 20), per_node = 1 + static_cast<int>(random() % 3);
    auto job = job_on(machines, hosts_of(nodes, per_node));
    job.concurrent = random() % 5 != 0;
    job.config.save_interval_ms = random() % 3 == 0 ? 0 : 1 + random() % 20;
    job.config.save_every = random() % 3 == 0 ? static_cast<uint32_t>(1 + random() % 30) : 0;
    const auto ranks = static_cast<size_t>(nodes * per_node);
    const auto asked = static_cast<int>(random() % ranks);
    const uint64_t asked_at = 1 + random() % 60, slowest = random() % 3000, of_seed = random();
    std::vector<std::pair<uint64_t, std::vector<uint64_t>>> heard(ranks);  // stop, saves
    run(job, [&](Checkpointer& session) {
        std::mt19937_64 own(of_seed + static_cast<uint64_t>(session.rank()));
        auto& [stop, saves] = heard[static_cast<size_t>(session.rank())];
        for (uint64_t call = 1; call < 100'000; ++call) {
            if (own() % 4 == 0) pause(own() % (slowest + 1));
            if (call == asked_at && session.rank() == asked) session.ask_to_stop("a signal");
            const auto save = session.should_save();
            ASSERT_TRUE(save.ok()) << save.status().message();
            if (*save) saves.push_back(call);
            const auto why = session.should_stop();
            ASSERT_TRUE(why.ok()) << why.status().message();
            if (!*why) continue;
            stop = call;
            break;
        }
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_GE(heard[0].first, asked_at);
    for (const auto& of_rank : heard) EXPECT_EQ(of_rank, heard[0]);
}

TEST_P(RanksApartTest, AtRandomTimesAllRanksHearTheSame) {
    if (const char* replay = std::getenv("TAILRACE_SEED"))
        return play(std::strtoull(replay, nullptr, 10), machines);
    const uint64_t first = std::random_device{}();
    std::cout << "seeds " << first << " to " << first + 29 << " (TAILRACE_SEED=n replays one)\n";
    for (uint64_t seed = first; seed < first + 30 && !HasFailure(); ++seed) {
        machines = Machines();
        play(seed, machines);
    }
}

// ---- the end -------------------------------------------------------------------------------------------

TEST_P(RanksApartTest, WhoWaitsForRank0HearsThatItHasClosed) {
    std::atomic<int> refused{0};
    run(job(), [&](Checkpointer& session) {
        for (int call = 0; call < 100 && session.rank() != 0; ++call) {
            const auto stop = session.should_stop();
            if (stop.ok()) continue;
            EXPECT_EQ(stop.status().code(), Code::failed_state);
            EXPECT_THAT(stop.status().message(), HasSubstr("rank 0 has closed"));
            ++refused;
            break;
        }
        EXPECT_TRUE(session.close().ok());
    });
    EXPECT_EQ(refused, 5);
}

// A post of each rank in turn fails. Ranks get a failure or an answer, the answers are the same, and nobody
// waits for ever. (tests/simulation has ranks that can send nothing at all.)
TEST_P(RanksApartTest, ATransportThatFailsIsAFailureAndNoHang) {
    set_log_level(LogLevel::off);
    for (int broken = 0; broken < 6; ++broken)
        for (const uint64_t from : {0, 3, 20}) {
            SCOPED_TRACE(testing::Message() << "rank " << broken << " from its post " << from);
            machines = Machines();
            auto breaking = job();
            breaking.breaks = [&](int rank, TransportCall, uint64_t calls) {
                return rank == broken && calls == from;
            };
            std::mutex mutex;
            std::map<uint64_t, bool> answers;
            std::atomic<int> failed{0};
            run(breaking, [&](Checkpointer& session) {
                for (uint64_t call = 1; call <= 2000; ++call) {
                    pause(500);
                    if (call == 4) session.ask_to_stop("a signal");
                    const auto stop = session.should_stop();
                    if (!stop.ok()) {
                        ++failed;
                        EXPECT_TRUE(stop.status().code() == Code::transport ||
                                    stop.status().code() == Code::failed_state)
                            << stop.status().to_string();
                        break;
                    }
                    const std::lock_guard lock(mutex);
                    const auto [known, is_new] = answers.emplace(call, stop->has_value());
                    EXPECT_EQ(known->second, stop->has_value()) << "call " << call;
                    if (stop->has_value()) break;
                }
                (void)session.close();
            });
        }
    set_log_level(LogLevel::warning);
}

TEST_P(RanksApartTest, AClosedSessionAnswersNobody) {
    run(job(1, 2), [&](Checkpointer& session) {
        EXPECT_TRUE(session.close().ok());
        EXPECT_EQ(session.should_stop().status().code(), Code::failed_state);
        EXPECT_EQ(session.should_save().status().code(), Code::failed_state);
    });
}

}  // namespace
}  // namespace tailrace::internal
