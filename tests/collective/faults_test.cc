// Storage that fails: every rank hears of it, none hangs, and the file goes on being usable.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>

#include "aggregate/seeds.h"
#include "collective/team.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal::collective {

namespace {

std::vector<Request> interleaved(int rank, int ranks) {
    std::vector<Request> list;
    for (uint64_t i = 0; i < 500; ++i)
        list.push_back({(i * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(rank)) * 60, 60});
    return list;
}

// The first rank may open the file, and so create it; after it nobody, for the time being.
class OpensOnce final : public MemoryStorage {
  public:
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& open_options) override {
        if (opens++ > 0 && !opens_again)
            return Status(Code::io_error, fmt::format("opening '{}': not again", path));
        return MemoryStorage::open(path, open_options);
    }
    std::atomic<int> opens = 0;
    std::atomic<bool> opens_again = false;
};

}  // namespace

TEST(CollectiveFaultsTest, EveryRankHearsOfAFailureOfStorage) {
    for (const uint64_t seed : seeds(1, 120)) {
        Random random(seed);
        const int ranks = static_cast<int>(1 + below(random, 6));
        const uint64_t nodes = 1 + below(random, 3);
        std::vector<std::string> hosts;
        for (int rank = 0; rank < ranks; ++rank)
            hosts.push_back(fmt::format("node{}", static_cast<uint64_t>(rank) % nodes));
        const auto memory = std::make_shared<MemoryStorage>();
        const auto faulty = std::make_shared<FaultyStorage>(memory, seed);
        Options options;
        options.mode = Mode::write;
        options.plan.local_aggregators_per_node = static_cast<int>(below(random, 4)) - 1;
        options.plan.domains.window_bytes = 4096;
        options.plan.global_aggregators = static_cast<int>(below(random, 4));
        const bool writes = below(random, 2) == 0;
        FaultPlan plan;
        if (writes) {
            plan.write_error = 0.2;
            plan.write_no_space = 0.1;
        } else {
            plan.read_error = 0.2;
        }

        std::mutex mutex;
        std::vector<Status> failing(static_cast<size_t>(ranks));
        const auto outcomes = run_team(hosts, faulty, options, [&](int rank, CollectiveFile& file) {
            const std::vector<Request> list = interleaved(rank, ranks);
            Data data = data_for(list);
            if (const auto first = file.write({list, data.memory()}); !first.ok()) return first.status();
            (void)file.statistics();  // all ranks are here before storage begins to fail
            if (rank == 0) faulty->set_plan(plan);
            (void)file.statistics();
            Data again = empty_data_for(list);
            const Status status = writes ? file.write({list, data.memory()}).status()
                                         : file.read({list, again.memory()}).status();
            {
                std::lock_guard lock(mutex);
                failing[static_cast<size_t>(rank)] = status;
            }
            (void)file.statistics();
            if (rank == 0) faulty->set_plan({});
            (void)file.statistics();
            if (const auto last = file.write({list, data.memory()}); !last.ok()) return last.status();
            const auto read = file.read({list, again.memory()});
            EXPECT_TRUE(!read.ok() || again.stream == data.stream) << "seed " << seed;
            return read.status();
        });
        for (const Status& outcome : outcomes)
            EXPECT_TRUE(outcome.ok()) << outcome.message() << ", seed " << seed;
        const bool failed = faulty->counts().total() > 0;
        for (const Status& status : failing) {
            EXPECT_EQ(status.ok(), !failed) << "seed " << seed;
            EXPECT_EQ(status.to_string(), failing[0].to_string()) << "seed " << seed;
        }
    }
}

TEST(CollectiveFaultsTest, AnAggregatorWithoutMemoryIsHeardOfOnAllRanks) {
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    options.plan.global_aggregators = 1;
    options.plan.local_aggregators_per_node = 1;
    options.plan.domains.window_bytes = uint64_t{1} << 50;  // more than any machine's address space has
    const auto outcomes = run_team({"a", "a", "b"}, storage, options, [&](int rank, CollectiveFile& file) {
        const std::vector<Request> list = interleaved(rank, 3);
        Data data = data_for(list);
        const Status status = file.write({list, data.memory()}).status();
        EXPECT_EQ(status.code(), Code::out_of_memory) << status.message();
        return file.statistics().status();  // and the ranks still talk to each other
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CollectiveFaultsTest, AFailedSyncIsHeardOfOnAllRanks) {
    const auto faulty = std::make_shared<FaultyStorage>(std::make_shared<MemoryStorage>(), 1);
    Options options;
    options.mode = Mode::write;
    options.plan.global_aggregators = 1;
    const auto outcomes = run_team({"a", "a", "b"}, faulty, options, [&](int rank, CollectiveFile& file) {
        const std::vector<Request> list = interleaved(rank, 3);
        Data data = data_for(list);
        TAILRACE_TRY(file.write({list, data.memory()}).status());
        FaultPlan plan;
        plan.sync_error = 1;
        if (rank == 0) faulty->set_plan(plan);
        (void)file.statistics();
        EXPECT_EQ(file.sync().code(), Code::io_error);
        (void)file.statistics();
        if (rank == 0) faulty->set_plan({});
        return file.statistics().status();
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CollectiveFaultsTest, AFileThatHasGoneIsNotMadeAnew) {
    const auto storage = std::make_shared<MemoryStorage>();
    Options options;
    options.mode = Mode::write;
    options.plan.exchange = Exchange::never;  // every rank opens the file when it first needs it
    const auto outcomes = run_team({"a", "a"}, storage, options, [&](int rank, CollectiveFile& file) {
        const Status removed = rank == 0 ? storage->remove(team_path) : Status();
        EXPECT_TRUE(removed.ok()) << removed.message();
        (void)file.statistics();  // it is gone for both
        const std::vector<Request> list = interleaved(rank, 2);
        Data data = data_for(list);
        EXPECT_EQ(file.write({list, data.memory()}).status().code(), Code::not_found);
        return Status();
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_FALSE(storage->open(team_path, {Access::read, DirectIo::off}).ok());
}

TEST(CollectiveFaultsTest, AnAggregatorThatCannotOpenTheFileIsHeardOfOnAllRanks) {
    const auto storage = std::make_shared<OpensOnce>();
    Options options;
    options.mode = Mode::write;
    options.plan.local_aggregators_per_node = 1;
    const auto outcomes =
        run_team({"a", "a", "b", "b"}, storage, options, [&](int rank, CollectiveFile& file) {
            const std::vector<Request> list = interleaved(rank, 4);
            Data data = data_for(list);
            EXPECT_EQ(file.write({list, data.memory()}).status().code(), Code::io_error);
            storage->opens_again = true;
            return file.write({list, data.memory()}).status();
        });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_EQ(whole_file(*storage, team_path), data_for({{0, 4 * 500 * 60}}).stream);
}

}  // namespace tailrace::internal::collective
