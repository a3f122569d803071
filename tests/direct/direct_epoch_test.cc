// Epochs written straight from memory: what any reader finds in them, whatever N, K and sizes, and what is
// left when it ends early.
#include "direct/direct_epoch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/log.h"
#include "catalog/catalog.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "doubles/watched_storage.h"
#include "read/epoch_reader.h"
#include "storage/forwarding_storage.h"

namespace tailrace::internal {
namespace {

using Bytes = std::vector<std::byte>;

struct RankData {
    std::vector<RegionShape> regions;
    std::vector<Bytes> content;
    std::vector<RegionTail> tail;
};

Bytes random_bytes(std::mt19937_64& random, uint64_t bytes) {
    Bytes content(bytes);
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t number = random();
        std::memcpy(content.data() + i, &number, std::min<uint64_t>(8, bytes - i));
    }
    return content;
}

RankData random_rank(std::mt19937_64& random, bool with_tail) {
    RankData data;
    const uint64_t sizes[] = {0, 1, 63, 64, 4096, 262144, 262145, 900000, 1 << 20, (2 << 20) + 17};
    const size_t count = random() % 6;
    for (size_t i = 0; i < count; ++i) {
        const uint64_t bytes = sizes[random() % std::size(sizes)];
        data.regions.push_back({"r" + std::to_string(i), bytes, std::nullopt});
        data.content.push_back(random_bytes(random, bytes));
    }
    for (uint64_t bytes : {uint64_t{300}, uint64_t{0}, uint64_t{1} << 20})
        if (with_tail) {
            const std::string name = "t" + std::to_string(bytes);
            data.tail.push_back({{name, bytes, std::nullopt}, random_bytes(random, bytes)});
        }
    return data;
}

DirectEpochSettings settings_of(uint32_t ranks, uint32_t files, uint64_t epoch = 7) {
    return {.directory = "dir", .epoch = epoch, .files = files, .ranks = ranks};
}

std::vector<RegionShape> tail_shapes(const RankData& data) {
    std::vector<RegionShape> shapes;
    for (const auto& tail : data.tail) shapes.push_back(tail.shape);
    return shapes;
}

// Who writes the heads of the ranks other than the first.
enum class Heads { by_coordinator, by_ranks };

struct How {
    uint32_t files = 1;
    uint64_t epoch = 7;
    double room = 1;  // the share of head_bytes that is left free in front
    Heads heads = Heads::by_coordinator;
};

// What the ranks do, one after another: each its runs behind those of the ranks before it.
Result<std::vector<DirectEntry>> write_ranks(Storage& storage, const DirectEpoch& epoch,
                                             const std::vector<RankData>& data, const How& how) {
    const uint32_t files = how.files;
    const auto ranks = static_cast<uint32_t>(data.size());
    std::vector<uint64_t> ends(files, epoch.data_start()), heads;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        TAILRACE_ASSIGN(const uint64_t head, head_bytes(data[rank].regions, tail_shapes(data[rank])));
        const auto blocks = static_cast<uint64_t>(static_cast<double>(head / 4096) * how.room);
        heads.push_back(ends[first_file_of(rank, ranks, files)]);
        ends[first_file_of(rank, ranks, files)] += blocks * 4096;
    }
    std::vector<DirectEntry> written;
    const DirectWriteOptions options{.threads = 2, .buffer_bytes = 512 << 10, .nice = 0};
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        const uint32_t first = first_file_of(rank, ranks, files), last = last_file_of(rank, ranks, files);
        TAILRACE_ASSIGN(const auto layout, lay_out_regions(data[rank].regions, last - first));
        DirectRank out{data[rank].regions, {}, {}, data[rank].tail};
        std::vector<RunPlace> places;
        for (uint32_t run = 0; run < layout.runs.size(); ++run) {
            places.push_back({epoch.paths()[first + run], ends[first + run]});
            out.file_offsets.push_back(ends[first + run]);
            ends[first + run] += layout.runs[run].bytes;
        }
        const std::vector<std::span<const std::byte>> memory(data[rank].content.begin(),
                                                             data[rank].content.end());
        if (how.heads == Heads::by_ranks && rank > 0) {
            TAILRACE_ASSIGN(auto whole,
                            write_stream(storage, rank, ranks, data[rank].regions, data[rank].tail, memory,
                                         {heads[rank], places}, options));
            written.emplace_back(std::move(whole));
            continue;
        }
        TAILRACE_ASSIGN(out.crcs, write_runs(storage, layout, memory, places, options));
        written.emplace_back(std::move(out));
    }
    return written;
}

