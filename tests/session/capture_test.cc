// Capture: regions into a part of the node-local tier, by every way it can be written, and what is left when
// it fails.
#include "capture/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>

#include "base/crc32c.h"
#include "capture/local_tier.h"
#include "session/cluster.h"
#include "session/spoiling_storage.h"
#include "storage/posix_storage.h"
#include "threads/no_threads.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct CaptureCase {
    bool map;
    bool checksum;
    uint32_t threads;
};

// Without it a test is named after the bytes of its case, padding and all, and another name in each run.
void PrintTo(const CaptureCase& way, std::ostream* out) {
    *out << (way.map ? "mapped" : "written") << (way.checksum ? "Checksummed" : "Plain") << way.threads;
}

class CaptureTest : public ::testing::TestWithParam<CaptureCase> {};

PartHeader header_for(uint64_t epoch) {
    PartHeader header;
    header.job = "job";
    header.key = {epoch, 1};
    header.run_uid = 5;
    header.rank_count = 3;
    header.stream.rank = 2;
    return header;
}

std::vector<std::byte> read_all(Storage& storage, const std::string& path) {
    auto file = storage.open(path, {Access::read, DirectIo::off});
    if (!file.ok()) return {};
    std::vector<std::byte> bytes((*file)->size().value());
    auto got = (*file)->read_at(bytes, 0);
    return got.ok() ? bytes : std::vector<std::byte>();
}

void expect_part(Storage& storage, const OwnPart& part, const std::vector<std::vector<std::byte>>& data,
                 bool checksum) {
    const auto bytes = read_all(storage, part.path);
    ASSERT_GE(bytes.size(), part_header_bytes + part.stream.stream_bytes);
    auto header = decode_part_header(std::span(bytes).first(part_header_bytes));
    ASSERT_TRUE(header.ok()) << header.status().to_string();
    EXPECT_EQ(header->stream, part.stream);
    const auto stream = std::span(bytes).subspan(part_header_bytes, part.stream.stream_bytes);
    const auto manifest_bytes = stream.first(part.stream.manifest_bytes);
    EXPECT_EQ(crc32c(manifest_bytes), part.stream.manifest_crc);
    auto manifest = decode_manifest(manifest_bytes);
    ASSERT_TRUE(manifest.ok()) << manifest.status().to_string();
    ASSERT_EQ(manifest->regions.size(), data.size());
    uint64_t at = part.stream.manifest_bytes;
    for (size_t i = 0; i < data.size(); ++i) {
        const auto& region = manifest->regions[i];
        for (; at < region.stream_offset; ++at)
            ASSERT_EQ(stream[at], std::byte{0}) << "gap before region " << i;
        const auto saved = stream.subspan(region.stream_offset, region.bytes);
        ASSERT_TRUE(std::equal(saved.begin(), saved.end(), data[i].begin(), data[i].end())) << "region " << i;
        for (size_t block = 0; checksum && block < region.block_crcs.size(); ++block) {
            const uint64_t from = block * check_block_bytes;
            EXPECT_EQ(
                region.block_crcs[block],
                crc32c(saved.subspan(from, std::min<uint64_t>(check_block_bytes, saved.size() - from))));
        }
        at = region.stream_offset + region.bytes;
    }
}

TEST_P(CaptureTest, RegionsOfEverySizeArriveWithTheirChecksumsAlsoInARecycledPart) {
    MemoryStorageOptions memory;
    memory.offer_map = GetParam().map;
    MemoryStorage storage(memory);
    ASSERT_TRUE(storage.make_directories("/l").ok());
    Capture capture(storage, {"/l", GetParam().threads, GetParam().checksum, false});
    std::optional<OwnPart> last;
    uint64_t epoch = 0;
    const std::vector<std::vector<uint64_t>> shapes{
        {0, 1, 63, 64, 65, 4096, 262144, 262145, 1048575, 1048576, 1048577},
        {20 * MiB + 13, 5, 0, 9 * MiB},
        {},
        {0},
        std::vector<uint64_t>(3000, 700),
        {30 * MiB, 17}};
    for (const auto& sizes : shapes) {
        ++epoch;
        std::vector<std::vector<std::byte>> data;
        std::vector<RegionSource> regions;
        for (size_t i = 0; i < sizes.size(); ++i)
            data.push_back(content(epoch, 2, static_cast<int>(i), sizes[i]));
        for (size_t i = 0; i < sizes.size(); ++i)
            regions.push_back({"r" + std::to_string(i), data[i], std::nullopt});
        const auto old_path = last ? last->path : std::string();
        auto part = capture.capture(header_for(epoch), regions, std::exchange(last, std::nullopt));
        ASSERT_TRUE(part.ok()) << part.status().to_string();
        EXPECT_EQ(!part->mapping.empty(), GetParam().map);
        expect_part(storage, *part, data, GetParam().checksum);
        auto names = storage.list("/l");
        ASSERT_THAT(*names, SizeIs(1)) << "the recycled part must be gone";
        last = std::move(*part);
    }
}

