// A save in two steps: a copy that save takes, or that is dropped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "session/sample_program.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

Status capture(Checkpointer& session, State& state, uint64_t epoch) {
    fill(state, epoch, session.rank());
    put(session, state);
    return session.capture(epoch);
}

// The captured parts on all machines, for whatever epoch.
size_t captured_parts(Machines& machines, const Config& config) {
    size_t parts = 0;
    for (const auto& [host, storage] : machines.local) {
        const auto directories = storage->list(config.local_dir);
        if (!directories.ok()) continue;
        for (const auto& directory : *directories) {
            const auto files = storage->list(config.local_dir + "/" + directory.name);
            if (!files.ok()) continue;
            for (const auto& file : *files) parts += file.name.find(".capture") != std::string::npos;
        }
    }
    return parts;
}

TEST(TwoStepSaveTest, SaveTakesTheMemoryAsItWasWhenItWasCaptured) {
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(capture(session, state, 7).ok());
            EXPECT_EQ(session.state(7)->state, EpochState::unknown) << "nobody has heard of it";
            fill(state, 1000, session.rank());
            put(session, state);
            ASSERT_TRUE(session.save(7).ok());
            EXPECT_TRUE(session.wait(7, for_ever).ok());
            expect_restored(session, std::nullopt, 7);
            ASSERT_TRUE(save(session, state, 8).ok());
            EXPECT_TRUE(session.wait(8, for_ever).ok());
            EXPECT_TRUE(session.close().ok());
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(2 * job.config.files));
    }
}

TEST(TwoStepSaveTest, AnotherCaptureTakesThePlaceOfTheFirst) {
    Machines machines;
    const auto job = job_on(machines, hosts_of(2, 1));
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(capture(session, state, 5).ok());
        fill(state, 6, session.rank());
        put(session, state);
        ASSERT_TRUE(session.capture(5).ok());
        fill(state, 1000, session.rank());
        ASSERT_TRUE(session.save(5).ok());
        EXPECT_TRUE(session.wait(5, for_ever).ok());
        State wanted;
        fill(wanted, 6, session.rank());
        put(session, state = wanted);
        state.first.assign(state.first.size(), std::byte{0});
        ASSERT_TRUE(session.restore(5, {}).ok());
        EXPECT_TRUE(state.first == wanted.first && state.second == wanted.second);
    });
}

TEST(TwoStepSaveTest, ACaptureThatOneRankGivesUpFailsOnEveryRankAndLeavesNothing) {
    set_log_level(LogLevel::off);
    for (const bool concurrent : {true, false}) {
        SCOPED_TRACE(concurrent);
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        job.config.keep_local = 1;
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 1).ok());
            ASSERT_TRUE(capture(session, state, 2).ok());
            const Status odd(Code::aborted, "the program did not like it");
            if (session.rank() == 3)
                EXPECT_EQ(session.give_up(2, odd).message(), odd.message());
            else
                EXPECT_TRUE(session.save(2).ok());
            const auto failed = session.wait(2, for_ever);
            EXPECT_EQ(failed.code(), odd.code());
            EXPECT_THAT(failed.message(), HasSubstr(odd.message()));
            expect_restored(session, std::nullopt, 1);
            ASSERT_TRUE(save(session, state, 3).ok());
            EXPECT_TRUE(session.wait(3, for_ever).ok());
            expect_restored(session, std::nullopt, 3);
            EXPECT_FALSE(session.close().ok());
        });
        EXPECT_EQ(captured_parts(machines, job.config), 4u) << "of epoch 3";
    }
    set_log_level(LogLevel::warning);
}

TEST(TwoStepSaveTest, ACaptureThatIsNeverSavedIsGoneAfterTheSession) {
    for (const bool saves_another : {false, true}) {
        SCOPED_TRACE(saves_another);
        Machines machines;
        const auto job = job_on(machines, hosts_of(2, 2));
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(capture(session, state, 3).ok());
            if (saves_another) {
                ASSERT_TRUE(save(session, state, 4).ok());
            }
            EXPECT_TRUE(session.close().ok());
            EXPECT_EQ(session.capture(5).code(), Code::failed_state);
        });
        EXPECT_EQ(captured_parts(machines, job.config), saves_another ? 4u : 0u);
    }
}

TEST(TwoStepSaveTest, ACopyThatIsHeldIsNeitherListedNorRestored) {
    Machines machines;
    run(job_on(machines, hosts_of(2, 2)), [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 1).ok());
        ASSERT_TRUE(session.wait(1, for_ever).ok());
        ASSERT_TRUE(capture(session, state, 2).ok());
        const auto listed = session.list();
        ASSERT_TRUE(listed.ok()) << listed.status().to_string();
        EXPECT_THAT(*listed, testing::SizeIs(1));
        expect_restored(session, std::nullopt, 1);
        ASSERT_TRUE(session.save(2).ok());
        expect_restored(session, std::nullopt, 2);
        EXPECT_TRUE(session.close().ok());
    });
}

// Another rank saves the copy that it holds, which is of another time.
TEST(TwoStepSaveTest, FilesAreNotAddedToACopy) {
    set_log_level(LogLevel::off);
    Machines machines;
    run(job_on(machines, hosts_of(2, 1)), [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(capture(session, state, 3).ok());
        const std::vector<std::byte> bytes(10);
        RegionSource more;
        more.name = "more";
        more.memory = bytes;
        const Status saved = session.rank() == 0 ? session.save_with(3, {more}) : session.save(3);
        EXPECT_EQ(saved.code(), session.rank() == 0 ? Code::failed_state : Code::ok);
        EXPECT_THAT(session.wait(3, for_ever).message(),
                    HasSubstr("was captured before its files were saved"));
        (void)session.close();
    });
    set_log_level(LogLevel::warning);
}

TEST(TwoStepSaveTest, ACaptureThatFailsLeavesTheNumberFree) {
    Machines machines;
    const auto job = job_on(machines, hosts_of(2, 1));
    run(job, [&](Checkpointer& session) {
        State state;
        auto& local = *machines.local_of("m" + std::to_string(session.rank()));
        ASSERT_TRUE(capture(session, state, 3).ok());
        local.set_capacity(0);
        EXPECT_EQ(session.capture(3).code(), Code::no_space);
        EXPECT_EQ(session.capture(UINT64_MAX).code(), Code::invalid_argument);
        local.set_capacity(UINT64_MAX);
        ASSERT_TRUE(capture(session, state, 3).ok());
        ASSERT_TRUE(session.save(3).ok());
        EXPECT_TRUE(session.wait(3, for_ever).ok());
        EXPECT_EQ(session.capture(3).code(), Code::already_exists);
        EXPECT_EQ(session.capture(2).code(), Code::failed_state);
        expect_restored(session, std::nullopt, 3);
        EXPECT_TRUE(session.close().ok());
    });
}

}  // namespace
}  // namespace tailrace::internal
