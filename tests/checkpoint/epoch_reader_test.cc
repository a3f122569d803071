// Reading epochs back: that the bytes are right, that damage is found, named and read around, and that files
// are read in few large forward steps.
#include "checkpoint/epoch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/log.h"
#include "base/units.h"
#include "checkpoint/epoch_builder.h"
#include "checkpoint/epoch_reader_files.h"
#include "checkpoint/epoch_reader_plan.h"
#include "checkpoint/epoch_reader_stream.h"
#include "checkpoint/hyperslab.h"
#include "storage/memory_storage.h"

namespace tailrace {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using namespace testing_support;
using Bytes = std::vector<std::byte>;

// ---- a storage that counts -----------------------------------------------------------------------------

struct Call {
    std::string path;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

struct CallLog {
    std::mutex mutex;
    std::vector<Call> calls;
    std::atomic<int> open_files{0};

    void add(Call call) {
        std::lock_guard lock(mutex);
        calls.push_back(std::move(call));
    }
    void clear() { calls.clear(); }
    uint64_t bytes() const {
        uint64_t sum = 0;
        for (const Call& call : calls) sum += call.bytes;
        return sum;
    }
    // How often a call starts before the end of the last one in the same file.
    size_t backward_steps() const {
        size_t steps = 0;
        std::map<std::string, uint64_t> end;
        for (const Call& call : calls) {
            if (call.offset < end[call.path]) ++steps;
            end[call.path] = call.offset + call.bytes;
        }
        return steps;
    }
};

class CountingFile final : public File {
  public:
    CountingFile(std::unique_ptr<File> file, CallLog& log) : file_(std::move(file)), log_(log) {
        ++log_.open_files;
    }
    ~CountingFile() override { --log_.open_files; }
    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        log_.add({file_->path(), offset, target.size()});
        return file_->read_at(target, offset);
    }
    Result<size_t> read_pieces(std::span<const Piece> targets, uint64_t offset) override {
        uint64_t bytes = 0;
        for (const Piece& piece : targets) bytes += piece.size();
        log_.add({file_->path(), offset, bytes});
        return file_->read_pieces(targets, offset);
    }
    Status write_at(std::span<const std::byte> source, uint64_t offset) override {
        return file_->write_at(source, offset);
    }
    Status reserve(uint64_t bytes) override { return file_->reserve(bytes); }
    Status truncate(uint64_t bytes) override { return file_->truncate(bytes); }
    Status sync() override { return file_->sync(); }
    Result<uint64_t> size() override { return file_->size(); }
    Status close() override { return file_->close(); }
    const std::string& path() const override { return file_->path(); }

  private:
    std::unique_ptr<File> file_;
    CallLog& log_;
};

class CountingStorage final : public Storage {
  public:
    CountingStorage(Storage& storage, CallLog& log) : storage_(storage), log_(log) {}
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        TAILRACE_ASSIGN(auto file, storage_.open(path, options));
        return std::unique_ptr<File>(std::make_unique<CountingFile>(std::move(file), log_));
    }
    Status rename(const std::string& from, const std::string& to) override {
        return storage_.rename(from, to);
    }
    Status remove(const std::string& path) override { return storage_.remove(path); }
    Result<std::vector<DirectoryEntry>> list(const std::string& directory) override {
        return storage_.list(directory);
    }
    Status make_directories(const std::string& path) override { return storage_.make_directories(path); }
    Status sync_directory(const std::string& path) override { return storage_.sync_directory(path); }
    Result<SpaceInfo> space(const std::string& path) override { return storage_.space(path); }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path) override {
        return storage_.lock_directory(path);
    }
    std::string_view name() const override { return "counting"; }

  private:
    Storage& storage_;
    CallLog& log_;
};

// ---- the bench ------------------------------------------------------------------------------------------

enum class From { shared, local, both };

