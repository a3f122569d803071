// Memory that cannot be had, at every allocation of an open, a save, its flush, a restore, a list, a close,
// and of should_save and should_stop: the n-th fails, for every n, alone or with many that follow. Nothing
// may end the process or stand still, the calls fail with a sentence or succeed, and whatever was reported as
// committed is there for the next session, byte for byte.
//
// Each n is one simulated job, the same up to its failure. A child process runs many of them and reports how
// far it came, so one that ends it is found.
//
// TAILRACE_ALLOCATION=n runs a single one, in this process.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <set>

#include "base/caught.h"
#include "base/log.h"
#include "session/cluster.h"
#include "simulation/failing_allocator.h"
#include "simulation/network.h"
#include "simulation/timed_storage.h"
#include "simulation/virtual_executor.h"
#include "threads/executor.h"

namespace tailrace::internal {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

// During which calls the allocations fail. `save` lasts until the epochs have ended, `capture` only as long
// as the call.
enum class Part { none, open, save, capture, restore, ask, close };

// `many`: several writers, and a record. `large`: a region that two threads copy as well.
enum class Setup { plain, many, large };

struct Case {
    const char* name;
    int ranks;
    bool concurrent;
    Part part;
    uint64_t failures;  // how many allocations fail, one after the other
    const char* redundancy = "none";
    Setup setup = Setup::plain;
};

class OutOfMemory {
  public:
    explicit OutOfMemory(const Case& tried)
        : tried_(tried),
          ranks_(tried.ranks),
          region_bytes_(tried.setup == Setup::large ? 16 << 20 : 40'000) {}

    // Runs a job that saves two epochs and one that restores, and returns how many allocations the part that
    // is to fail has.
    uint64_t run(uint64_t n) {
        const Part part = tried_.part;
        memory_fails_ = n != 0;
        FailingAllocator::begin(n, tried_.failures);
        VirtualExecutor executor(1, {.pause = 0.05, .most_steps = 2'000'000, .story = {}});
        executor.run([&] {
            const VirtualExecutor::OwnWork own;
            Machines machines;
            save_two(executor, machines, part);
            const bool restored = restore(executor, machines, part);
            if ((part == Part::open || part == Part::restore) && !restored &&
                !restore(executor, machines, Part::none)) {
                ADD_FAILURE() << "nothing is restored, although memory is to be had again";
            }
        });
        return FailingAllocator::allocations();
    }

  private:
    void save_two(VirtualExecutor& executor, Machines& machines, Part armed) {
        std::unique_ptr<Network> network;
        const Job job = job_of(executor, machines, network);
        int ready = 0;
        run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
            ASSERT_NE(session, nullptr) << opened.to_string();
            std::vector<std::byte> state(region_bytes_);
            ASSERT_TRUE(session->register_region("state", state.data(), state.size()).ok());
            // From here on, once all are here.
            if (++ready == ranks_) FailingAllocator::count(armed == Part::save);
            for (const uint64_t epoch : {1, 2}) {
                state = content_of(epoch, rank);
                const Status updated =
                    catching([&] { return session->update_region("state", state.data(), state.size()); });
                if (armed == Part::capture) FailingAllocator::count(epoch == 1);
                const Status saved = catching([&] { return session->save(epoch); });
                if (armed == Part::capture) FailingAllocator::count(false);
                told(rank, updated);
                told(rank, saved);
                told(rank, catching([&] {
                         return epoch == 1 ? session->wait_all(30s) : session->wait(epoch, 30s);
                     }));
                const VirtualExecutor::OwnWork own;
                const auto info = session->state(epoch);
                if (info.ok() && info->state == EpochState::committed)
                    committed_ = std::max(committed_, epoch);
            }
            if (--ready == 0) FailingAllocator::count(false);
            if (armed == Part::ask) together([&] { ask(*session, rank); });
            const auto close = [&] { told(rank, catching([&] { return session->close(); })); };
            if (armed == Part::close)
                together(close);
            else
                close();
        });
        FailingAllocator::count(false);
    }

    // Memory fails from when all ranks have come here until all have done it.
    void together(const std::function<void()>& work) {
        for (++at_work_; at_work_ < ranks_;) sleep_for(1ms);
        FailingAllocator::count(true);
        work();
        if (++done_ == ranks_) FailingAllocator::count(false);
    }

