// Sessions that lose nodes: what was protected is restored, and reaches the shared directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "base/log.h"
#include "session/sample_program.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> local_names(Machines& machines, const std::string& host) {
    std::vector<std::string> names;
    const auto directories = machines.local_of(host)->list("/local");
    if (!directories.ok()) return names;
    for (const auto& directory : *directories) {
        const auto entries = machines.local_of(host)->list("/local/" + directory.name);
        if (entries.ok())
            for (const auto& entry : *entries) names.push_back(entry.name);
    }
    return names;
}

struct Case {
    std::string redundancy;
    bool concurrent = true;
    friend std::ostream& operator<<(std::ostream& out, const Case& tried) {
        return out << tried.redundancy << (tried.concurrent ? " in messages" : " in collectives");
    }
};
class RedundancyTest : public ::testing::TestWithParam<Case> {
  protected:
    Job job(std::vector<std::string> hosts, uint32_t shared_every = 100) {
        auto made = job_on(machines_, std::move(hosts));
        made.config.redundancy = GetParam().redundancy;
        made.config.redundancy_set = 4;
        made.config.flush_at_close = false;
        made.config.shared_every = shared_every;  // epoch 1 goes to the shared directory, later ones stay
        made.config.keep_local = 3;
        made.concurrent = GetParam().concurrent;
        return made;
    }
    void lose(const std::string& host) { machines_.local.erase(host); }
    // Epochs 1 to 3; only 1 is committed.
    void save_three() {
        run(job(hosts_of(4, 2)), [](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait_all(for_ever).ok());
        });
    }
    Machines machines_;
};

TEST_P(RedundancyTest, AProtectedEpochIsRestoredAndCommittedWithoutTheLostNode) {
    save_three();
    lose("m2");
    const std::vector<std::string> later = {"m0", "m0", "m1", "m1", "spare", "spare", "m3", "m3"};
    const auto again = job(later);
    run(again, [](Checkpointer& session) { expect_restored(session, std::nullopt, 3); });
    EXPECT_THAT(shared_names(machines_, again.config), Contains(HasSubstr("e000000003.r0001.1of2.tailrace")));
}

TEST_P(RedundancyTest, EveryRankHearsWhatAnEpochSurvives) {
    auto some = job(hosts_of(4, 2), 2);
    some.config.redundancy_every = 2;
    const uint32_t losses = GetParam().redundancy == "rs:2" ? 2 : 1;
    run(some, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 4; ++epoch) {
            ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait(epoch, for_ever).ok());
            const auto info = session.state(epoch);
            EXPECT_EQ(info->state, epoch % 2 == 1 ? EpochState::committed : EpochState::kept_local);
            EXPECT_EQ(info->losses_survived, epoch % 2 == 1 ? losses : 0u) << epoch;
        }
    });
    some.config.shared_every = 100;
    some.config.redundancy_every = 1;
    run(some, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 5; epoch <= 6; ++epoch) {
            ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait(epoch, for_ever).ok());
            EXPECT_EQ(session.state(epoch)->losses_survived, losses) << "kept local, and ended after that";
        }
    });
}

TEST_P(RedundancyTest, AnotherLayoutFindsTheLostPartsToo) {
    save_three();
    lose("m1");
    const std::vector<std::string> later = {"m3", "m3", "m3", "m0", "m0", "m2", "m2", "m0"};
    run(job(later), [](Checkpointer& session) { expect_restored(session, std::nullopt, 3); });
}

// With partner, every second node may go.
TEST_P(RedundancyTest, LosingWhatTheLevelAllowsLosesNothing) {
    save_three();
    lose("m1");
    if (GetParam().redundancy != "xor") lose("m3");
    run(job(hosts_of(4, 2)), [](Checkpointer& session) {
        expect_restored(session, 3, 3);
        expect_restored(session, std::nullopt, 3);
    });
}

