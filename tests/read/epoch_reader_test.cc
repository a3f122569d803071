// Reading epochs back: that the bytes are right, and that files are read in few large forward steps. Damage
// is in epoch_damage_test, global arrays in epoch_box_test.
#include "read/epoch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "read/epoch_reader_files.h"
#include "read/epoch_reader_fixture.h"
#include "read/epoch_reader_plan.h"
#include "read/epoch_reader_stream.h"

namespace tailrace::internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

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

// ---- places ---------------------------------------------------------------------------------------------

TEST_F(EpochReaderTest, APlaceHoldsTheBytesOfItsRegionAndARegionInPiecesHasNone) {
    size_t together = 0, in_pieces = 0;
    for (int round = 0; round < 20; ++round) {
        for (const From from : {From::shared, From::local}) {
            MemoryStorage fresh;
            const BuiltEpoch epoch = random_epoch();
            EpochSources found{epoch.key, static_cast<uint32_t>(epoch.ranks.size()), {}, {}};
            if (from == From::shared) {
                ASSERT_TRUE(write_shared_files(fresh, "/shared", epoch).ok());
                found.shared = *load_shared_epoch(fresh, list_shared(fresh, "/shared", "")->front());
            } else {
                ASSERT_TRUE(write_captured_parts(fresh, "/local", epoch).ok());
                found.local_parts = list_local(fresh, "/local", "")->parts;
            }
            auto reader = EpochReader::open(fresh, fresh, found);
            ASSERT_TRUE(reader.ok()) << reader.status().to_string();
            for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank) {
                const auto places = (*reader)->places(rank);
                ASSERT_TRUE(places.ok()) << places.status().to_string();
                ASSERT_EQ(places->size(), epoch.ranks[rank].size());
                for (size_t r = 0; r < places->size(); ++r) {
                    const Bytes& saved = epoch.ranks[rank][r].data;
                    const auto& place = (*places)[r];
                    if (!place) {
                        // A captured part is one file, in the order of the stream.
                        EXPECT_TRUE(saved.empty() || from == From::shared);
                        if (!saved.empty()) ++in_pieces;
                        continue;
                    }
                    auto file = fresh.open(place->path, {});
                    ASSERT_TRUE(file.ok()) << file.status().to_string();
                    Bytes there(saved.size());
                    ASSERT_EQ(*(*file)->read_at(there, place->offset), there.size());
                    EXPECT_EQ(there, saved) << place->path << " offset " << place->offset;
                    if (from == From::shared) ++together;
                }
            }
        }
    }
    EXPECT_GT(together, 0u);
    EXPECT_GT(in_pieces, 0u);
}

TEST_F(EpochReaderTest, ARegionOverExtentsThatFollowOneAnotherInTheFileHasOnePlace) {
    BuiltEpoch epoch;
    epoch.file_count = 1;
    epoch.ranks = {{{"a", pattern(1, 30000), {}}}};
    ASSERT_TRUE(write_shared_files(memory_, "/shared", epoch).ok());
    const EpochSources whole = sources(epoch, From::shared);
    ASSERT_EQ(whole.shared->streams[0].extents.size(), 1u);
    const StreamExtent all = whole.shared->streams[0].extents[0];
    const auto place_with = [&](const std::vector<StreamExtent>& extents) {
        EpochSources cut = whole;
        cut.shared->streams[0].extents = extents;
        auto reader = EpochReader::open(counted_, counted_, cut);
        EXPECT_TRUE(reader.ok()) << reader.status().to_string();
        return (*reader)->places(0)->at(0);
    };
    const uint64_t table = place_with({all})->offset - all.file_offset;
    const uint64_t first = table + 10000;  // the cut lies within the region
    const StreamExtent front{all.file, all.file_offset, 0, first};
    StreamExtent back{all.file, all.file_offset + first, first, all.bytes - first};
    const auto place = place_with({front, back});
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->offset, all.file_offset + table);
    back.file_offset += 4096;
    EXPECT_FALSE(place_with({front, back}).has_value());
}

TEST_F(EpochReaderTest, PlacesOfARankThatIsNotThereAreNotFound) {
    auto reader = write_and_open(one_region(100));
    EXPECT_EQ(reader->places(1).status().code(), Code::not_found);
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
            // A group of one rank and one file: its chunks lie next to each other, in any order, so that
            // calls are as large as they may be.
            EXPECT_LE(log_.calls.size(), 3u);
        }
    }
}