    void ask(Checkpointer& session, int rank) {
        for (int call = 0; call < 4; ++call) {
            told(rank, catching([&] { return session.should_save().status(); }));
            told(rank, catching([&] { return session.should_stop().status(); }));
        }
    }

    // Whether all ranks have restored.
    bool restore(VirtualExecutor& executor, Machines& machines, Part armed) {
        machines.shared->process_death();
        for (auto& [host, storage] : machines.local) storage->process_death();
        std::unique_ptr<Network> network;
        Job job = job_of(executor, machines, network);
        int arrived = 0, ended = 0, open = 0, ready = 0, whole = 0;
        // From here on, once all are here.
        if (armed == Part::open)
            job.change_config = [&](int, Config&) {
                for (++arrived; arrived < ranks_;) sleep_for(1ms);
                FailingAllocator::count(true);
            };
        run_job(job, [&](int rank, Checkpointer* session, const Status& opened) {
            for (++ended; ended < ranks_;) sleep_for(1ms);
            if (armed == Part::open) FailingAllocator::count(false);
            told(rank, opened);
            if (session == nullptr) return;
            ++open;
            std::vector<std::byte> state(region_bytes_);
            ASSERT_TRUE(session->register_region("state", state.data(), state.size()).ok());
            if (++ready == ranks_) FailingAllocator::count(armed == Part::restore);
            const auto restored = catching([&] { return session->restore(std::nullopt, {}); });
            told(rank, catching([&] { return session->list().status(); }));
            if (--ready == 0) FailingAllocator::count(false);
            told(rank, restored.status());
            if (restored.ok()) {
                ++whole;
                EXPECT_GE(*restored, committed_) << "rank " << rank;
                EXPECT_EQ(state, content_of(*restored, rank)) << "rank " << rank;
            } else if (armed != Part::restore) {
                EXPECT_EQ(committed_, 0u) << "rank " << rank << ": " << restored.status().to_string();
            }
            told(rank, catching([&] { return session->close(); }));
        });
        FailingAllocator::count(false);
        const VirtualExecutor::OwnWork own;
        EXPECT_TRUE(open == 0 || open == ranks_) << open << " ranks have a session, and the others none";
        return whole == ranks_;
    }

    Job job_of(VirtualExecutor& executor, Machines& machines, std::unique_ptr<Network>& network) {
        Job job = job_on(machines, hosts_of(ranks_ > 1 ? 2 : 1, ranks_ > 1 ? ranks_ / 2 : 1));
        const auto server = std::make_shared<Server>(executor, ServerCosts{10us, 0us, 0});
        job.shared = timed(machines.shared, server);
        job.local = [&machines, server](const std::string& host) {
            const VirtualExecutor::OwnWork own;
            return timed(machines.local.at(host), server);
        };
        job.config.files = 1;
        job.config.redundancy = tried_.redundancy;
        if (tried_.setup != Setup::plain) {
            job.config.writers = 2;
            job.config.record_dir = "/records of that job";
        }
        if (tried_.setup == Setup::large) {
            job.config.copy_threads = 2;
            job.config.buffer_bytes = 4 << 20;
        }
        // No path or name fits into a string itself, so each copy is an allocation.
        job.config.name = "a-job-with-a-name-of-some-length";
        job.config.local_dir = "/node-local directory of that job";
        job.config.shared_dir = "/shared directory of that job/run one";
        job.concurrent = tried_.concurrent;
        job.connect = [&](const auto& hosts, bool concurrent) {
            network = std::make_unique<Network>(executor, hosts, NetworkCosts{10us, 0us, 0}, concurrent);
            network->on_differing_calls([](const std::string& what) { ADD_FAILURE() << what; });
            return network->transports();
        };
        return job;
    }

    std::vector<std::byte> content_of(uint64_t epoch, int rank) const {
        const VirtualExecutor::OwnWork own;
        return content(epoch, rank, 0, region_bytes_);
    }

    void told(int rank, const Status& status) {
        const VirtualExecutor::OwnWork own;
        if (status.ok()) return;
        EXPECT_TRUE(memory_fails_) << "rank " << rank
                                   << ", though no allocation fails: " << status.to_string();
        EXPECT_FALSE(status.message().empty()) << "rank " << rank;
    }