Result<CheckedArrays> check_all(const std::vector<RankData>& data) {
    std::vector<std::vector<RegionShape>> shapes;
    for (const RankData& rank : data) shapes.push_back(rank.regions);
    return CheckedArrays::check(shapes);
}

Status save(Storage& storage, const std::vector<RankData>& data, const How& how) {
    TAILRACE_ASSIGN(auto begun, DirectEpoch::begin(storage, settings_of(static_cast<uint32_t>(data.size()),
                                                                        how.files, how.epoch)));
    TAILRACE_ASSIGN(const auto written, write_ranks(storage, *begun, data, how));
    TAILRACE_ASSIGN(const auto checked, check_all(data));
    return begun->commit(written, checked);
}

Result<std::unique_ptr<EpochReader>> open_newest(Storage& storage) {
    TAILRACE_ASSIGN(const auto listed, list_shared(storage, "dir", ""));
    if (listed.empty()) return Status(Code::not_found, "nothing is there");
    TAILRACE_ASSIGN(auto shared, load_shared_epoch(storage, listed.back()));
    EpochSources sources;
    sources.key = shared.key;
    sources.rank_count = shared.rank_count;
    sources.shared = std::move(shared);
    return EpochReader::open(storage, storage, std::move(sources));
}

void expect_holds(EpochReader& reader, const std::vector<RankData>& data) {
    ASSERT_EQ(reader.rank_count(), data.size());
    for (uint32_t rank = 0; rank < data.size(); ++rank) {
        std::vector<Bytes> expected = data[rank].content;
        std::vector<std::string> names;
        for (const auto& region : data[rank].regions) names.push_back(region.name);
        for (const auto& tail : data[rank].tail) {
            names.push_back(tail.shape.name);
            expected.push_back(tail.content);
        }
        for (size_t i = 0; i < names.size(); ++i) {
            Bytes got(expected[i].size());
            const RegionTarget target{names[i], got};
            const Status read = reader.read_regions(rank, {&target, 1});
            ASSERT_TRUE(read.ok()) << read.to_string();
            EXPECT_EQ(got, expected[i]) << "rank " << rank << " " << names[i];
        }
        EXPECT_TRUE(reader.verify(rank, {}).ok());
    }
}

TEST(DirectEpochTest, HoldsEveryRanksRegionsInExactlyKFiles) {
    const uint64_t seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (uint32_t ranks : {1u, 2u, 3u, 7u}) {
        for (uint32_t files : {1u, 2u, 3u, 5u, 9u}) {
            SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(files) + " files");
            std::vector<RankData> data;
            for (uint32_t rank = 0; rank < ranks; ++rank) data.push_back(random_rank(random, rank % 2 == 0));
            for (const auto& [room, heads] :
                 {std::pair{0.0, Heads::by_coordinator}, std::pair{0.5, Heads::by_coordinator},
                  std::pair{1.0, Heads::by_coordinator}, std::pair{2.0, Heads::by_coordinator},
                  std::pair{1.0, Heads::by_ranks}, std::pair{2.0, Heads::by_ranks}}) {
                MemoryStorage storage;
                const Status saved = save(storage, data, {.files = files, .room = room, .heads = heads});
                ASSERT_TRUE(saved.ok()) << saved.to_string();
                EXPECT_EQ(storage.list("dir")->size(), files);
                auto reader = open_newest(storage);
                ASSERT_TRUE(reader.ok()) << reader.status().to_string();
                expect_holds(**reader, data);
            }
        }
    }
}

