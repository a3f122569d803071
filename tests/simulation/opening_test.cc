// How long a session waits for the lock of its shared directory, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "session/cluster.h"
#include "simulation/virtual_executor.h"
#include "threads/worker.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::HasSubstr;

// Somebody holds the lock for that long. The machine sleeps meanwhile.
Status open_while(LockKind kind, std::chrono::seconds held, std::chrono::seconds sleep) {
    set_log_level(LogLevel::off);
    Status opened;
    VirtualExecutor executor(1, {.pause = 0.1, .most_steps = 1'000'000, .story = {}});
    executor.run([&] {
        Machines machines;
        const auto config = small_config();
        ASSERT_TRUE(machines.shared->make_directories(config.shared_dir).ok());
        auto lock = machines.shared->lock_directory(config.shared_dir, kind);
        ASSERT_TRUE(lock.ok());
        Worker holder("drain", {}, [&](const std::stop_token&) {
            sleep_for(held / 2);
            executor.jump(sleep);
            sleep_for(held / 2);
            lock->reset();
        });
        opened = Checkpointer::open(config, make_single_transport(), machines.local_of("m0"), machines.shared)
                     .status();
    });
    return opened;
}

TEST(OpeningTest, ASessionWaitsForAgentsThatFinishEpochs) {
    EXPECT_TRUE(open_while(LockKind::shared, 40s, 0s).ok());
    EXPECT_THAT(open_while(LockKind::shared, 90s, 0s).message(), HasSubstr("another session uses"));
}

TEST(OpeningTest, ASessionDoesNotWaitLongForAnotherOne) {
    EXPECT_THAT(open_while(LockKind::exclusive, 4s, 0s).message(), HasSubstr("another session uses"));
}

// As a laptop's lid, or a virtual machine that is moved.
TEST(OpeningTest, TheTimeThatAMachineSleepsDoesNotCount) {
    EXPECT_TRUE(open_while(LockKind::shared, 4s, 400s).ok());
}

}  // namespace
}  // namespace tailrace::internal