    const Case& tried_;
    const int ranks_;
    const uint64_t region_bytes_;
    bool memory_fails_ = false;
    uint64_t committed_ = 0;
    int at_work_ = 0, done_ = 0;
};

constexpr std::chrono::seconds enough_time{60};  // for a case

class OutOfMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(OutOfMemoryTest, EveryAllocationMayFail) {
    if (std::getenv("TAILRACE_LOG") == nullptr) set_log_level(LogLevel::off);
    const uint64_t all = OutOfMemory(GetParam()).run(0);
    if (const char* single = std::getenv("TAILRACE_ALLOCATION")) {
        OutOfMemory(GetParam()).run(std::strtoull(single, nullptr, 10));
        return;
    }
    std::cout << "of " << all << " allocations\n";
    EXPECT_GT(all, 50u);
    auto* reached = static_cast<uint64_t*>(
        mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(reached, MAP_FAILED);
    std::vector<std::string> found;
    // A job with large regions takes a tenth of a second.
    const uint64_t step = GetParam().setup == Setup::large ? 9 : 1;
    const auto begin = std::chrono::steady_clock::now();
    const auto is_slow = [&] { return std::chrono::steady_clock::now() - begin > enough_time; };
    const auto next = [&] { return *reached += is_slow() ? 10 * step : step; };
    for (*reached = 0; *reached < all && found.size() < 20;) {
        std::fflush(nullptr);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            while (!HasFailure() && next() <= all) OutOfMemory(GetParam()).run(*reached);
            _exit(HasFailure() ? 1 : 0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        if (status == 0) break;
        found.push_back("TAILRACE_ALLOCATION=" + std::to_string(*reached) +
                        (WIFEXITED(status) ? "" : ", which ends the process"));
    }
    for (const auto& failure : found) ADD_FAILURE() << "replay with " << failure;
    if (is_slow())
        std::cout << "this machine is slow: after " << enough_time.count()
                  << " s, only one in ten was tried\n";
    munmap(reached, sizeof(uint64_t));
}

INSTANTIATE_TEST_SUITE_P(
    Parts, OutOfMemoryTest,
    ::testing::Values(
        Case{"SaveAndFlushOnFourRanks", 4, true, Part::save, 1},
        Case{"SaveAndFlushOnOneRank", 1, true, Part::save, 1},
        Case{"CollectiveSavesOnFourRanks", 4, false, Part::save, 1},
        Case{"RestoreOnOneRank", 1, true, Part::restore, 1},
        Case{"RestoreOnFourRanks", 4, true, Part::restore, 1}, Case{"ManyOnOneRank", 1, true, Part::save, 40},
        Case{"ManyOnFourRanks", 4, true, Part::save, 40},
        Case{"ManyInACollectiveSave", 4, false, Part::save, 40},
        Case{"OpenOnOneRank", 1, true, Part::open, 1}, Case{"OpenOnFourRanks", 4, true, Part::open, 1},
        Case{"ManyInACollectiveOpen", 4, false, Part::open, 40},
        Case{"ManyInARestore", 4, true, Part::restore, 40}, Case{"AskOnFourRanks", 4, true, Part::ask, 1},
        Case{"CollectiveAsk", 4, false, Part::ask, 1}, Case{"ManyInACollectiveAsk", 4, false, Part::ask, 40},
        Case{"CloseOnFourRanks", 4, true, Part::close, 1}, Case{"CollectiveClose", 4, false, Part::close, 1},
        Case{"ManyInAClose", 4, true, Part::close, 40},
        Case{"ProtectionOnFourRanks", 4, true, Part::save, 1, "partner"},
        Case{"CollectiveProtection", 4, false, Part::save, 1, "partner"},
        Case{"SeveralWritersAndARecord", 1, true, Part::save, 1, "none", Setup::many},
        Case{"ManyWithSeveralWritersAndARecord", 2, true, Part::save, 40, "none", Setup::many},
        Case{"SeveralCopyThreads", 1, true, Part::capture, 1, "none", Setup::large},
        Case{"ManyWithSeveralCopyThreads", 1, true, Part::capture, 40, "none", Setup::large}),
    [](const ::testing::TestParamInfo<Case>& tried) { return std::string(tried.param.name); });

}  // namespace
}  // namespace tailrace::internal