class EpochReaderTest : public testing::Test {
  protected:
    EpochReaderTest() {
        const char* given = std::getenv("TAILRACE_SEED");
        seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
        random_.seed(seed_);
        set_log_level(LogLevel::warning);
        set_log_callback([this](LogLevel level, std::string_view message) {
            std::lock_guard lock(warnings_mutex_);
            if (level == LogLevel::warning) warnings_.emplace_back(message);
        });
    }
    ~EpochReaderTest() override {
        set_log_callback({});
        if (HasFailure())
            std::printf("replay with TAILRACE_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    }

    // Writes the epoch to the memory storage and opens it.
    std::unique_ptr<EpochReader> write_and_open(const BuiltEpoch& epoch, From from = From::shared) {
        if (from != From::local) {
            EXPECT_EQ(write_shared_files(memory_, "/shared", epoch).to_string(), "ok");
        }
        if (from != From::shared) {
            EXPECT_EQ(write_captured_parts(memory_, "/local", epoch).to_string(), "ok");
        }
        return open(epoch, from);
    }
    EpochSources sources(const BuiltEpoch& epoch, From from) {
        EpochSources found{epoch.key, static_cast<uint32_t>(epoch.ranks.size()), {}, {}};
        if (from != From::local) {
            auto listed = list_shared(memory_, "/shared", epoch.job);
            EXPECT_TRUE(listed.ok()) << listed.status().to_string();
            auto loaded = load_shared_epoch(memory_, listed->back());
            EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
            if (loaded.ok()) found.shared = std::move(*loaded);
        }
        if (from != From::shared) {
            auto listed = list_local(memory_, "/local", epoch.job);
            EXPECT_TRUE(listed.ok()) << listed.status().to_string();
            found.local_parts = listed->parts;
        }
        return found;
    }
    std::unique_ptr<EpochReader> open(const BuiltEpoch& epoch, From from) {
        auto reader = EpochReader::open(counted_, counted_, sources(epoch, from));
        EXPECT_TRUE(reader.ok()) << reader.status().to_string();
        return reader.ok() ? std::move(*reader) : nullptr;
    }

    // Inverts a byte of a rank's stream wherever it lies.
    void flip_in_shared(const BuiltEpoch& epoch, uint32_t rank, uint64_t stream_offset) {
        const auto found = sources(epoch, From::shared);
        const auto& extent = extent_at(found.shared->streams[rank].extents, stream_offset);
        flip(found.shared->paths[extent.file], extent.file_offset + (stream_offset - extent.stream_offset));
    }
    void flip_in_local(const BuiltEpoch& epoch, uint32_t rank, uint64_t stream_offset) {
        flip(join_path("/local", to_string(PartFileName{epoch.job, epoch.key, rank, false})),
             part_header_bytes + stream_offset);
    }
    void flip(const std::string& path, uint64_t offset) {
        auto file = memory_.open(path, {Access::write});
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        std::byte byte{};
        ASSERT_EQ(*(*file)->read_at(std::span(&byte, 1), offset), 1u);
        byte ^= std::byte{0x40};
        ASSERT_TRUE((*file)->write_at(std::span(&byte, 1), offset).ok());
    }

    static uint64_t place_of(EpochReader& reader, uint32_t rank, const std::string& name) {
        return find_region(**reader.manifest(rank), name)->stream_offset;
    }

    static Status read_one(EpochReader& reader, uint32_t rank, const std::string& name, Bytes& target) {
        const RegionTarget targets[] = {{name, target}};
        return reader.read_regions(rank, targets);
    }

    // Everything a rank saved, in one call; compares.
    static void expect_rank_reads_back(EpochReader& reader, const BuiltEpoch& epoch, uint32_t rank) {
        std::vector<Bytes> memory;
        std::vector<RegionTarget> targets;
        for (const BuiltRegion& region : epoch.ranks[rank]) memory.emplace_back(region.data.size());
        for (size_t r = 0; r < memory.size(); ++r) targets.push_back({epoch.ranks[rank][r].name, memory[r]});
        const Status status = reader.read_regions(rank, targets);
        ASSERT_TRUE(status.ok()) << status.to_string();
        for (size_t r = 0; r < memory.size(); ++r)
            ASSERT_EQ(memory[r], epoch.ranks[rank][r].data)
                << "rank " << rank << " region " << targets[r].name;
    }

    BuiltEpoch random_epoch() {
        BuiltEpoch epoch;
        epoch.seed = random_();
        epoch.file_count = static_cast<uint32_t>(1 + random_() % 4);
        epoch.leaders_per_file = static_cast<uint32_t>(1 + random_() % 3);
        epoch.block_bytes = uint64_t{512} << (random_() % 4);
        epoch.chunk_bytes = epoch.block_bytes * (1 + random_() % 64);
        epoch.stripe_bytes = epoch.block_bytes * (1 + random_() % 64);
        epoch.has_checksums = random_() % 4 != 0;
        epoch.ranks.resize(1 + random_() % 5);
        for (auto& rank : epoch.ranks) {
            const size_t regions = random_() % 12;
            for (size_t r = 0; r < regions; ++r) {
                const uint64_t sizes[] = {0,
                                          1,
                                          random_() % 1000,
                                          random_() % 100000,
                                          uint64_t{check_block_bytes},
                                          random_() % (2 * MiB)};
                rank.push_back({"region " + std::to_string(r), pattern(random_(), sizes[random_() % 6]), {}});
            }
        }
        return epoch;
    }

    uint64_t seed_ = 0;
    std::mt19937_64 random_;
    MemoryStorage memory_;
    CallLog log_;
    CountingStorage counted_{memory_, log_};
    std::mutex warnings_mutex_;
    std::vector<std::string> warnings_;
};

// One rank with a region of `bytes`.
BuiltEpoch one_region(uint64_t bytes) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"density", pattern(1, bytes), {}}}};
    return epoch;
}