// What a reader needs first lies first: each rank's manifest and tail, rank by rank, then the data.
TEST(DirectEpochTest, HeadsLieInFrontOfTheDataWhereTheRanksLeaveRoom) {
    std::mt19937_64 random(3);
    for (const auto& [room, heads] :
         {std::pair{1.0, Heads::by_coordinator}, std::pair{0.9, Heads::by_coordinator},
          std::pair{1.0, Heads::by_ranks}}) {
        MemoryStorage storage;
        std::vector<RankData> data;
        for (uint32_t rank = 0; rank < 3; ++rank) {
            data.push_back(random_rank(random, true));
            data.back().regions.push_back({"last", 5000, std::nullopt});
            data.back().content.push_back(random_bytes(random, 5000));
        }
        ASSERT_TRUE(save(storage, data, {.room = room, .heads = heads}).ok());
        const auto shared = load_shared_epoch(storage, list_shared(storage, "dir", "")->front());
        ASSERT_TRUE(shared.ok()) << shared.status().to_string();
        uint64_t head_end = 0;
        uint64_t data_start = UINT64_MAX;
        for (const StreamMap& stream : shared->streams) {
            ASSERT_EQ(stream.extents.size(), 3u);  // manifest, data, tail
            EXPECT_GE(stream.extents[0].file_offset, room == 1 ? head_end : 0);
            EXPECT_GE(stream.extents[2].file_offset,
                      room == 1 ? stream.extents[0].file_offset + stream.extents[0].bytes : 0);
            data_start = std::min(data_start, stream.extents[1].file_offset);
            head_end = std::max(head_end, stream.extents[2].file_offset + stream.extents[2].bytes);
        }
        EXPECT_EQ(head_end <= data_start, room == 1);
    }
}

// Not from the file's beginning, where other ranks write.
TEST(DirectEpochTest, EachRankReservesItsOwnRunBeforeItWritesThere) {
    std::mt19937_64 random(7);
    std::vector<RankData> data;
    for (uint64_t bytes : {uint64_t{5000}, uint64_t{1} << 20, uint64_t{300000}})
        data.push_back({{{"a", bytes, {}}}, {random_bytes(random, bytes)}, {}});
    WatchedStorage storage(std::make_shared<MemoryStorage>());
    auto begun = DirectEpoch::begin(storage, settings_of(3, 1));
    ASSERT_TRUE(begun.ok());
    const size_t before = storage.calls().size();
    const auto written = write_ranks(storage, **begun, data, {});
    ASSERT_TRUE(written.ok());
    std::vector<std::pair<uint64_t, uint64_t>> runs, reserved;
    for (uint32_t rank = 0; rank < 3; ++rank)
        runs.emplace_back(std::get<DirectRank>((*written)[rank]).file_offsets[0],
                          lay_out_regions(data[rank].regions, 1)->runs[0].bytes);
    const auto calls = storage.calls();
    for (size_t i = before; i < calls.size(); ++i) {
        const WatchedCall& call = calls[i];
        if (call.what == "reserve") reserved.emplace_back(call.offset, call.bytes);
        if (call.what != "write") continue;
        ASSERT_FALSE(reserved.empty());
        EXPECT_GE(call.offset, reserved.back().first);
        EXPECT_LE(call.offset + call.bytes, reserved.back().first + reserved.back().second);
    }
    EXPECT_EQ(reserved, runs);
}

class OneRankTest : public testing::Test {
  protected:
    OneRankTest() {
        set_log_callback([](LogLevel, std::string_view) {});
    }
    ~OneRankTest() override { set_log_callback({}); }

    std::mt19937_64 random{5};
    std::vector<RankData> older{random_rank(random, true)}, newer{random_rank(random, true)};
    MemoryStorage storage;
};

TEST_F(OneRankTest, IsNotThereBeforeItIsCommittedAndLeavesNothingWhenGivenUp) {
    ASSERT_TRUE(save(storage, older, {.files = 1}).ok());
    {
        auto begun = DirectEpoch::begin(storage, settings_of(1, 1));
        ASSERT_TRUE(begun.ok());
        ASSERT_TRUE(write_ranks(storage, **begun, newer, {}).ok());
        EXPECT_EQ(open_newest(storage).status().code(), Code::not_found);
        EXPECT_EQ(DirectEpoch::begin(storage, settings_of(1, 1)).status().code(), Code::busy);
    }
    EXPECT_EQ(storage.list("dir")->size(), 1u);
    expect_holds(**open_newest(storage), older);
}

TEST_F(OneRankTest, WhatARankHasWrittenIsDurableBeforeTheCommit) {
    const std::vector<RankData> data{{{{"a", 3 << 20, {}}}, {random_bytes(random, 3 << 20)}, {}}};
    auto begun = DirectEpoch::begin(storage, settings_of(1, 1));
    ASSERT_TRUE(begun.ok());
    const auto written = write_ranks(storage, **begun, data, {});
    ASSERT_TRUE(written.ok());
    storage.crash(random);
    auto file = storage.open((*begun)->paths()[0], {Access::read, DirectIo::off});
    ASSERT_TRUE(file.ok());
    Bytes found(data[0].content[0].size());
    ASSERT_TRUE((*file)->read_at(found, std::get<DirectRank>((*written)[0]).file_offsets[0]).ok());
    EXPECT_EQ(found, data[0].content[0]);
}

