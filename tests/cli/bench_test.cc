// The benchmark's decisions, and its runs on a storage in memory: counts and bytes, never times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "base/units.h"
#include "bench/bench_case.h"
#include "bench/bench_results.h"
#include "bench/bench_run.h"
#include "bench/writer_team.h"
#include "catalog/catalog.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "storage/scratch.h"

namespace tailrace::internal::tool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;

BenchCase small_case() {
    BenchCase bench;
    bench.writers = 3;
    bench.files = 2;
    bench.buffer_bytes = 256 * KiB;
    bench.buffers = 2;  // fewer than writers: they must wait for one another
    bench.block_bytes = 4096;
    bench.followers = 2;
    bench.processes = 3;
    bench.process_bytes = 700 * KiB;
    return bench;
}

// ---- decisions -----------------------------------------------------------------------------------------

TEST(BenchCaseTest, SizesFollowFromTheSeedAndStayWithinTheImbalance) {
    BenchCase bench = small_case();
    const auto offers = offers_of(bench);
    EXPECT_EQ(offers, offers_of(bench));
    ASSERT_THAT(offers, SizeIs(3));
    std::set<uint64_t> sizes;
    for (const NodeOffer& offer : offers)
        for (const StreamInfo& stream : offer.streams) {
            EXPECT_GE(stream.stream_bytes, bench.process_bytes * 8 / 10);
            EXPECT_LE(stream.stream_bytes, bench.process_bytes * 12 / 10);
            sizes.insert(stream.stream_bytes);
        }
    EXPECT_GT(sizes.size(), 5u);
    bench.seed = 2;
    EXPECT_NE(offers, offers_of(bench));
    bench.imbalance_percent = 0;
    EXPECT_EQ(received_bytes(bench), 6 * bench.process_bytes);
    EXPECT_EQ(local_bytes(bench), 3 * bench.process_bytes);
    bench.local = false;
    EXPECT_EQ(local_bytes(bench), 0u);
}

TEST(BenchCaseTest, TheLeaderIsNodeZeroWhoeverHasMost) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        BenchCase bench = small_case();
        bench.seed = seed;
        EXPECT_THAT(plan_of(bench, 4096)->leaders, ElementsAre(0));
    }
}

TEST(BenchCaseTest, AChunkIsAsLargeAsABufferHoweverLittleThereIs) {
    BenchCase bench = small_case();
    bench.process_bytes = bench.buffer_bytes = 16 * MiB;
    EXPECT_EQ(plan_of(bench, 4096)->chunk_bytes, 16 * MiB);
}

TEST(BenchCaseTest, FittedChunksAreThoseOfTheLibrary) {
    BenchCase bench = small_case();
    bench.process_bytes = bench.buffer_bytes = 16 * MiB;
    bench.fit_chunks = true;
    PlanSettings library;
    library.chunk_bytes = bench.buffer_bytes;
    EXPECT_EQ(plan_of(bench, 4096)->chunk_bytes, fitting_chunk_bytes(offers_of(bench), library));
    EXPECT_LT(plan_of(bench, 4096)->chunk_bytes, bench.buffer_bytes);
}

// Of each writer: (file, place in the file) of its chunks.
std::vector<std::vector<std::pair<uint32_t, uint64_t>>> places_of(const BenchCase& bench) {
    const auto plan = plan_of(bench, 4096).value();
    ExtentAllocator allocator(plan, 0);
    std::vector<std::vector<std::pair<uint32_t, uint64_t>>> places;
    for (const auto& chunks : deal_chunks(bench, plan)) {
        places.emplace_back();
        for (const BenchChunk& chunk : chunks)
            for (const auto& placed : allocator.allocate(chunk.rank, chunk.stream_offset, chunk.bytes))
                places.back().emplace_back(placed.file, placed.extent.file_offset);
    }
    return places;
}