TEST_F(EpochReaderTest, LargeRegionsThatComeByWayOfBuffersLieWhereTheyBelongAndNothingElseIsTouched) {
    BuiltEpoch epoch;
    epoch.file_count = 1;
    epoch.chunk_bytes = 32 * MiB;
    // What is asked for begins within a page, and nobody asks for what lies before it.
    epoch.ranks = {{{"left out", pattern(5, 300), {}},
                    {"b", pattern(2, 500), {}},
                    {"a", pattern(1, 9 * MiB + 13), {}},
                    {"c", pattern(3, 11 * MiB + 5), {}}},
                   {{"a", pattern(4, 5 * MiB), {}}}};
    auto reader = write_and_open(epoch, From::shared);
    const auto& b = epoch.ranks[0][1].data;
    const auto& a = epoch.ranks[0][2].data;
    const auto& c = epoch.ranks[0][3].data;
    ASSERT_GT(a.size() + c.size(), second_thread_bytes);
    const auto guarded = [](size_t bytes) { return Bytes(bytes + 2, std::byte{0xEE}); };
    Bytes at_a = guarded(a.size()), at_b = guarded(b.size()), at_c = guarded(c.size());
    const std::vector<RegionTarget> targets{{"a", std::span(at_a).subspan(1, a.size())},
                                            {"b", std::span(at_b).subspan(1, b.size())},
                                            {"c", std::span(at_c).subspan(1, c.size())}};
    ASSERT_TRUE(reader->manifest(0).ok());
    log_.clear();
    const auto read = reader->read_regions(0, targets);
    ASSERT_TRUE(read.ok()) << read.to_string();
    for (const auto& [found, saved] : {std::pair(&at_a, &a), std::pair(&at_b, &b), std::pair(&at_c, &c)}) {
        EXPECT_TRUE(std::equal(saved->begin(), saved->end(), found->begin() + 1));
        EXPECT_EQ(found->front(), std::byte{0xEE});
        EXPECT_EQ(found->back(), std::byte{0xEE});
    }
    expect_whole_pages_forwards();
}

TEST_F(EpochReaderTest, APageInWhichTwoCallsMeetIsReadOnce) {
    BuiltEpoch epoch;
    epoch.file_count = 1;
    epoch.chunk_bytes = 64 * MiB;
    epoch.ranks.resize(1);
    for (int r = 0; r < 50; ++r) epoch.ranks[0].push_back({std::to_string(r), pattern(r, 700001), {}});
    auto reader = write_and_open(epoch, From::shared);
    std::vector<Bytes> found;
    std::vector<RegionTarget> targets;
    for (const auto& region : epoch.ranks[0]) found.emplace_back(region.data.size());
    for (size_t r = 0; r < found.size(); ++r) targets.push_back({epoch.ranks[0][r].name, found[r]});
    ASSERT_TRUE(reader->manifest(0).ok());
    log_.clear();
    ASSERT_TRUE(reader->read_regions(0, targets).ok());
    for (size_t r = 0; r < found.size(); ++r) EXPECT_EQ(found[r], epoch.ranks[0][r].data);
    EXPECT_GE(log_.calls.size(), 4u);
    expect_whole_pages_forwards();
}

TEST_F(EpochReaderTest, UncachedReadsAreLongAndGoToTheirPlaceAtOnce) {
    log_.route = Route::uncached;
    BuiltEpoch epoch;
    epoch.file_count = 1;
    epoch.chunk_bytes = 128 * MiB;
    epoch.ranks.resize(1);
    epoch.ranks[0].push_back({"u", pattern(1, 100 * MiB + 12345), {}});
    auto reader = write_and_open(epoch, From::shared);
    Bytes found(epoch.ranks[0][0].data.size());
    const std::vector<RegionTarget> targets = {{"u", found}};
    ASSERT_TRUE(reader->manifest(0).ok());
    log_.clear();
    ASSERT_TRUE(reader->read_regions(0, targets).ok());
    EXPECT_EQ(found, epoch.ranks[0][0].data);
    EXPECT_EQ(log_.calls.size(), 2u);  // of 52 MiB: 20 for a GiB
    EXPECT_EQ(log_.bytes(), found.size());
    EXPECT_EQ(log_.backward_steps(), 0u);
}

TEST_F(EpochReaderTest, AWayThatTheFileSystemHasNotIsNoDamage) {
    log_.only_cached = true;
    BuiltEpoch epoch;
    epoch.ranks.resize(1);
    epoch.ranks[0].push_back({"u", pattern(1, 100'000), {}});
    auto reader = write_and_open(epoch, From::shared);
    ASSERT_NO_FATAL_FAILURE(expect_rank_reads_back(*reader, epoch, 0));
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
        files.add({&counted_, path, DirectIo::off, {}});
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

}  // namespace
}  // namespace tailrace::internal