TEST_F(OneRankTest, AFullDiskIsFoundBeforeAnythingIsWritten) {
    const std::vector<RankData> data{{{{"a", 3 << 20, {}}}, {random_bytes(random, 3 << 20)}, {}}};
    auto begun = DirectEpoch::begin(storage, settings_of(1, 1));
    ASSERT_TRUE(begun.ok());
    const uint64_t before = storage.used_bytes();
    storage.set_capacity(before + (2 << 20));
    const Status full = write_ranks(storage, **begun, data, {}).status();
    EXPECT_EQ(full.code(), Code::no_space);
    EXPECT_THAT(full.message(), testing::HasSubstr("reserving"));
    EXPECT_EQ(storage.used_bytes(), before);
}

TEST_F(OneRankTest, TheHeadThatARankHasWrittenIsDurableBeforeTheCommit) {
    // With data and without: then nothing else of the rank is synced.
    for (const uint64_t bytes : {uint64_t{3} << 20, uint64_t{0}}) {
        const std::vector<RegionShape> regions{{"a", bytes, {}}};
        const Bytes content = random_bytes(random, bytes), tail = random_bytes(random, 5000);
        const std::vector<std::span<const std::byte>> memory{content};
        auto begun = DirectEpoch::begin(storage, settings_of(2, 1));
        ASSERT_TRUE(begun.ok());
        const uint64_t head = (*begun)->data_start(), data = head + (1 << 20);
        const auto written = write_stream(storage, 1, 2, regions, {{{"t", 5000, {}}, tail}}, memory,
                                          {head, {{(*begun)->paths()[0], data}}}, {});
        ASSERT_TRUE(written.ok()) << written.status().to_string();
        storage.crash(random);
        auto file = storage.open((*begun)->paths()[0], {Access::read, DirectIo::off});
        ASSERT_TRUE(file.ok());
        Bytes found(written->info.manifest_bytes);
        ASSERT_TRUE((*file)->read_at(found, head).ok());
        const auto manifest = decode_manifest(found);
        ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
        EXPECT_EQ(manifest->rank, 1u);
        Bytes behind(5000);
        ASSERT_TRUE((*file)->read_at(behind, head + found.size()).ok());
        EXPECT_EQ(behind, tail);
    }
}

TEST_F(OneRankTest, PlacesThatAReaderWouldRefuseAreRefusedBeforeTheCommit) {
    const std::vector<RankData> data{random_rank(random, true), {{{"a", 5000, {}}}, {Bytes(5000)}, {}}};
    for (const uint64_t shift : {uint64_t{0}, uint64_t{100}}) {
        auto begun = DirectEpoch::begin(storage, settings_of(2, 1));
        ASSERT_TRUE(begun.ok());
        auto written = write_ranks(storage, **begun, data, {.heads = Heads::by_ranks});
        ASSERT_TRUE(written.ok());
        std::get<WrittenRank>((*written)[1]).files[0].extents[0].file_offset += shift;
        const Status committed = (*begun)->commit(*written, *check_all(data));
        EXPECT_EQ(committed.code(), shift == 0 ? Code::ok : Code::invalid_argument) << committed.message();
        if (shift != 0) {
            EXPECT_THAT(committed.message(), testing::HasSubstr("is not a multiple of the block"));
        }
        EXPECT_EQ((*begun)->commit(*written, *check_all(data)).code(), Code::failed_state) << "a second time";
    }
    expect_holds(**open_newest(storage), data);
}