// A region whose bytes lie in a file. The file may be shorter than it is said to be.
RegionSource region_in_file(MemoryStorage& storage, const std::string& name, std::span<const std::byte> data,
                            uint64_t bytes) {
    const auto path = "/f/" + name;
    auto file = storage.open(path, {Access::write, DirectIo::off});
    EXPECT_TRUE(file.ok() && (*file)->write_at(data, 0).ok() && (*file)->close().ok());
    RegionSource region;
    region.name = name;
    region.file = FileBytes{bytes, [&storage, path] { return storage.open(path, {}); }};
    return region;
}

TEST_P(CaptureTest, RegionsInFilesArriveLikeThoseInMemory) {
    MemoryStorageOptions memory_options;
    memory_options.offer_map = GetParam().map;
    MemoryStorage storage(memory_options);
    ASSERT_TRUE(storage.make_directories("/l").ok() && storage.make_directories("/f").ok());
    Capture capture(storage, {"/l", GetParam().threads, GetParam().checksum, false});
    std::vector<std::vector<std::byte>> data;
    for (const uint64_t bytes : {0, 1, 65, 262144, 262145, 700, 1048576, 9 << 20, 700, 13 << 20})
        data.push_back(content(1, 2, static_cast<int>(data.size()), bytes));
    std::vector<RegionSource> regions;
    for (size_t i = 0; i < data.size(); ++i) {
        const auto name = "r" + std::to_string(i);
        regions.push_back(i % 3 == 2 ? RegionSource{name, data[i], std::nullopt}
                                     : region_in_file(storage, name, data[i], data[i].size()));
    }
    auto part = capture.capture(header_for(1), regions, std::nullopt);
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    expect_part(storage, *part, data, GetParam().checksum);
}

TEST_P(CaptureTest, AFileThatEndsEarlyFailsTheCapture) {
    MemoryStorageOptions memory_options;
    memory_options.offer_map = GetParam().map;
    MemoryStorage storage(memory_options);
    ASSERT_TRUE(storage.make_directories("/l").ok() && storage.make_directories("/f").ok());
    Capture capture(storage, {"/l", GetParam().threads, GetParam().checksum, false});
    for (const uint64_t bytes : {1000, 9 << 20}) {
        const auto data = content(1, 2, 0, bytes - 1);
        const std::vector<RegionSource> regions{region_in_file(storage, "short", data, bytes)};
        const auto part = capture.capture(header_for(1), regions, std::nullopt);
        EXPECT_EQ(part.status().code(), Code::io_error);
        EXPECT_THAT(part.status().message(), HasSubstr("'/f/short' ended after"));
        EXPECT_THAT(*storage.list("/l"), SizeIs(0));
    }
}

// `open` fails when the file has changed. Each region here is opened once for its bytes, and once after.
TEST_P(CaptureTest, AFileThatHasChangedWhenTheCopyIsDoneFailsTheCapture) {
    MemoryStorageOptions memory_options;
    memory_options.offer_map = GetParam().map;
    MemoryStorage storage(memory_options);
    ASSERT_TRUE(storage.make_directories("/l").ok() && storage.make_directories("/f").ok());
    Capture capture(storage, {"/l", GetParam().threads, GetParam().checksum, false});
    for (const uint64_t bytes : {0, 1000}) {
        auto region = region_in_file(storage, "changing", content(1, 2, 0, bytes), bytes);
        int opened = 0;
        region.file->open = [before = region.file->open, bytes, &opened]() -> Result<std::unique_ptr<File>> {
            if (++opened > (bytes > 0 ? 1 : 0)) return Status(Code::io_error, "it has changed");
            return before();
        };
        const std::vector<RegionSource> regions{region};
        const auto part = capture.capture(header_for(1), regions, std::nullopt);
        EXPECT_EQ(part.status().code(), Code::io_error);
        EXPECT_THAT(*storage.list("/l"), SizeIs(0));
    }
}

