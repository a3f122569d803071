// Virtual time carries costs: a flush takes as long as the network and the file system that are described.
#include <gtest/gtest.h>

#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "session/cluster.h"
#include "simulation/network.h"
#include "simulation/timed_storage.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

// Virtual seconds from the end of save until the epoch is committed: 8 nodes, 4 MiB each, one file, one
// leader.
double flush_seconds(double link, double server) {
    VirtualExecutor executor(1, {});
    double seconds = 0;
    executor.run([&] {
        Machines machines;
        Job job = job_on(machines, hosts_of(8, 1));
        job.shared =
            timed(machines.shared, std::make_shared<Server>(executor, ServerCosts{20us, 0us, server}));
        job.config.files = 1;
        job.config.leaders_per_file = 1;
        job.config.buffer_bytes = 256 * KiB;
        job.config.buffers = 16;
        std::unique_ptr<Network> network;
        job.connect = [&](const auto& hosts, bool concurrent) {
            network = std::make_unique<Network>(executor, hosts, NetworkCosts{10us, 0us, link}, concurrent);
            return network->transports();
        };
        run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
            ASSERT_NE(session, nullptr) << opened.to_string();
            const std::vector<std::byte> state(4 * MiB, std::byte{1});
            ASSERT_TRUE(
                session->register_region("state", const_cast<std::byte*>(state.data()), state.size()).ok());
            ASSERT_TRUE(session->save(1).ok());
            const auto saved = SteadyClock::now();
            ASSERT_TRUE(session->wait(1, 0ms).ok());
            if (rank == 0) seconds = std::chrono::duration<double>(SteadyClock::now() - saved).count();
        });
    });
    return seconds;
}

TEST(CostsTest, AFlushTakesWhatItsNarrowestPlaceTakes) {
    set_log_level(LogLevel::error);
    const double all = 32.0 * MiB, sent = 28.0 * MiB;
    const double slow_link = flush_seconds(1e8, 1e10), slow_server = flush_seconds(1e10, 1e8);
    std::cout << "link 100 MB/s: " << slow_link << " s of virtual time, at least " << sent / 1e8
              << " s; file system 100 MB/s: " << slow_server << " s, at least " << all / 1e8 << " s\n";
    EXPECT_GE(slow_link, sent / 1e8);
    EXPECT_LT(slow_link, 1.15 * sent / 1e8);
    EXPECT_GE(slow_server, all / 1e8);
    EXPECT_LT(slow_server, 1.15 * all / 1e8);
    EXPECT_EQ(slow_link, flush_seconds(1e8, 1e10)) << "the same every time";
}

}  // namespace
}  // namespace tailrace::internal