TEST(BenchCaseTest, EveryPlacementDealsEveryReceivedChunkOnce) {
    for (const auto placement :
         {BenchPlacement::append, BenchPlacement::contiguous, BenchPlacement::interleaved})
        for (const uint32_t writers : {1u, 2u, 5u, 64u})
            for (const uint32_t files : {1u, 3u}) {
                BenchCase bench = small_case();
                bench.placement = placement;
                bench.writers = writers;
                bench.files = files;
                const auto dealt = deal_chunks(bench, plan_of(bench, 4096).value());
                ASSERT_THAT(dealt, SizeIs(writers));
                std::set<std::pair<uint32_t, uint64_t>> seen;
                uint64_t bytes = 0;
                for (const auto& chunks : dealt)
                    for (const BenchChunk& chunk : chunks) {
                        EXPECT_TRUE(seen.emplace(chunk.rank, chunk.stream_offset).second);
                        EXPECT_GE(chunk.rank, bench.processes) << "the leader's own data";
                        bytes += chunk.bytes;
                    }
                EXPECT_EQ(bytes, received_bytes(bench)) << text_of(bench);
            }
}

TEST(BenchCaseTest, ContiguousWritersHaveOneRunOfAFileEach) {
    BenchCase bench = small_case();
    bench.placement = BenchPlacement::contiguous;
    bench.writers = 4;
    std::map<uint32_t, uint64_t> next;  // per file
    for (const auto& places : places_of(bench)) {
        ASSERT_FALSE(places.empty());
        for (const auto& place : places) EXPECT_EQ(place.first, places.front().first);
        EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
        auto& reached = next[places.front().first];
        EXPECT_GT(places.front().second, reached) << "behind the writer before";
        reached = places.back().second;
    }
}

TEST(BenchCaseTest, InterleavedWritersTakeTurns) {
    BenchCase bench = small_case();
    bench.placement = BenchPlacement::interleaved;
    bench.files = 1;
    const auto places = places_of(bench);
    std::vector<uint64_t> in_turn;
    for (size_t pass = 0; pass < places.front().size(); ++pass)
        for (const auto& of_writer : places)
            if (pass < of_writer.size()) in_turn.push_back(of_writer[pass].second);
    EXPECT_TRUE(std::is_sorted(in_turn.begin(), in_turn.end()));
    EXPECT_GT(in_turn.size(), 6u);
}

TEST(BenchCaseTest, AGridHasEveryCombinationOnce) {
    BenchGrid grid;
    grid.writers = {1, 2, 4};
    grid.files = {1, 8};
    grid.placements = {BenchPlacement::contiguous, BenchPlacement::interleaved};
    EXPECT_THAT(make_grid(grid), SizeIs(12));
    grid = {};
    grid.engines = {IoEngine::posix, IoEngine::io_uring};
    grid.queue_depths = {8, 32, 64};
    EXPECT_THAT(make_grid(grid), SizeIs(4)) << "posix has no queue";
    grid.writers = {2, 2};
    EXPECT_THAT(make_grid(grid), SizeIs(4));
}

TEST(BenchCaseTest, NonsenseIsRefusedWithAReason) {
    auto why = [](auto change) {
        BenchCase bench = small_case();
        change(bench);
        return check_case(bench).message();
    };
    EXPECT_EQ(why([](BenchCase&) {}), "");
    EXPECT_THAT(why([](BenchCase& bench) { bench.writers = 0; }), HasSubstr("writers"));
    EXPECT_THAT(why([](BenchCase& bench) { bench.buffer_bytes = 1000; }), HasSubstr("multiple of 256KiB"));
    EXPECT_THAT(why([](BenchCase& bench) { bench.block_bytes = 6000; }), HasSubstr("power of two"));
    EXPECT_THAT(why([](BenchCase& bench) { bench.imbalance_percent = 100; }), HasSubstr("imbalance"));
    EXPECT_THAT(why([](BenchCase& bench) {
                    bench.followers = 4095;
                    bench.processes = 4096;
                    bench.process_bytes = uint64_t{1} << 40;  // 2 to the 64th in all
                }),
                HasSubstr("1PiB"));
    EXPECT_THAT(why([](BenchCase& bench) {
                    bench.followers = 0;
                    bench.local = false;
                }),
                HasSubstr("nothing to write"));
}