// What lies between a piece's elements is not saved. Rows are short, long, and single elements; the region is
// small, and large enough for several threads.
TEST_P(CaptureTest, StridedRegionsArriveAsTheirElementsInOrder) {
    MemoryStorageOptions memory_options;
    memory_options.offer_map = GetParam().map;
    MemoryStorage storage(memory_options);
    ASSERT_TRUE(storage.make_directories("/l").ok());
    Capture capture(storage, {"/l", GetParam().threads, GetParam().checksum, false});
    std::vector<std::vector<std::byte>> memory, expected;
    std::vector<RegionSource> regions;
    for (const auto& [run_bytes, dimensions] :
         std::vector<std::pair<uint64_t, std::vector<Strides::Dimension>>>{
             {8, {{100, 8 * 128}, {30, 24}}},
             {8, {{1500, 8 * 3100}, {1500, 16}}},
             {480, {{200, 500 * 110}, {100, 500}}},
             {70000, {{100, 70001}}},
             {4096, {{3, 5000}}}}) {
        const Strides strides{run_bytes, dimensions};
        const bool plane = dimensions.size() == 2;
        const uint64_t outer = plane ? dimensions[0].count : 1, inner = dimensions.back().count;
        const uint64_t outer_stride = plane ? dimensions[0].stride_bytes : 0;
        memory.push_back(
            content(1, 2, static_cast<int>(regions.size()),
                    (outer - 1) * outer_stride + (inner - 1) * dimensions.back().stride_bytes + run_bytes));
        auto& bytes = expected.emplace_back();
        for (uint64_t i = 0; i < outer; ++i)
            for (uint64_t j = 0; j < inner; ++j) {
                const auto* run =
                    memory.back().data() + i * outer_stride + j * dimensions.back().stride_bytes;
                bytes.insert(bytes.end(), run, run + run_bytes);
            }
        regions.push_back({"r" + std::to_string(regions.size()), {}, std::nullopt, strides});
    }
    for (size_t i = 0; i < regions.size(); ++i) regions[i].memory = {memory[i].data(), expected[i].size()};
    auto part = capture.capture(header_for(1), regions, std::nullopt);
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    expect_part(storage, *part, expected, GetParam().checksum);
}

INSTANTIATE_TEST_SUITE_P(Ways, CaptureTest,
                         ::testing::Values(CaptureCase{true, true, 1}, CaptureCase{true, true, 3},
                                           CaptureCase{false, true, 3}, CaptureCase{false, false, 1},
                                           CaptureCase{true, false, 2}));

TEST(CaptureFailureTest, AtEveryFailingOperationThePartIsGoneAndOthersStay) {
    for (const bool map : {false, true})
        for (uint64_t die_at = 1; die_at < 20; ++die_at) {
            MemoryStorageOptions options;
            options.offer_map = map;
            auto memory = std::make_shared<MemoryStorage>(options);
            ASSERT_TRUE(memory->make_directories("/l").ok());
            const auto data = content(1, 2, 0, 300000);
            const std::vector<RegionSource> regions{{"r", data, std::nullopt}};
            auto faulty = std::make_shared<FaultyStorage>(memory, die_at);
            Capture capture(*faulty, {"/l", 1, true, true});
            auto kept = capture.capture(header_for(1), regions, std::nullopt);
            auto old = capture.capture(header_for(2), regions, std::nullopt);
            ASSERT_TRUE(kept.ok() && old.ok());
            FaultPlan plan;
            plan.die_at_operation = faulty->operations() + die_at;
            faulty->set_plan(plan);
            auto part = capture.capture(header_for(3), regions, std::move(*old));
            auto listing = list_local(*memory, "/l", "job");
            ASSERT_TRUE(listing.ok());
            ASSERT_GE(listing->parts.size(), 1u);
            EXPECT_EQ(listing->parts[0].header.key.epoch, 1u);
            // Dead storages cannot clean up. What is left is the old part, untouched, or nothing under a
            // final name, or the new part, whole.
            for (const auto& left : listing->parts) {
                auto bytes = read_all(*memory, left.path);
                const auto manifest = decode_manifest(
                    std::span(bytes).subspan(part_header_bytes, left.header.stream.manifest_bytes));
                ASSERT_TRUE(manifest.ok()) << left.path;
                EXPECT_EQ(std::memcmp(bytes.data() + part_header_bytes + manifest->regions[0].stream_offset,
                                      data.data(), data.size()),
                          0);
            }
            for (const auto& leftover : listing->leftovers)
                EXPECT_THAT(leftover.path, ::testing::EndsWith(".unfinished"));
            if (!part.ok()) {
                EXPECT_EQ(part.status().code(), Code::aborted);
            }
        }
}