// ---- right bytes ----------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, EveryRegionOfRandomEpochsReadsBackFromEveryTier) {
    for (int round = 0; round < 40; ++round) {
        for (const From from : {From::shared, From::local, From::both}) {
            MemoryStorage fresh;
            const BuiltEpoch epoch = random_epoch();
            if (from != From::local) {
                ASSERT_TRUE(write_shared_files(fresh, "/shared", epoch).ok());
            }
            if (from != From::shared) {
                ASSERT_TRUE(write_captured_parts(fresh, "/local", epoch).ok());
            }
            EpochSources found{epoch.key, static_cast<uint32_t>(epoch.ranks.size()), {}, {}};
            if (from != From::local) {
                auto loaded = load_shared_epoch(fresh, list_shared(fresh, "/shared", "")->front());
                ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
                found.shared = *loaded;
            }
            if (from != From::shared) found.local_parts = list_local(fresh, "/local", "")->parts;
            auto reader = EpochReader::open(fresh, fresh, found);
            ASSERT_TRUE(reader.ok()) << reader.status().to_string();
            for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank) {
                ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(**reader, epoch, rank));
                ASSERT_EQ((*reader)->verify(rank, {}).to_string(), "ok");
            }
            ASSERT_TRUE(warnings_.empty()) << warnings_.front();
        }
    }
}

TEST_F(EpochReaderTest, RegionsAreReadInAnyOrderAndASubsetOfThem) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 3000), {}}, {"b", pattern(2, 700000), {}}, {"c", pattern(3, 10), {}}}};
    auto reader = write_and_open(epoch);
    Bytes c(10), a(3000);
    const RegionTarget targets[] = {{"c", c}, {"a", a}};
    ASSERT_EQ(reader->read_regions(0, targets).to_string(), "ok");
    EXPECT_EQ(c, epoch.ranks[0][2].data);
    EXPECT_EQ(a, epoch.ranks[0][0].data);
}

TEST_F(EpochReaderTest, SeveralThreadsReadAtOnce) {
    BuiltEpoch epoch;
    for (uint32_t rank = 0; rank < 4; ++rank) epoch.ranks.push_back({{"x", pattern(rank, 700000), {}}});
    auto reader = write_and_open(epoch, From::both);
    std::vector<std::jthread> threads;
    std::atomic<int> right{0};
    for (uint32_t t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            Bytes memory(700000);
            if (read_one(*reader, t % 4, "x", memory).ok() && memory == epoch.ranks[t % 4][0].data) ++right;
        });
    threads.clear();
    EXPECT_EQ(right, 8);
}

// ---- few, large, forward --------------------------------------------------------------------------------

TEST_F(EpochReaderTest, FullRestoreReadsEachFileForwardInFewCalls) {
    BuiltEpoch epoch;
    epoch.file_count = 2;
    epoch.chunk_bytes = 1 * MiB;
    epoch.ranks = {
        {{"a", pattern(1, 9 * MiB), {}}, {"b", pattern(2, 300), {}}, {"c", pattern(3, 7 * MiB), {}}},
        {{"a", pattern(4, 5 * MiB), {}}}};
    for (const From from : {From::shared, From::local}) {
        auto reader = write_and_open(epoch, from);
        for (uint32_t rank = 0; rank < 2; ++rank) {
            ASSERT_TRUE(reader->manifest(rank).ok());
            log_.clear();
            ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, rank));
            EXPECT_EQ(log_.backward_steps(), 0u);
            // A group of one rank and one file: its chunks lie next to each other, in any order.
            EXPECT_EQ(log_.calls.size(), 1u);
        }
    }
}

TEST_F(EpochReaderTest, InterleavedStreamsAreReadForward) {
    BuiltEpoch epoch;
    epoch.file_count = 1;
    epoch.chunk_bytes = 128 * KiB;
    for (uint32_t rank = 0; rank < 3; ++rank) epoch.ranks.push_back({{"a", pattern(rank, 5 * MiB), {}}});
    auto reader = write_and_open(epoch);
    for (uint32_t rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(reader->manifest(rank).ok());
        log_.clear();
        ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, rank));
        EXPECT_EQ(log_.backward_steps(), 0u);
    }
}

TEST_F(EpochReaderTest, TenThousandSmallRegionsCostAHandfulOfReads) {
    BuiltEpoch epoch;
    epoch.chunk_bytes = 4 * MiB;
    epoch.ranks.resize(1);
    for (int r = 0; r < 10000; ++r)
        epoch.ranks[0].push_back({"tensor " + std::to_string(r), pattern(r, 100 + r % 1000), {}});
    auto reader = write_and_open(epoch);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    EXPECT_LE(log_.calls.size(), 6u);
}

