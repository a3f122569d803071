// Saves where ranks communicate only in collective calls (CollectiveBackground). Ranks are threads, storages
// are in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "doubles/memory_storage.h"
#include "session/sample_program.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;
using ::testing::Not;

// Rank 1 has saved epoch 3 before, and refuses it the second time. Rank 0 must neither wait for it nor take
// the epoch for saved.
TEST(CollectiveSaveTest, ARankThatRefusesASaveTakesPartInItAllTheSame) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 1));
    job.concurrent = false;
    job.config.queue_epochs = 1;  // so that the second save waits for room
    run(job, [&](Checkpointer& session) {
        State state;
        ASSERT_TRUE(save(session, state, 3).ok());
        if (session.rank() == 1) {
            EXPECT_EQ(save(session, state, 3).code(), Code::already_exists);
        } else {
            ASSERT_TRUE(save(session, state, 4).ok());
            const auto failed = session.wait(4, for_ever);  // it has ended, so no other rank is waited for
            EXPECT_EQ(failed.code(), Code::invalid_argument) << failed.to_string();
            EXPECT_THAT(failed.message(), HasSubstr("rank 1 did not save it while others did"));
        }
        ASSERT_TRUE(save(session, state, 5).ok());
        EXPECT_TRUE(session.wait(5, for_ever).ok());
        EXPECT_EQ(session.state(3)->state, EpochState::committed);
        expect_restored(session, std::nullopt, 5);
    });
}

// A rename takes its time.
class SlowNames final : public MemoryStorage {
  public:
    Status rename(const std::string& from, const std::string& to) override {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return MemoryStorage::rename(from, to);
    }
};

TEST(CollectiveSaveTest, AnEpochIsAnnouncedWhenItsFilesHaveTheirNames) {
    Machines machines;
    auto job = job_on(machines, hosts_of(2, 2));
    job.concurrent = false;
    job.config.files = 2;
    const auto shared = std::make_shared<SlowNames>();
    job.shared = shared;
    run(job, [&](Checkpointer& session) {
        State state;
        for (const uint64_t epoch : {1, 2}) {
            ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait(epoch, for_ever).ok());
            EXPECT_EQ(session.state(epoch)->state, EpochState::committed);
            for (const auto& file : *shared->list(job.config.shared_dir))
                EXPECT_THAT(file.name, Not(HasSubstr("unfinished"))) << "after epoch " << epoch;
        }
    });
}

}  // namespace
}  // namespace tailrace::internal