TEST_F(OneRankTest, AStreamOfWhichAFileLacksAPieceIsRefusedBeforeTheCommit) {
    // The second rank has two files, with a region in each.
    const RankData two{{{"a", 5000, {}}, {"b", 5000, {}}}, {Bytes(5000), Bytes(5000)}, {}};
    const std::vector<RankData> data{two, two};
    for (const bool whole : {false, true}) {
        auto begun = DirectEpoch::begin(storage, settings_of(2, 4));
        ASSERT_TRUE(begun.ok());
        auto written = write_ranks(storage, **begun, data, {.files = 4, .heads = Heads::by_ranks});
        ASSERT_TRUE(written.ok());
        auto& extents = std::get<WrittenRank>((*written)[1]).files[1].extents;
        ASSERT_EQ(extents.size(), 1u);
        if (!whole) extents.clear();
        const Status committed = (*begun)->commit(*written, *check_all(data));
        EXPECT_EQ(committed.code(), whole ? Code::ok : Code::invalid_argument) << committed.message();
        if (!whole) {
            EXPECT_THAT(committed.message(), testing::HasSubstr("nothing holds the stream of rank 1"));
        }
    }
    expect_holds(**open_newest(storage), data);
}

TEST_F(OneRankTest, ReplacesAnEarlierAttemptAtTheSameEpochOnly) {
    ASSERT_TRUE(save(storage, older, {.files = 2, .epoch = 7}).ok());
    ASSERT_TRUE(save(storage, newer, {.files = 1, .epoch = 8}).ok());
    EXPECT_EQ(storage.list("dir")->size(), 3u);
    ASSERT_TRUE(save(storage, older, {.files = 1, .epoch = 8}).ok());
    EXPECT_EQ(storage.list("dir")->size(), 3u);
    expect_holds(**open_newest(storage), older);
}

TEST_F(OneRankTest, ACrashAtAnyPointLeavesTheOldEpochOrTheNewOne) {
    // Every write and sync in turn is the last one that happens, four times over; what was not synced is lost
    // in part. The second rank writes its head by itself.
    constexpr uint64_t times = 4;
    newer.push_back(random_rank(random, true));
    uint64_t crashes = 0, committed = 0;
    for (bool more = true; more; ++crashes) {
        const uint64_t point = 1 + crashes / times;
        auto memory = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(save(*memory, older, {.files = 1}).ok());
        FaultPlan plan;
        plan.die_at_operation = point;
        FaultyStorage faulty(memory, point, plan);
        const Status saved = save(faulty, newer, {.files = 2, .heads = Heads::by_ranks});
        more = faulty.dead();
        memory->crash(random);
        const auto listed = list_shared(*memory, "dir", "");
        ASSERT_TRUE(listed.ok());
        std::vector<uint32_t> complete;  // runs, ascending
        for (const auto& files : *listed)
            if (load_shared_epoch(*memory, files).ok()) complete.push_back(files.key.run);
        ASSERT_FALSE(complete.empty()) << "operation " << point;
        if (saved.ok()) {
            EXPECT_EQ(complete.back(), 2u) << "operation " << point;
        }
        if (complete.back() == 2) {
            ++committed;
            expect_holds(**open_newest(*memory), newer);
        }
    }
    EXPECT_GT(crashes, 15 * times);
    EXPECT_GT(committed, 0u);
    EXPECT_LT(committed, crashes - times);
}

TEST_F(OneRankTest, AnAttemptWhoseRemovalIsCutShortIsMarkedUnfinished) {
    // Every operation in turn is the last one that happens. A final name among files that are no complete
    // epoch would be taken for the rest of a damaged checkpoint, which nobody removes.
    constexpr uint64_t times = 8;
    uint64_t crashes = 0, cut_short = 0;
    for (bool more = true; more; ++crashes) {
        auto memory = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(save(*memory, older, {.files = 3}).ok());
        FaultPlan plan;
        plan.die_at_operation = 1 + crashes / times;
        FaultyStorage faulty(memory, plan.die_at_operation, plan);
        (void)save(faulty, newer, {.files = 1});
        more = faulty.dead();
        memory->crash(random);
        const auto listed = list_shared(*memory, "dir", "");
        ASSERT_TRUE(listed.ok());
        for (const auto& files : *listed) {
            if (load_shared_epoch(*memory, files).ok()) continue;
            EXPECT_TRUE(has_unfinished(files)) << to_string(files.key) << " has " << files.files.size()
                                               << " files; died at operation " << plan.die_at_operation;
            if (files.key.run == 1) ++cut_short;
        }
    }
    EXPECT_GT(cut_short, 0u);
}