TEST(WriterTeamTest, StacksAreWhatOpenMpIsToldToGive) {
    for (const auto& [text, bytes] :
         std::vector<std::pair<const char*, size_t>>{{"2000", 2000 << 10},
                                                     {"1G", size_t{1} << 30},
                                                     {"3 m", 3 << 20},
                                                     {"4096B", 4096},
                                                     {"7k", 7 << 10},
                                                     {"", 0},
                                                     {"much", 0},
                                                     {"1T", 0},
                                                     {"18446744073709551615G", 0}})
        EXPECT_EQ(team_stack_bytes(text), bytes) << text;
    EXPECT_EQ(team_stack_bytes(nullptr), 0u);
}

TEST(WriterTeamTest, EveryMemberRunsOnce) {
    std::vector<int> calls(7);
    ASSERT_TRUE(run_team(7, [&](uint32_t member) { ++calls[member]; }).ok());
    EXPECT_THAT(calls, testing::Each(1));
}

// ---- runs ------------------------------------------------------------------------------------------------

// Looks at every shared file before it is removed, and counts syncs.
class WatchingStorage : public MemoryStorage {
  public:
    Status remove(const std::string& path) override {
        if (path.find(".unfinished") != std::string::npos) look_at(path);
        return MemoryStorage::remove(path);
    }
    Status sync_directory(const std::string& path) override {
        ++directory_syncs;
        return MemoryStorage::sync_directory(path);
    }

    std::atomic<int> directory_syncs = 0;
    int files = 0, committed = 0;
    uint64_t data_bytes = 0;
    std::set<std::pair<uint32_t, uint64_t>> extents;  // rank, place in the stream

  private:
    void look_at(const std::string& path) {
        ++files;
        auto head = read_shared_head(*this, path);
        ASSERT_TRUE(head.ok()) << head.status().to_string();
        if (!head->slots.front().ok()) return;
        ++committed;
        data_bytes += head->slots.front()->data_bytes;
        for (const Extent& extent : (**head->indexes.front()).extents)
            extents.emplace(extent.rank, extent.stream_offset);
    }
};

class BenchRunTest : public testing::Test {
  protected:
    Result<BenchResult> run(const BenchCase& bench) {
        if (!space) {
            auto made = BenchSpace::create(storage, "/shared", "/local");
            EXPECT_TRUE(made.ok());
            space = std::move(*made);
        }
        return run_case(bench, *space, storage, stop, [this](uint64_t bytes) { reported += bytes; });
    }
    size_t shared_files() { return storage.list(space->shared_dir())->size(); }

    WatchingStorage storage;
    std::unique_ptr<BenchSpace> space;
    std::atomic<bool> stop = false;
    uint64_t reported = 0;
};

TEST_F(BenchRunTest, EveryByteIsWrittenAndCommittedWithEveryPlacement) {
    for (const auto placement :
         {BenchPlacement::append, BenchPlacement::contiguous, BenchPlacement::interleaved})
        for (const bool local : {true, false}) {
            BenchCase bench = small_case();
            bench.placement = placement;
            bench.local = local;
            storage.files = storage.committed = 0;
            storage.data_bytes = 0;
            reported = 0;
            const auto result = run(bench);
            ASSERT_TRUE(result.ok()) << result.status().to_string();
            EXPECT_EQ(result->received_bytes, received_bytes(bench));
            EXPECT_EQ(result->local_bytes, local_bytes(bench));
            EXPECT_EQ(storage.files, 2);
            EXPECT_EQ(storage.committed, 2);
            EXPECT_EQ(storage.data_bytes, received_bytes(bench) + local_bytes(bench));
            EXPECT_EQ(reported, storage.data_bytes);
            EXPECT_EQ(shared_files(), 0u) << "a run cleans up";
            EXPECT_GT(result->rate(), 0);
            EXPECT_EQ(result->block_bytes, 4096u);
        }
}