TEST(ReadPlanTest, AGibibyteTakesAtMostTwentyForwardCalls) {
    void* const memory = mmap(nullptr, GiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    std::vector<StreamExtent> extents;  // chunks of 64 MiB, as a flush leaves them, in scattered order
    for (uint64_t c = 0; c < 16; ++c)
        extents.push_back({0, MiB + (c * 5 % 16) * 64 * MiB, c * 64 * MiB, 64 * MiB});
    extents.push_back({0, MiB + GiB, GiB, 4096});
    std::vector<StreamBlock> blocks;
    for (uint64_t at = 0; at < GiB; at += check_block_bytes)
        blocks.push_back(
            {4096 + at, std::span(static_cast<std::byte*>(memory) + at, check_block_bytes), 0, 0});
    const ReadLimits limits;
    Bytes throw_away(limits.gap_bytes);
    const auto calls = plan_reads(extents, blocks, limits, throw_away);
    EXPECT_LE(calls.size(), 20u);
    uint64_t end = 0, bytes = 0;
    for (const ReadCall& call : calls) {
        EXPECT_GE(call.offset, end);
        EXPECT_LE(call.bytes, limits.call_bytes);
        end = call.offset + call.bytes;
        for (const Piece& piece : call.pieces) bytes += piece.size();
    }
    EXPECT_EQ(bytes, GiB);
    munmap(memory, GiB);
}

TEST(ReadPlanTest, SmallGapsAreReadOverAndLargeOnesAreNot) {
    Bytes memory(300), throw_away(1000);
    const std::span all(memory);
    const std::vector<StreamExtent> extents{{0, 10000, 0, 100000}};
    const std::vector<StreamBlock> blocks{{0, all.subspan(0, 100), {}, 0},
                                          {1100, all.subspan(100, 100), {}, 1},
                                          {2201, all.subspan(200, 100), {}, 2}};
    const auto calls =
        plan_reads(extents, blocks, ReadLimits{.call_bytes = 100000, .gap_bytes = 1000}, throw_away);
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].offset, 10000u);
    EXPECT_EQ(calls[0].bytes, 1200u);
    ASSERT_EQ(calls[0].pieces.size(), 3u);
    EXPECT_EQ(calls[0].pieces[1].data(), throw_away.data());
    EXPECT_EQ(calls[0].pieces[1].size(), 1000u);
    EXPECT_EQ(calls[1].offset, 12201u);
}

TEST(ReadPlanTest, ABlockAcrossTwoExtentsHasAPartInEach) {
    Bytes memory(100);
    const std::vector<StreamExtent> extents{{1, 5000, 0, 60}, {0, 9000, 60, 100}};
    const std::vector<StreamBlock> blocks{{0, memory, {}, 0}};
    const auto calls = plan_reads(extents, blocks, {}, {});
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].file, 0u);
    EXPECT_EQ(calls[0].pieces[0].data(), memory.data() + 60);
    EXPECT_EQ(calls[1].file, 1u);
    EXPECT_EQ(calls[1].bytes, 60u);
}

TEST_F(EpochReaderTest, OpenFilesAreBounded) {
    ASSERT_TRUE(memory_.make_directories("/d").ok());
    ReadableFiles files(3);
    for (int i = 0; i < 10; ++i) {
        const std::string path = "/d/" + std::to_string(i);
        ASSERT_TRUE(memory_.open(path, {Access::create_new}).ok());
        files.add(counted_, path, DirectIo::off);
    }
    for (uint32_t i = 0; i < 10; ++i) {
        auto file = files.open(i);
        ASSERT_TRUE(file.ok());
        EXPECT_EQ((*file)->path(), files.path(i));
    }
    EXPECT_EQ(log_.open_files, 3);
    // The most recent ones are those kept.
    ASSERT_TRUE(memory_.remove("/d/9").ok());
    EXPECT_TRUE(files.open(9).ok());
    ASSERT_TRUE(memory_.remove("/d/0").ok());
    EXPECT_EQ(files.open(0).status().code(), Code::not_found);
}

// ---- damage ---------------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, MismatchInTheCapturedPartIsReadFromTheSharedFilesAndNamed) {
    const BuiltEpoch epoch = one_region(3 * MiB);
    auto reader = write_and_open(epoch, From::both);
    const uint64_t place = place_of(*reader, 0, "density") + MiB + 5;
    flip_in_local(epoch, 0, place);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    EXPECT_THAT(warnings_,
                Contains(AllOf(HasSubstr("/local/built.e000000001"), HasSubstr("checksum mismatch"),
                               HasSubstr("'density'"),
                               HasSubstr("offset " + std::to_string(part_header_bytes + place - 5)))));
}

