// One session used from several threads of a rank: a reader beside a save, questions while it is closed, and
// calls after that.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "read/epoch_reader.h"
#include "session/sample_program.h"
#include "storage/forwarding_storage.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using namespace std::chrono_literals;

// Calls a function just before a part is taken over for a new epoch: it is renamed to an unfinished name.
class TakeOverStorage : public test::ForwardingStorage {
  public:
    using ForwardingStorage::ForwardingStorage;
    Status rename(const std::string& from, const std::string& to) override {
        if (before_take_over && !from.ends_with(".unfinished") && to.ends_with(".unfinished"))
            before_take_over(from);
        return inner().rename(from, to);
    }
    std::function<void(const std::string& from)> before_take_over;
};

// Without checksums a reader cannot tell that its part has become another epoch's.
TEST(ConcurrentUseTest, APartIsNotRecycledUnderAReaderThatIsBeingOpened) {
    Machines machines;
    machines.local_options.offer_map = true;
    auto job = job_on(machines, {"m"});
    auto storage = std::make_shared<TakeOverStorage>(machines.local_of("m"));
    job.local = [&](const std::string&) { return storage; };
    job.config.checksum = false;
    job.config.keep_local = 2;
    run(job, [&](Checkpointer& session) {
        State state;
        std::string taken;
        std::future<std::vector<std::byte>> read;
        std::promise<void> opened;
        uint64_t epoch = 0;
        storage->before_take_over = [&](const std::string& from) {
            if (!taken.empty()) return;
            taken = from;
            read = std::async(std::launch::async, [&] {
                auto reader = session.open_epoch(std::nullopt, epoch - 1, false);
                EXPECT_TRUE(!reader.ok() || (*reader)->manifest(0).ok());  // its file is open
                opened.set_value();
                std::vector<std::byte> bytes(newest_bytes);
                const RegionTarget target{"first", bytes};
                // The part is opened now, and read when the save is over.
                while (session.state(epoch)->state == EpochState::unknown) std::this_thread::sleep_for(1ms);
                if (!reader.ok() || !(*reader)->read_regions(0, std::span(&target, 1)).ok()) bytes.clear();
                EXPECT_TRUE(!reader.ok() || (*reader)->key().epoch == epoch - 2) << (*reader)->key().epoch;
                return bytes;
            });
            (void)opened.get_future().wait_for(300ms);  // where it waits for the save, it cannot come
        };
        for (epoch = 1; taken.empty() && epoch < 20; ++epoch) {
            ASSERT_TRUE(save(session, state, epoch).ok());
            ASSERT_TRUE(session.wait(epoch, for_ever).ok());
            if (!taken.empty()) break;
        }
        ASSERT_FALSE(taken.empty()) << "no part was recycled";
        const auto bytes = read.get();
        EXPECT_TRUE(bytes.empty() || bytes == content(epoch - 2, 0, 1, newest_bytes)) << "of " << taken;
    });
}

TEST(ConcurrentUseTest, StateAndWaitMayBeAskedWhileTheSessionIsClosed) {
    for (int round = 0; round < 20; ++round) {
        Machines machines;
        auto job = job_on(machines, hosts_of(1, 2));
        run(job, [&](Checkpointer& session) {
            State state;
            ASSERT_TRUE(save(session, state, 1).ok());
            std::atomic<bool> over = false;
            std::thread asking([&] {
                while (!over) {
                    EXPECT_TRUE(session.state(1).ok());
                    EXPECT_TRUE(session.wait(1, 1000ms).ok());
                    EXPECT_LE(session.agent_bytes(), job.config.buffers * job.config.buffer_bytes);
                }
            });
            EXPECT_TRUE(session.close().ok());
            over = true;
            asking.join();
        });
    }
}

TEST(ConcurrentUseTest, AClosedSessionIsRefusedWithoutTheOtherRanks) {
    Machines machines;
    run(job_on(machines, hosts_of(2, 2)), [&](Checkpointer& session) {
        EXPECT_TRUE(session.close().ok());
        if (session.rank() != 1) return;
        EXPECT_EQ(session.list().status().code(), Code::failed_state);
        EXPECT_EQ(session.restore(std::nullopt, {}).status().code(), Code::failed_state);
        EXPECT_EQ(session.open_epoch(std::nullopt, std::nullopt, false).status().code(), Code::failed_state);
    });
}

}  // namespace
}  // namespace tailrace::internal