// One node more than that, of those that matter: with partner, a node and the one that keeps its copy.
TEST_P(RedundancyTest, LosingMoreThanTheLevelAllowsFallsBackAndSaysWhatIsMissing) {
    const bool two = GetParam().redundancy == "rs:2";
    const std::string missing =
        "lost are node 1 (ranks 2 to 3, and what it kept for others), node 2 (ranks 4 to 5, and what it kept "
        "for others)" +
        std::string(two ? ", node 3 (ranks 6 to 7, and what it kept for others)" : "") +
        "; a set of 4 nodes with " + GetParam().redundancy + " survives the loss of " +
        (two ? "2 nodes" : "1 node");
    for (const uint32_t shared_every : {100u, 1u}) {
        SCOPED_TRACE(shared_every);
        machines_ = {};
        run(job(hosts_of(4, 2), shared_every), [](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait_all(for_ever).ok());
        });
        for (const auto* host : {"m1", "m2"}) lose(host);
        if (two) lose("m3");
        std::string said;
        set_log_callback([&](LogLevel, std::string_view line) { said += line; });
        const bool in_shared = shared_every == 1;
        run(job(hosts_of(4, 2), shared_every), [&](Checkpointer& session) {
            // The next tier, or the newest older epoch.
            expect_restored(session, std::nullopt, in_shared ? 3 : 1);
            if (in_shared) return;
            State state;
            put(session, state);
            EXPECT_FALSE(session.restore(3, {}).ok());
        });
        set_log_callback(nullptr);
        EXPECT_EQ(said.find("epoch 3 of run 1 cannot be completed from what nodes keep for each other: " +
                            missing) != said.npos,
                  !in_shared)
            << said;
    }
}

TEST_P(RedundancyTest, ObjectsGoWithThePartsOfTheirEpoch) {
    auto few = job(hosts_of(4, 1));
    few.config.keep_local = 2;
    run(few, [](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 6; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    const auto count = [&](const std::string& end) {
        const auto names = local_names(machines_, "m1");
        return std::count_if(names.begin(), names.end(),
                             [&](const auto& name) { return name.ends_with(end); });
    };
    EXPECT_LE(count(".protect"), 3);
    EXPECT_EQ(count(".protect"), count(".capture"));
    EXPECT_EQ(count(".unfinished"), 0);
    EXPECT_EQ(count(".spare"), 0);
    // A later session removes what it finds of older runs with the first epochs that replace them.
    few.config.redundancy = "none";
    run(few, [](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 7; epoch <= 12; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    EXPECT_EQ(count(".protect"), 0);
}

TEST_P(RedundancyTest, RedundancyEveryLeavesOthersAlone) {
    auto some = job(hosts_of(4, 1), 1);
    some.config.redundancy_every = 3;
    run(some, [](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 4; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
    });
    const auto names = local_names(machines_, "m1");
    EXPECT_THAT(names, Contains("job.e000000004.r0001.n00001.protect"));
    EXPECT_THAT(names, Not(Contains("job.e000000003.r0001.n00001.protect")));
}

TEST_P(RedundancyTest, ANodeWithoutSpaceForItLosesNothingElse) {
    run(job(hosts_of(4, 1), 1), [this](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        if (session.rank() == 3)  // room for the part, but not for the object
            machines_.local_of("m3")->set_capacity(machines_.local_of("m3")->used_bytes() + 85'000);
        ASSERT_TRUE(save(session, state, 2).ok());
        ASSERT_TRUE(session.wait_all(for_ever).ok());
        EXPECT_EQ(session.state(1)->losses_survived, GetParam().redundancy == "rs:2" ? 2u : 1u);
        EXPECT_EQ(session.state(2)->losses_survived, 0u);
    });
    EXPECT_THAT(shared_names(machines_, small_config()),
                Contains(HasSubstr("e000000002.r0001.1of2.tailrace")));
    EXPECT_THAT(local_names(machines_, "m0"), Not(Contains(HasSubstr("e000000002.r0001.n"))));
}

// Its nodes wait for its tables, and must hear that these will not come.
TEST_P(RedundancyTest, AnEpochThatANodeNeverSavesHoldsNobodyUp) {
    if (!GetParam().concurrent) return;  // there save is collective, and says so itself
    run_job(job(hosts_of(4, 1), 1), [](int rank, Checkpointer* session, const Status& opened) {
        ASSERT_NE(session, nullptr) << opened.to_string();
        State state;
        ASSERT_TRUE(save(*session, state, 1).ok());
        if (rank != 2) {
            ASSERT_TRUE(save(*session, state, 2).ok());
        }
        EXPECT_THAT(session->close().message(), HasSubstr("not every rank saved it"));
    });
    EXPECT_THAT(local_names(machines_, "m0"), Not(Contains(HasSubstr("e000000002.r0001.n"))));
}

INSTANTIATE_TEST_SUITE_P(Levels, RedundancyTest,
                         ::testing::Values(Case{"partner", true}, Case{"xor", true}, Case{"rs:2", true},
                                           Case{"partner", false}, Case{"xor", false}, Case{"rs:2", false}),
                         [](const auto& tried) {
                             auto name = tried.param.redundancy +
                                         (tried.param.concurrent ? "InMessages" : "InCollectives");
                             std::erase(name, ':');
                             return name;
                         });

}  // namespace
}  // namespace tailrace::internal