TEST_F(EpochReaderTest, DamageInEveryTierIsCorruptWithEveryReason) {
    const BuiltEpoch epoch = one_region(MiB);
    auto reader = write_and_open(epoch, From::both);
    const uint64_t place = place_of(*reader, 0, "density");
    flip_in_local(epoch, 0, place);
    flip_in_shared(epoch, 0, place + 100);
    Bytes memory(MiB);
    const Status status = read_one(*reader, 0, "density", memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("/local/"), HasSubstr("/shared/"), HasSubstr("'density'")));
}

TEST_F(EpochReaderTest, DifferentBlocksDamagedInTwoTiersStillReadBack) {
    const BuiltEpoch epoch = one_region(2 * MiB);
    auto reader = write_and_open(epoch, From::both);
    const uint64_t place = place_of(*reader, 0, "density");
    flip_in_local(epoch, 0, place);
    flip_in_shared(epoch, 0, place + MiB);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
}

TEST_F(EpochReaderTest, DamageInALargeRegionIsFoundByTheSecondThread) {
    const BuiltEpoch epoch = one_region(second_thread_bytes + MiB);
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "density") + epoch.ranks[0][0].data.size() - 1);
    Bytes memory(epoch.ranks[0][0].data.size());
    EXPECT_EQ(read_one(*reader, 0, "density", memory).code(), Code::corrupt);
}

TEST_F(EpochReaderTest, DamagedTableOfRegionsIsReadFromTheNextTier) {
    const BuiltEpoch epoch = one_region(1000);
    auto reader = write_and_open(epoch, From::both);
    flip_in_local(epoch, 0, 20);
    EXPECT_TRUE(reader->manifest(0).ok());
    EXPECT_THAT(warnings_, Contains(HasSubstr("the table of regions of rank 0")));
}

TEST_F(EpochReaderTest, DamagedTableOfRegionsIsCorruptWhenItIsTheOnlyOne) {
    const BuiltEpoch epoch = one_region(1000);
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, 20);
    EXPECT_EQ(reader->manifest(0).status().code(), Code::corrupt);
}

TEST_F(EpochReaderTest, FileCutOffAfterItWasOpenedIsNamed) {
    const BuiltEpoch epoch = one_region(3 * MiB);
    auto reader = write_and_open(epoch, From::local);
    ASSERT_TRUE(reader->manifest(0).ok());
    const auto part = sources(epoch, From::local).local_parts.front().path;
    ASSERT_TRUE((*memory_.open(part, {Access::write}))->truncate(2 * MiB).ok());
    Bytes memory(3 * MiB);
    const Status status = read_one(*reader, 0, "density", memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("truncated"), HasSubstr("offset 2097152"), HasSubstr(part)));
}

TEST_F(EpochReaderTest, FileThatWentAwayIsDamageAndTheOtherTierServes) {
    const BuiltEpoch epoch = one_region(1000);
    auto both = write_and_open(epoch, From::both);
    auto local_only = open(epoch, From::local);
    ASSERT_TRUE(memory_.remove(sources(epoch, From::local).local_parts.front().path).ok());
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*both, epoch, 0));
    EXPECT_EQ(local_only->manifest(0).status().code(), Code::corrupt);
}

TEST_F(EpochReaderTest, WithoutChecksumsBytesComeBackAsTheyLie) {
    BuiltEpoch epoch = one_region(500000);
    epoch.has_checksums = false;
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "density") + 7);
    Bytes memory(500000);
    ASSERT_EQ(read_one(*reader, 0, "density", memory).to_string(), "ok");
    EXPECT_NE(memory, epoch.ranks[0][0].data);
    memory[7] ^= std::byte{0x40};
    EXPECT_EQ(memory, epoch.ranks[0][0].data);
}

TEST_F(EpochReaderTest, PartOfAnotherRunIsPassedOverEvenWithTheSameBytes) {
    const BuiltEpoch epoch = one_region(1000);
    ASSERT_TRUE(write_shared_files(memory_, "/shared", epoch).ok());
    BuiltEpoch other = epoch;
    other.run_uid = 0xbad;
    ASSERT_TRUE(write_captured_parts(memory_, "/local", other).ok());
    auto reader = open(epoch, From::both);
    log_.clear();
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    for (const Call& call : log_.calls) EXPECT_THAT(call.path, testing::StartsWith("/shared/"));
    EXPECT_THAT(warnings_, Contains(HasSubstr("passed over")));
}

TEST_F(EpochReaderTest, PartWithAnotherTableOfRegionsIsPassedOver) {
    const BuiltEpoch epoch = one_region(1000);
    ASSERT_TRUE(write_shared_files(memory_, "/shared", epoch).ok());
    BuiltEpoch other = epoch;
    other.ranks[0][0].data = pattern(77, 1000);
    ASSERT_TRUE(write_captured_parts(memory_, "/local", other).ok());
    auto reader = open(epoch, From::both);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
    EXPECT_THAT(warnings_, Contains(HasSubstr("passed over")));
}

