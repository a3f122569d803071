// What closing a session does with an epoch that was kept in the node-local tier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "session/sample_program.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;

TEST(CloseTest, ClosingLeavesTheNewestEpochWhereItIsIfItIsToldTo) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    job.config.shared_every = 3;
    job.config.flush_at_close = false;
    run(job, [&](Checkpointer& session) {
        State state;
        for (uint64_t epoch = 1; epoch <= 2; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
        ASSERT_TRUE(session.close().ok());
        EXPECT_EQ(session.state(2)->state, EpochState::kept_local);
    });
    EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(job.config.files));
}

// The last epoch is whole on no rank, and the one before it is brought to the shared directory.
TEST(CloseTest, ClosingFlushesTheNewestEpochThatHasNotFailed) {
    set_log_level(LogLevel::off);
    for (const bool concurrent : {true, false}) {
        Machines machines;
        auto job = job_on(machines, hosts_of(2, 2));
        job.concurrent = concurrent;
        job.config.shared_every = 100;
        run(job, [&](Checkpointer& session) {
            State state;
            for (uint64_t epoch = 1; epoch <= 3; ++epoch) ASSERT_TRUE(save(session, state, epoch).ok());
            if (session.rank() == 3)
                (void)session.give_up(4, Status(Code::no_space, "not here"));
            else
                (void)save(session, state, 4);
            EXPECT_EQ(session.close().code(), Code::no_space);
            EXPECT_EQ(session.state(3)->state, EpochState::committed);
            EXPECT_EQ(session.state(4)->state, EpochState::failed);
        });
        EXPECT_THAT(shared_names(machines, job.config), testing::SizeIs(2 * job.config.files));
    }
    set_log_level(LogLevel::warning);
}

}  // namespace
}  // namespace tailrace::internal