TEST(CaptureFailureTest, ErrorsCleanUpAfterThemselves) {
    FaultPlan plans[3];
    plans[0].write_error = 1;
    plans[1].write_no_space = 1;
    plans[2].sync_error = 1;
    for (const auto& plan : plans) {
        auto memory = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(memory->make_directories("/l").ok());
        auto faulty = std::make_shared<FaultyStorage>(memory, 1, plan);
        Capture capture(*faulty, {"/l", 1, true, true});
        const auto data = content(1, 2, 0, 300000);
        const std::vector<RegionSource> regions{{"r", data, std::nullopt}};
        auto part = capture.capture(header_for(1), regions, std::nullopt);
        ASSERT_FALSE(part.ok());
        EXPECT_THAT(part.status().message(), HasSubstr("epoch 1 of run 1 of rank 2"));
        EXPECT_THAT(memory->list("/l").value(), IsEmpty());
    }
}

// On a file system in memory, as only there parts are mapped and recycled.
class SpoiledPartTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (mkdtemp(directory_.data()) == nullptr) GTEST_SKIP() << "/dev/shm may not be written";
        made_ = true;
        if (!storage_->space(directory_)->in_memory) GTEST_SKIP() << "/dev/shm is no file system in memory";
    }
    void TearDown() override {
        if (made_) std::filesystem::remove_all(directory_);
    }
    void expect_saved_after(const std::function<void(const std::string& path)>& spoil) {
        Capture capture(*storage_, {directory_, 1, true, false});
        const auto first = content(1, 2, 0, 300000), second = content(2, 2, 0, 300000);
        auto old = capture.capture(header_for(1), std::vector<RegionSource>{{"r", first, std::nullopt}},
                                   std::nullopt);
        ASSERT_TRUE(old.ok()) << old.status().to_string();
        ASSERT_FALSE(old->mapping.empty());
        spoil(old->path);
        auto part = capture.capture(header_for(2), std::vector<RegionSource>{{"r", second, std::nullopt}},
                                    std::move(*old));
        ASSERT_TRUE(part.ok()) << part.status().to_string();
        expect_part(*storage_, *part, {second}, true);
        EXPECT_THAT(*storage_->list(directory_), SizeIs(1));
    }

    std::string directory_ = "/dev/shm/tailrace-capture-test-XXXXXX";
    bool made_ = false;
    std::shared_ptr<Storage> storage_ = make_posix_storage();
};

TEST_F(SpoiledPartTest, APartThatSomebodyRemovedIsNotRecycled) {
    expect_saved_after([](const std::string& path) { std::filesystem::remove(path); });
}

TEST_F(SpoiledPartTest, APartThatSomebodyCutIsNotRecycled) {
    // Touching its memory would end the program by SIGBUS.
    expect_saved_after([](const std::string& path) { std::filesystem::resize_file(path, 0); });
}

TEST_F(SpoiledPartTest, APartThatSomebodyCutsWhileItIsTakenOverIsNotRecycled) {
    bool cut = false;
    storage_ = std::make_shared<SpoilingStorage>(storage_, [&](const std::string& path) {
        if (!cut && path.find("e000000002") != std::string::npos) std::filesystem::resize_file(path, 0);
        cut |= path.find("e000000002") != std::string::npos;
    });
    expect_saved_after([](const std::string&) {});
    EXPECT_TRUE(cut);
}