TEST_F(EpochReaderTest, PartOfAnotherEpochIsRefused) {
    BuiltEpoch epoch = one_region(1000);
    ASSERT_TRUE(write_captured_parts(memory_, "/local", epoch).ok());
    auto found = sources(epoch, From::local);
    found.key.epoch = 9;
    auto reader = EpochReader::open(memory_, memory_, found);
    EXPECT_EQ(reader.status().code(), Code::invalid_argument);
}

// ---- verify ---------------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, VerifyReadsEverythingInBoundedPieces) {
    BuiltEpoch epoch;
    epoch.chunk_bytes = 4 * MiB;
    epoch.ranks = {{{"a", pattern(1, 40 * MiB), {}}, {"b", pattern(2, 3000), {}}, {"c", pattern(3, 0), {}}}};
    auto reader = write_and_open(epoch);
    uint64_t seen = 0;
    ASSERT_EQ(reader->verify(0, [&](uint64_t bytes) { seen += bytes; }).to_string(), "ok");
    EXPECT_EQ(seen, (*reader->manifest(0))->stream_bytes);
    EXPECT_GE(log_.bytes(), 40 * MiB + 3000);
    for (const Call& call : log_.calls) EXPECT_LE(call.bytes, 8 * MiB);
}

TEST_F(EpochReaderTest, VerifyFindsAFlippedByteAnywhereInTheData) {
    BuiltEpoch epoch;
    epoch.ranks = {
        {{"a", pattern(1, 600000), {}}, {"b", pattern(2, 100), {}}, {"c", pattern(3, 2 * MiB), {}}}};
    auto reader = write_and_open(epoch);
    for (int round = 0; round < 60; ++round) {
        const BuiltRegion& region = epoch.ranks[0][random_() % 3];
        const uint64_t place = place_of(*reader, 0, region.name) + random_() % region.data.size();
        flip_in_shared(epoch, 0, place);
        const Status status = reader->verify(0, {});
        ASSERT_EQ(status.code(), Code::corrupt);
        ASSERT_THAT(status.message(), HasSubstr("'" + region.name + "'"));
        flip_in_shared(epoch, 0, place);
    }
    EXPECT_TRUE(reader->verify(0, {}).ok());
}

TEST_F(EpochReaderTest, VerifyReadsTheTableOfRegionsAgain) {
    const BuiltEpoch epoch = one_region(1000);
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->verify(0, {}).ok());
    flip_in_shared(epoch, 0, 100);
    EXPECT_EQ(reader->verify(0, {}).code(), Code::corrupt);
}

TEST_F(EpochReaderTest, VerifyNamesEveryDamagedRegionInTheLog) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 40 * MiB), {}}, {"b", pattern(2, 100), {}}}};
    epoch.chunk_bytes = 8 * MiB;
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "a"));
    flip_in_shared(epoch, 0, place_of(*reader, 0, "b"));
    EXPECT_EQ(reader->verify(0, {}).code(), Code::corrupt);
    EXPECT_THAT(warnings_, Contains(HasSubstr("'a'")));
    EXPECT_THAT(warnings_, Contains(HasSubstr("'b'")));
}

// ---- questions that make no sense -----------------------------------------------------------------------

TEST_F(EpochReaderTest, MissingRegionNamesTheNearestOne) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"pressure", pattern(1, 10), {}}, {"density", pattern(2, 10), {}}}, {}};
    auto reader = write_and_open(epoch);
    auto missing = reader->region_bytes(0, "densty");
    EXPECT_EQ(missing.status().code(), Code::not_found);
    EXPECT_THAT(missing.status().message(), HasSubstr("'density'"));
    EXPECT_EQ(reader->region_bytes(1, "density").status().code(), Code::not_found);
    EXPECT_EQ(reader->region_bytes(2, "density").status().code(), Code::not_found);
    EXPECT_EQ(*reader->region_bytes(0, "density"), 10u);
}

TEST_F(EpochReaderTest, WrongSizeIsRefusedBeforeAnythingIsRead) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 10), {}}, {"b", pattern(2, 10), {}}}};
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->manifest(0).ok());
    log_.clear();
    Bytes a(10), b(11);
    const RegionTarget targets[] = {{"a", a}, {"b", b}};
    const Status status = reader->read_regions(0, targets);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'b'"), HasSubstr("10 bytes"), HasSubstr("11")));
    EXPECT_EQ(a, Bytes(10));
    EXPECT_TRUE(log_.calls.empty());
}

TEST_F(EpochReaderTest, RankWhoseStreamIsInNoTierIsNotFound) {
    BuiltEpoch epoch;
    epoch.ranks = {{{"a", pattern(1, 10), {}}}, {{"a", pattern(2, 10), {}}}};
    ASSERT_TRUE(write_captured_parts(memory_, "/local", epoch).ok());
    auto found = sources(epoch, From::local);
    found.local_parts.pop_back();
    auto reader = EpochReader::open(memory_, memory_, found);
    ASSERT_TRUE(reader.ok());
    EXPECT_TRUE((*reader)->manifest(0).ok());
    EXPECT_EQ((*reader)->manifest(1).status().code(), Code::not_found);
    EXPECT_EQ((*reader)->arrays().status().code(), Code::not_found);
}