TEST_F(BenchRunTest, WithoutLocalDataTheExtentsAreTheFollowersOnly) {
    BenchCase bench = small_case();
    bench.local = false;
    ASSERT_TRUE(run(bench).ok());
    ASSERT_FALSE(storage.extents.empty());
    EXPECT_GE(storage.extents.begin()->first, bench.processes);
}

TEST_F(BenchRunTest, SyncsWhatIsToBeDurableAndNothingElse) {
    BenchCase bench = small_case();
    ASSERT_TRUE(run(bench).ok());
    EXPECT_GT(storage.directory_syncs, 0);
    storage.directory_syncs = 0;
    bench.durable = false;
    ASSERT_TRUE(run(bench).ok());
    EXPECT_EQ(storage.directory_syncs, 0);
}

// Every sync of a shared file fails: whoever needs one notices.
TEST(BenchSyncTest, FilesAreSyncedWithinTheRunOrOnlyBehindIt) {
    FaultyStorage storage(std::make_shared<MemoryStorage>(), 1,
                          {.sync_error = 1, .path_filter = ".unfinished"});
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    const std::atomic<bool> stop = false;
    BenchCase bench = small_case();
    EXPECT_EQ(run_case(bench, *space, storage, stop, nullptr).status().code(), Code::io_error);
    const uint64_t before = storage.counts().sync_error;
    bench.durable = false;
    const auto result = run_case(bench, *space, storage, stop, nullptr);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    EXPECT_EQ(storage.counts().sync_error, before + bench.files) << "what it left in memory is written out";
}

TEST_F(BenchRunTest, FittedChunksHoldForReceivedAndForLocalData) {
    BenchCase bench = small_case();
    bench.writers = 1;
    bench.followers = 1;
    bench.processes = 1;
    bench.process_bytes = 6 * MiB;
    bench.imbalance_percent = 0;
    bench.buffer_bytes = 8 * MiB;
    bench.fit_chunks = true;
    ASSERT_TRUE(run(bench).ok());
    EXPECT_THAT(storage.extents, ElementsAre(Pair(0, 0), Pair(0, 4 * MiB), Pair(1, 0), Pair(1, 4 * MiB)));
}

TEST_F(BenchRunTest, AnInterruptedRunIsAbortedAndLeavesNothing) {
    ASSERT_TRUE(run(small_case()).ok());
    stop = true;
    const auto result = run(small_case());
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::aborted);
    EXPECT_EQ(shared_files(), 0u);
}

TEST_F(BenchRunTest, ADirectoryIsCleanWhenTheSpaceIsGone) {
    ASSERT_TRUE(run(small_case()).ok());
    const std::string shared = space->shared_dir();
    space.reset();
    EXPECT_FALSE(storage.list("/local")->empty()) << "a storage in memory keeps directories";
    for (const auto& entry : *storage.list("/local"))
        EXPECT_TRUE(storage.list(join_path("/local", entry.name))->empty());
    EXPECT_TRUE(storage.list(shared)->empty());
}

TEST(BenchSpaceTest, WhatWouldFillTheDiskIsRefusedBeforeAnythingIsWritten) {
    MemoryStorage storage({.capacity_bytes = 300 * MiB});
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    BenchCase bench = small_case();
    EXPECT_TRUE(space->check_room(bench).ok()) << space->check_room(bench).message();
    bench.process_bytes = 20 * MiB;
    std::atomic<bool> stop = false;
    const auto result = run_case(bench, *space, storage, stop, nullptr);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::no_space);
    EXPECT_THAT(result.status().message(), HasSubstr("smaller --size"));
    EXPECT_TRUE(storage.list(space->shared_dir())->empty());
}