// Another save ends, and removes the directory, between the making of it and the locking.
class VanishingStorage : public test::ForwardingStorage {
  public:
    using ForwardingStorage::ForwardingStorage;
    Status make_directories(const std::string& path) override {
        ++made;
        return ForwardingStorage::make_directories(path);
    }
    Result<std::unique_ptr<DirectoryLock>> lock_directory(const std::string& path, LockKind kind) override {
        if (vanishes > 0 && vanishes-- > 0) return Status(Code::not_found, "it is gone");
        return ForwardingStorage::lock_directory(path, kind);
    }
    int made = 0, vanishes = 0;
};

TEST_F(OneRankTest, ADirectoryThatIsRemovedBeforeItIsLockedIsMadeAgain) {
    VanishingStorage vanishing(std::make_shared<MemoryStorage>());
    vanishing.vanishes = 2;
    EXPECT_TRUE(save(vanishing, older, {.files = 1}).ok());
    EXPECT_EQ(vanishing.made, 3);
    vanishing.vanishes = 1 << 20;
    EXPECT_EQ(save(vanishing, newer, {.files = 2}).code(), Code::not_found) << "it must give up some time";
}

TEST_F(OneRankTest, RefusesWhatCannotBe) {
    const Status too_many = DirectEpoch::begin(storage, settings_of(1, 65)).status();
    EXPECT_EQ(too_many.code(), Code::invalid_argument);
    EXPECT_TRUE(too_many.message().starts_with("65 files for 1 rank: ")) << too_many.message();
    EXPECT_EQ(DirectEpoch::begin(storage, settings_of(0, 1)).status().code(), Code::invalid_argument);
    auto begun = DirectEpoch::begin(storage, settings_of(1, 1));
    const std::vector<RankData> small{{{{"a", 100, {}}}, {random_bytes(random, 100)}, {}}};
    auto written = write_ranks(storage, **begun, small, {});
    const auto checked = check_all(small);
    ASSERT_TRUE(checked.ok());
    EXPECT_EQ((*begun)->commit({}, *checked).code(), Code::invalid_argument);
    const Status unchecked = (*begun)->commit(*written, *check_all(newer));
    EXPECT_EQ(unchecked.code(), Code::invalid_argument);
    EXPECT_THAT(unchecked.message(), testing::HasSubstr("was checked with other regions of rank 0"));
    std::get<DirectRank>((*written)[0]).crcs.back().clear();
    EXPECT_EQ((*begun)->commit(*written, *checked).code(), Code::invalid_argument);
    EXPECT_EQ(lay_out_regions({{"a", 1, {}}, {"a", 1, {}}}, 1).status().code(), Code::invalid_argument);
}

// A rank that saves rows [first, last) of an array of `rows` numbers.
RankData rows_of(uint64_t rows, uint64_t first, uint64_t last, bool may_overlap = false) {
    ArrayPiece piece{ElementType::uint8, {rows}, {first}, {last - first}};
    piece.may_overlap = may_overlap;
    return {{{"u", last - first, piece}}, {Bytes(last - first)}, {}};
}

TEST(DirectEpochTest, ArraysThatCannotBeRestoredAreRefusedBeforeTheCommit) {
    MemoryStorage storage;
    ASSERT_TRUE(save(storage, {rows_of(8, 0, 4), rows_of(8, 4, 8)}, {.epoch = 1}).ok());
    const auto refused = [&](const std::vector<RankData>& data, const std::string& part) {
        const Status saved = save(storage, data, {.files = 1, .epoch = 2});
        EXPECT_EQ(saved.code(), Code::invalid_argument);
        EXPECT_THAT(saved.message(), testing::HasSubstr(part));
        auto reader = open_newest(storage);
        ASSERT_TRUE(reader.ok()) << reader.status().to_string();
        EXPECT_EQ((*reader)->key().epoch, 1u);
        EXPECT_EQ(storage.list("dir")->size(), 1u);
    };
    refused({rows_of(8, 0, 4), rows_of(8, 4, 6)},
            "elements [6:8] of array 'u' (uint8 [8]) are in no rank's piece");
    refused({rows_of(8, 0, 5), rows_of(8, 4, 8)},
            "elements [4:5] of array 'u' (uint8 [8]) are in two pieces");
    refused({rows_of(8, 0, 8), rows_of(9, 0, 9)}, "array 'u' cannot be put together");
    EXPECT_TRUE(save(storage, {rows_of(8, 0, 5, true), rows_of(8, 4, 8, true)}, {.epoch = 2}).ok());
}

}  // namespace
}  // namespace tailrace::internal