// ---- global arrays --------------------------------------------------------------------------------------

// The box of a counting array: element i (row-major of the global array) is i.
Bytes counted_box(const std::vector<uint64_t>& global, const Box& box) {
    return counting_array("", global, box.offset, box.shape).data;
}

// Cuts `global` into a grid of pieces, ranks in random order.
BuiltEpoch decomposed(std::mt19937_64& random, const std::vector<uint64_t>& global) {
    BuiltEpoch epoch;
    epoch.seed = random();
    epoch.file_count = static_cast<uint32_t>(1 + random() % 3);
    epoch.leaders_per_file = static_cast<uint32_t>(1 + random() % 2);
    std::vector<Box> pieces{{std::vector<uint64_t>(global.size(), 0), global}};
    for (size_t d = 0; d < global.size(); ++d) {
        std::vector<Box> cut;
        for (const Box& piece : pieces) {
            uint64_t at = piece.offset[d];
            const uint64_t end = at + piece.shape[d];
            const uint64_t parts = 1 + random() % 3;
            for (uint64_t p = 0; p < parts; ++p) {
                Box part = piece;
                part.offset[d] = at;
                part.shape[d] = p + 1 == parts ? end - at : random() % (end - at + 1);
                at += part.shape[d];
                cut.push_back(part);
            }
        }
        pieces = std::move(cut);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const Box& piece : pieces)
        epoch.ranks.push_back({{"other", pattern(random(), random() % 5000), {}},
                               counting_array("u", global, piece.offset, piece.shape)});
    return epoch;
}

Box random_box(std::mt19937_64& random, const std::vector<uint64_t>& global) {
    Box box;
    for (uint64_t extent : global) {
        box.offset.push_back(random() % (extent + 1));
        box.shape.push_back(random() % (extent - box.offset.back() + 1));
    }
    return box;
}

TEST_F(EpochReaderTest, AnyBoxOfAnyDecompositionIsAssembled) {
    const std::vector<std::vector<uint64_t>> shapes{{50000},    {300, 500},   {20, 1, 70},    {7, 11, 13, 5},
                                                    {600, 700}, {64, 40, 60}, {3, 2, 4, 3, 5}};
    for (const auto& global : shapes) {
        for (int round = 0; round < 4; ++round) {
            MemoryStorage fresh;
            const BuiltEpoch epoch = decomposed(random_, global);
            ASSERT_TRUE(write_shared_files(fresh, "/shared", epoch).ok());
            auto loaded = load_shared_epoch(fresh, list_shared(fresh, "/shared", "")->front());
            ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
            auto reader = EpochReader::open(
                fresh, fresh, {epoch.key, static_cast<uint32_t>(epoch.ranks.size()), {}, *loaded});
            ASSERT_TRUE(reader.ok());
            auto arrays = (*reader)->arrays();
            ASSERT_TRUE(arrays.ok()) << arrays.status().to_string();
            ASSERT_EQ(arrays->size(), 1u);
            EXPECT_TRUE(arrays->front().complete);
            EXPECT_EQ(arrays->front().shape, global);
            for (int b = 0; b < 6; ++b) {
                const Box box = b == 0 ? Box{std::vector<uint64_t>(global.size(), 0), global}
                                       : random_box(random_, global);
                const Bytes expected = counted_box(global, box);
                Bytes memory(expected.size());
                const Status status = (*reader)->read_box("u", box.offset, box.shape, memory);
                ASSERT_TRUE(status.ok()) << status.to_string();
                ASSERT_EQ(memory, expected);
            }
        }
    }
}

TEST_F(EpochReaderTest, LongRowsAreReadWhereTheyBelong) {
    // Rows of 1.2 MB, one piece wider than the box: every row has check blocks inside and at its edges.
    const std::vector<uint64_t> global{6, 400000};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {4, 400000})},
                   {counting_array("u", global, {4, 0}, {2, 400000})}};
    auto reader = write_and_open(epoch);
    const Box box{{1, 50001}, {5, 300001}};
    const Bytes expected = counted_box(global, box);
    Bytes memory(expected.size());
    ASSERT_EQ(reader->read_box("u", box.offset, box.shape, memory).to_string(), "ok");
    EXPECT_EQ(memory, expected);
}