// Remembers how much was reserved for files that nothing was written to.
class ReservingStorage : public MemoryStorage {
  public:
    Status remove(const std::string& path) override {
        if (auto file = open(path, {Access::read, DirectIo::off}); file.ok())
            reserved += (*file)->size().value();
        return MemoryStorage::remove(path);
    }
    uint64_t reserved = 0;
};

TEST(BenchSpaceTest, RoomIsReckonedForAllThatIsReserved) {
    // Every other stream has a second chunk with little in it, and room is kept for it as for a full one.
    BenchCase bench;
    bench.files = 8;
    bench.followers = 16;
    bench.process_bytes = bench.buffer_bytes = 4 * MiB;
    const uint64_t reserved = disk_bytes(plan_of(bench, 4096).value());
    EXPECT_GT(reserved, bytes_of(bench) / 4 * 5);
    MemoryStorage storage({.capacity_bytes = reserved + local_bytes(bench) + 255 * MiB});
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    EXPECT_EQ(space->check_room(bench).code(), Code::no_space);
    bench.files = 1;
    EXPECT_TRUE(space->check_room(bench).ok()) << space->check_room(bench).message();
}

TEST(BenchSpaceTest, WhatIsReservedIsWhatWasReckoned) {
    ReservingStorage storage;
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    BenchCase bench = small_case();
    bench.local = false;
    bench.files = 4;
    const std::atomic<bool> stop = true;
    EXPECT_EQ(run_case(bench, *space, storage, stop, nullptr).status().code(), Code::aborted);
    EXPECT_EQ(storage.reserved, disk_bytes(plan_of(bench, 4096).value()));
}

TEST(BenchSpaceTest, PartsAndFilesOnOneDeviceMustFitTogether) {
    BenchCase bench = small_case();
    bench.process_bytes = 20 * MiB;
    const uint64_t files = disk_bytes(plan_of(bench, 4096).value());
    // Each alone would leave the margin.
    MemoryStorage storage({.capacity_bytes = files + 260 * MiB});  // a run leaves 256 MiB free
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    EXPECT_EQ(space->check_room(bench).code(), Code::no_space);
    bench.local = false;
    EXPECT_TRUE(space->check_room(bench).ok()) << space->check_room(bench).message();
}

TEST(BenchSpaceTest, MoreMemoryThanThereIsIsRefused) {
    MemoryStorage storage;
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    BenchCase bench = small_case();
    bench.followers = 0;
    bench.processes = 1;
    bench.process_bytes = bench.buffer_bytes = 64 * MiB;
    EXPECT_TRUE(space->check_room(bench).ok()) << space->check_room(bench).message();
    bench.buffers = 65536;
    bench.process_bytes = bench.buffer_bytes = GiB;
    const Status status = space->check_room(bench);
    EXPECT_EQ(status.code(), Code::out_of_memory);
    EXPECT_THAT(status.message(), HasSubstr("fewer --buffers"));
    bench.process_bytes = 4096;
    bench.buffers = 16;
    EXPECT_TRUE(space->check_room(bench).ok()) << "buffers are not used beyond the longest stream";
}

TEST(BenchSpaceTest, OnlyWhatABenchmarkLeftIsRemoved) {
    MemoryStorage storage;
    const std::string file = "bench.e000000001.r0001.1of1.tailrace.unfinished";
    auto put = [&](const std::string& directory, const std::string& name) {
        ASSERT_TRUE(storage.make_directories(directory).ok());
        ASSERT_TRUE(storage.open(join_path(directory, name), {Access::create_new, DirectIo::off}).ok());
    };
    const std::vector<std::string> theirs = {"mine",           "",      "12x", "parts", ".parts",
                                             "12.parts.parts", "12.old"};
    for (const std::string& name : theirs) put("/shared/tailrace-bench." + name, file);
    put("/shared/tailrace-bench.99999999", file);
    put("/local/tailrace-bench.99999999.parts", "part0");
    // Nor is anything removed beside what no benchmark has made.
    const std::vector<std::string> others = {"results.json", "part", "part1.txt",
                                             "bench.e000000001.r0001.1of1.tailrace",
                                             "job.e000000001.r0001.1of1.tailrace.unfinished"};
    for (size_t i = 0; i < others.size(); ++i) {
        put("/shared/tailrace-bench." + std::to_string(i), file);
        put("/shared/tailrace-bench." + std::to_string(i), others[i]);
    }
    auto space = BenchSpace::create(storage, "/shared", "/local").value();
    for (const std::string& name : theirs)
        EXPECT_THAT(*storage.list("/shared/tailrace-bench." + name), SizeIs(1)) << name;
    for (size_t i = 0; i < others.size(); ++i)
        EXPECT_THAT(*storage.list("/shared/tailrace-bench." + std::to_string(i)), SizeIs(2)) << others[i];
    EXPECT_THAT(*storage.list("/shared/tailrace-bench.99999999"), SizeIs(0));
    EXPECT_THAT(*storage.list("/local/tailrace-bench.99999999.parts"), SizeIs(0));
}