// Somebody who tidies up takes the whole directory, with what is to be recycled.
TEST_F(SpoiledPartTest, ADirectoryThatSomebodyRemovedIsMadeAgain) {
    for (const bool own : {false, true}) {
        SCOPED_TRACE(own);
        if (own) storage_ = make_posix_storage({.own_in = "/dev/shm"});
        expect_saved_after([&](const std::string&) { std::filesystem::remove_all(directory_); });
    }
}

TEST_F(SpoiledPartTest, ADirectoryThatIsMadeAgainIsCheckedAsTheFirstOneWas) {
    storage_ = make_posix_storage({.own_in = "/dev/shm"});
    Capture capture(*storage_, {directory_, 1, true, false});
    const auto memory = content(1, 2, 0, 3000);
    const std::vector<RegionSource> regions{{"r", memory, std::nullopt}};
    ASSERT_TRUE(capture.capture(header_for(1), regions, std::nullopt).ok());
    const auto elsewhere = directory_ + "-elsewhere";
    std::filesystem::rename(directory_, elsewhere);
    std::filesystem::create_directory_symlink(elsewhere, directory_);
    const auto refused = capture.capture(header_for(2), regions, std::nullopt).status();
    EXPECT_THAT(refused.message(), HasSubstr("it is a symbolic link"));
    std::filesystem::remove(directory_);
    EXPECT_TRUE(capture.capture(header_for(3), regions, std::nullopt).ok());
    std::filesystem::remove_all(elsewhere);
}

TEST(CopyTeamTest, EveryPieceIsDoneOnce) {
    CopyTeam team(3);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}}) {
        std::vector<std::atomic<int>> done(count);
        team.run(count, [&](size_t i) { ++done[i]; });
        for (const auto& times : done) EXPECT_EQ(times, 1);
    }
}

// What a call of `work` uses lies on the caller's stack: it must still be there when a helper comes to its
// end.
TEST(CopyTeamTest, AnExceptionOfTheCallersShareWaitsForTheHelpers) {
    CopyTeam team(1);
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> helper_is_inside = false, helper_is_done = false;
    auto work = [&](size_t) {
        if (std::this_thread::get_id() == caller) {
            while (!helper_is_inside) std::this_thread::yield();
            throw std::bad_alloc();
        }
        helper_is_inside = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        helper_is_done = true;
    };
    EXPECT_THROW(team.run(2, work), std::bad_alloc);
    EXPECT_TRUE(helper_is_done);
    int done = 0;
    std::mutex mutex;
    team.run(10, [&](size_t) {
        std::lock_guard lock(mutex);
        ++done;
    });
    EXPECT_EQ(done, 10);
}

TEST(CopyTeamTest, AnExceptionOfAHelperReachesTheCaller) {
    CopyTeam team(1);
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> thrown = false;
    auto work = [&](size_t) {
        if (std::this_thread::get_id() != caller) {
            thrown = true;
            throw std::bad_alloc();
        }
        while (!thrown) std::this_thread::yield();
    };
    EXPECT_THROW(team.run(2, work), std::bad_alloc);
}

TEST(CopyTeamTest, TheCallerDoesAllWhereThereAreNoThreads) {
    testing_support::NoThreads none;
    CopyTeam team(3);
    EXPECT_EQ(team.threads(), 1u);
    int done = 0;
    team.run(10, [&](size_t) { ++done; });
    EXPECT_EQ(done, 10);
}

TEST(RegionCopyDeathTest, NoByteIsCopiedBeyondTheMapping) {
    const std::vector<std::byte> memory(4096);
    const std::vector<RegionSource> regions{{"u", memory, std::nullopt}};
    PartManifest manifest;
    manifest.rank_count = 1;
    manifest.regions.emplace_back();
    manifest.regions[0].name = "u";
    manifest.regions[0].bytes = memory.size();
    ASSERT_TRUE(lay_out(manifest).ok());
    std::vector<std::byte> mapping(part_header_bytes + manifest.stream_bytes);
    EXPECT_TRUE(RegionCopy(manifest, regions, {mapping}).run(nullptr).ok());
    mapping.resize(part_header_bytes + manifest.regions[0].stream_offset + memory.size() - 1);
    EXPECT_DEATH((void)RegionCopy(manifest, regions, {mapping}).run(nullptr), "does not hold");
}

}  // namespace
}  // namespace tailrace::internal