TEST_F(EpochReaderTest, ABoxReadsOnlyTheCheckBlocksItNeeds) {
    const std::vector<uint64_t> global{2 << 20};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0}, {1 << 20})},
                   {counting_array("u", global, {1 << 20}, {1 << 20})}};
    auto reader = write_and_open(epoch);
    ASSERT_TRUE(reader->arrays().ok());
    log_.clear();
    const Box box{{(1 << 20) - 50}, {100}};
    Bytes memory(400);
    ASSERT_EQ(reader->read_box("u", box.offset, box.shape, memory).to_string(), "ok");
    EXPECT_EQ(memory, counted_box(global, box));
    EXPECT_LE(log_.bytes(), 2 * check_block_bytes);
}

TEST_F(EpochReaderTest, DamageUnderABoxIsFoundAndBesideItIsNot) {
    const std::vector<uint64_t> global{1000, 1000};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {1000, 1000})}};
    auto reader = write_and_open(epoch);
    flip_in_shared(epoch, 0, place_of(*reader, 0, "u") + 3 * MiB);
    const std::vector<uint64_t> at{0, 10}, below{700, 10}, shape{300, 20};
    Bytes memory(300 * 20 * 4);
    EXPECT_EQ(reader->read_box("u", at, shape, memory).to_string(), "ok");
    EXPECT_EQ(reader->read_box("u", below, shape, memory).code(), Code::corrupt);
}

TEST_F(EpochReaderTest, WherePiecesOverlapTheLowestRankCounts) {
    const std::vector<uint64_t> global{40, 60};
    BuiltEpoch epoch;
    std::vector<uint32_t> owner(40 * 60, UINT32_MAX);
    const std::vector<Box> pieces{
        {{5, 5}, {10, 30}}, {{0, 0}, {20, 60}}, {{8, 20}, {32, 40}}, {{0, 0}, {40, 60}}};
    for (uint32_t rank = 0; rank < pieces.size(); ++rank) {
        auto built = counting_array("u", global, pieces[rank].offset, pieces[rank].shape);
        for (size_t i = 0; i < built.data.size(); i += 4) {
            uint32_t element = 0;
            std::memcpy(&element, built.data.data() + i, 4);
            if (owner[element] == UINT32_MAX) owner[element] = rank;
            std::memcpy(built.data.data() + i, &rank, 4);
        }
        epoch.ranks.push_back({built});
    }
    auto reader = write_and_open(epoch);
    Bytes memory(owner.size() * 4);
    const std::vector<uint64_t> zero{0, 0};
    ASSERT_EQ(reader->read_box("u", zero, global, memory).to_string(), "ok");
    EXPECT_EQ(std::memcmp(memory.data(), owner.data(), memory.size()), 0);
}

TEST_F(EpochReaderTest, ElementsNobodySavedAreCorruptAndNamed) {
    const std::vector<uint64_t> global{10, 10};
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", global, {0, 0}, {10, 4})},
                   {counting_array("u", global, {0, 6}, {10, 4})}};
    auto reader = write_and_open(epoch);
    EXPECT_FALSE(reader->arrays()->front().complete);
    const std::vector<uint64_t> zero{0, 0}, covered{10, 4};
    Bytes memory(400), part(160);
    const Status status = reader->read_box("u", zero, global, memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("[0:10, 4:6]"));
    EXPECT_EQ(reader->read_box("u", zero, covered, part).to_string(), "ok");
}

TEST_F(EpochReaderTest, RanksThatDisagreeAboutAnArrayAreNamed) {
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("u", {10}, {0}, {5})}, {counting_array("u", {12}, {5}, {7})}};
    auto reader = write_and_open(epoch);
    EXPECT_FALSE(reader->arrays()->front().complete);
    const std::vector<uint64_t> zero{0}, five{5};
    Bytes memory(20);
    const Status status = reader->read_box("u", zero, five, memory);
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
}

TEST_F(EpochReaderTest, BoxesThatMakeNoSenseAreRefused) {
    BuiltEpoch epoch;
    epoch.ranks = {{counting_array("density", {10, 10}, {0, 0}, {10, 10}), {"plain", pattern(1, 5), {}}}};
    auto reader = write_and_open(epoch);
    Bytes memory(400);
    const std::vector<uint64_t> one{0}, zero{0, 0}, whole{10, 10}, beyond{5, 5}, huge{UINT64_MAX, 2},
        none{0, 10};
    EXPECT_EQ(reader->read_box("density", one, one, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", beyond, whole, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", zero, huge, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", huge, whole, memory).code(), Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", zero, whole, std::span(memory).first(399)).code(),
              Code::invalid_argument);
    EXPECT_EQ(reader->read_box("density", zero, none, {}).to_string(), "ok");
    const Status missing = reader->read_box("densty", zero, whole, memory);
    EXPECT_EQ(missing.code(), Code::not_found);
    EXPECT_THAT(missing.message(), HasSubstr("'density'"));
    EXPECT_EQ(reader->read_box("plain", zero, whole, memory).code(), Code::not_found);
}

}  // namespace
}  // namespace tailrace