TEST(BenchSpaceTest, LinksInThePlaceOfItsDirectoriesAreNeitherTakenNorCleaned) {
    const test::ScratchDirectory scratch;
    const auto storage = make_system_storage({.engine = IoEngine::posix}).value();
    const std::string elsewhere = scratch / "elsewhere", empty = scratch / "empty", place = scratch / "place";
    for (const auto& directory : {elsewhere, empty, place})
        ASSERT_TRUE(storage->make_directories(directory).ok());
    const std::string file = elsewhere + "/bench.e000000001.r0001.1of1.tailrace.unfinished";
    ASSERT_TRUE(storage->open(file, {Access::create_new, DirectIo::off}).ok());
    std::filesystem::create_directory_symlink(elsewhere, place + "/tailrace-bench.99999999");
    const auto first_name = place + "/tailrace-bench." + std::to_string(::getpid());
    std::filesystem::create_directory_symlink(empty, first_name);
    {
        auto space = BenchSpace::create(*storage, place, place);
        ASSERT_TRUE(space.ok() && (*space)->shared_dir() != first_name) << space.status().to_string();
        EXPECT_EQ(std::filesystem::status((*space)->shared_dir()).permissions(),
                  std::filesystem::perms::owner_all);
    }
    EXPECT_TRUE(std::filesystem::exists(file));
    EXPECT_TRUE(std::filesystem::exists(first_name));
}

// As in two containers that share a file system.
TEST(BenchSpaceTest, TwoOfOneProcessNumberLeaveEachOtherAlone) {
    MemoryStorage storage;
    auto first = BenchSpace::create(storage, "/shared", "/local").value();
    const std::string file = join_path(first->shared_dir(), "file");
    ASSERT_TRUE(storage.open(file, {Access::create_new, DirectIo::off}).ok());
    auto second = BenchSpace::create(storage, "/shared", "/local");
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    EXPECT_NE(first->shared_dir(), (*second)->shared_dir());
    second.value().reset();
    EXPECT_TRUE(storage.open(file, {Access::read, DirectIo::off}).ok());
}

// ---- results -----------------------------------------------------------------------------------------

BenchSuite sample_suite() {
    BenchSuite suite;
    suite.machine.host = "h";
    suite.machine.directory = "/d\"\\";
    suite.repetitions = 2;
    suite.cases = {small_case(), small_case()};
    suite.cases[1].engine = IoEngine::io_uring;
    suite.cases[1].fit_chunks = true;
    suite.refused = {"", "no io_uring"};
    BenchResult result;
    result.engine = "posix";
    result.received_bytes = 3000;
    result.local_bytes = 1000;
    result.write_seconds = 2;
    result.commit_seconds = 2;
    suite.runs = {{0, 0, result}};
    return suite;
}

TEST(BenchResultsTest, JsonRoundTripsAndSaysWhatIsMissing) {
    BenchSuite suite = sample_suite();
    auto again = suite_from_json(to_json(suite));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->cases, suite.cases);
    EXPECT_EQ(again->refused, suite.refused);
    EXPECT_EQ(to_json(*again), to_json(suite));
    EXPECT_FALSE(again->complete());
    EXPECT_TRUE(again->has(0, 0));
    EXPECT_FALSE(again->has(0, 1));
    suite.runs.push_back({0, 1, suite.runs[0].result});
    EXPECT_TRUE(suite.complete()) << "a refused case has no runs";
}

TEST(BenchResultsTest, WhatIsLeftAreTheMissingRunsOfWhatIsNotRefused) {
    BenchSuite suite = sample_suite();
    EXPECT_EQ(suite.bytes_left(), bytes_of(suite.cases[0]));
    suite.refused[1] = "";
    EXPECT_EQ(suite.bytes_left(), bytes_of(suite.cases[0]) + 2 * bytes_of(suite.cases[1]));
}

TEST(BenchResultsTest, RunsOfAnotherMachineAreToldApart) {
    const BenchMachine machine = sample_suite().machine;
    EXPECT_EQ(difference(machine, machine), "");
    for (auto field :
         {&BenchMachine::host, &BenchMachine::directory, &BenchMachine::file_system,
          &BenchMachine::local_directory, &BenchMachine::local_file_system, &BenchMachine::tailrace}) {
        BenchMachine other = machine;
        other.*field = "elsewhere";
        EXPECT_THAT(difference(machine, other), HasSubstr("is now \"elsewhere\""));
    }
    BenchMachine later = machine;
    later.began_unix_ms = 1;
    EXPECT_EQ(difference(machine, later), "");
}

TEST(BenchResultsTest, WhatIsNoResultIsCorrupt) {
    for (const char* text : {"", "[]", "{}", "{\"tailrace_bench\": 2}", "{\"tailrace_bench\": 1}"}) {
        auto suite = suite_from_json(text);
        ASSERT_FALSE(suite.ok()) << text;
        EXPECT_EQ(suite.status().code(), Code::corrupt);
    }
    std::string text = to_json(sample_suite());
    text.replace(text.find("\"case\": 0"), 9, "\"case\": 7");
    EXPECT_FALSE(suite_from_json(text).ok());
}

TEST(BenchResultsTest, CsvHasARowPerRunAndAsManyCellsAsNames) {
    BenchSuite suite = sample_suite();
    suite.runs.push_back({1, 0, suite.runs[0].result});
    const std::string csv = to_csv(suite);
    std::vector<long> commas;
    for (size_t at = 0; at < csv.size();) {
        const size_t end = csv.find('\n', at);
        commas.push_back(
            std::count(csv.begin() + static_cast<long>(at), csv.begin() + static_cast<long>(end), ','));
        at = end + 1;
    }
    ASSERT_THAT(commas, SizeIs(3));
    EXPECT_THAT(commas, testing::Each(commas.front()));
    for (const char* name : {"received_bytes", "kernel,processor,", "tailrace,threads", ",fit_chunks,"})
        EXPECT_THAT(csv, HasSubstr(name));
    EXPECT_THAT(csv, HasSubstr("\"/d\"\"\\\"")) << "quoted, and its quote doubled";
}

TEST(BenchResultsTest, RatesAreMedians) {
    BenchSuite suite = sample_suite();
    suite.runs[0].result.dirty_bytes = 17;
    EXPECT_EQ(dirty_of(suite, 0).median, 17);
    EXPECT_EQ(rate_of(suite, 0).median, 1000);
    EXPECT_EQ(received_rate_of(suite, 0).median, 1500);
    EXPECT_EQ(rate_of(suite, 1).count, 0u);
    const Spread spread = spread_of({5, 1, 2});
    EXPECT_EQ(spread.median, 2);
    EXPECT_EQ(spread.least, 1);
    EXPECT_EQ(spread.most, 5);
    EXPECT_EQ(spread_of({1, 3}).median, 2);
}

}  // namespace
}  // namespace tailrace::internal::tool
