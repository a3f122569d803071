// The commit protocol of one leader, step by step.
#include "aggregate/segment_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "aggregate/cluster.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "doubles/watched_storage.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;

const EpochKey key{4, 1};

class SegmentWriterTest : public testing::Test {
  protected:
    SegmentWriterTest() { (void)memory->make_directories("/shared"); }

    std::shared_ptr<const FlushPlan> plan_of(std::vector<uint64_t> bytes_of_node, uint32_t leaders,
                                             uint32_t files) {
        PlanSettings settings;
        settings.file_count = files;
        settings.leaders_per_file = leaders;
        settings.chunk_bytes = 8192;
        settings.block_bytes = 4096;
        std::vector<NodeOffer> offers;
        for (size_t node = 0; node < bytes_of_node.size(); ++node) {
            const auto rank = static_cast<uint32_t>(node);
            offers.push_back({static_cast<int>(node), {{rank, bytes_of_node[node], 0, 0}}});
        }
        const auto nodes = static_cast<int>(bytes_of_node.size());
        auto plan = make_plan("test", key, 1, static_cast<uint32_t>(nodes), group_of_node(0, nodes, files),
                              std::move(offers), settings);
        EXPECT_TRUE(plan.ok()) << plan.status().message();
        return std::make_shared<const FlushPlan>(*plan);
    }
    std::unique_ptr<SegmentWriter> writer_of(const std::shared_ptr<const FlushPlan>& plan, uint32_t leader,
                                             Storage& storage) {
        return std::make_unique<SegmentWriter>(plan, leader, storage, "/shared",
                                               OpenOptions{Access::write, DirectIo::off}, throttle);
    }
    Status write(SegmentWriter& writer, uint32_t rank, uint64_t offset, uint64_t bytes) {
        std::vector<std::byte> buffer(8192, std::byte{0xee});
        fill_stream(key, rank, offset, std::span(buffer).first(bytes));
        return writer.write(rank, offset, {}, buffer, bytes);
    }

    std::shared_ptr<MemoryStorage> memory = std::make_shared<MemoryStorage>();
    Throttle throttle{0};
};

Status seal_and_commit(SegmentWriter& writer, uint32_t file) {
    TAILRACE_TRY(writer.seal(file));
    return writer.commit(file);
}

TEST_F(SegmentWriterTest, StepsComeInTheOrderThatMakesTheSlotTheCommit) {
    WatchedStorage watched(memory);
    const auto plan = plan_of({10'000}, 1, 1);
    const SharedHeader header = plan->header(0);
    auto writer = writer_of(plan, 0, watched);
    ASSERT_TRUE(writer->prepare(0).ok());
    ASSERT_TRUE(write(*writer, 0, 0, 8192).ok());
    ASSERT_TRUE(write(*writer, 0, 8192, 10'000 - 8192).ok());
    ASSERT_TRUE(seal_and_commit(*writer, 0).ok());

    const uint64_t data = data_offset(header);
    std::vector<std::string> steps;
    for (const WatchedCall& call : watched.calls()) {
        std::string step = call.what;
        if (step == "write" && call.offset == 0) step = "header";
        if (step == "write" && call.offset == slot_offset(header, 0)) step = "slot";
        if (step == "write" && call.offset == index_offset(header, 0)) step = "index";
        if (step == "write" && call.offset >= data) step = "data";
        steps.push_back(step);
        EXPECT_EQ(call.offset % 4096, 0u);
        EXPECT_EQ(call.bytes % 4096, 0u);
    }
    EXPECT_EQ(steps,
              (std::vector<std::string>{"open", "slot", "header", "reserve", "data", "data", "truncate",
                                        "index", "sync", "sync_directory", "slot", "sync"}));
    EXPECT_EQ(writer->written(), all_chunks(*plan));
}

TEST_F(SegmentWriterTest, PaddingBehindTheLastByteIsZero) {
    const auto plan = plan_of({5'000}, 1, 1);
    auto writer = writer_of(plan, 0, *memory);
    ASSERT_TRUE(writer->prepare(0).ok());
    ASSERT_TRUE(write(*writer, 0, 0, 5'000).ok());
    ASSERT_TRUE(seal_and_commit(*writer, 0).ok());
    auto file = memory->open(working_path("/shared", *plan, 0), {});
    ASSERT_TRUE(file.ok());
    const uint64_t data = data_offset(plan->header(0));
    EXPECT_EQ(*(*file)->size(), data + 8192);
    std::vector<std::byte> tail(8192 - 5'000, std::byte{1});
    ASSERT_EQ(*(*file)->read_at(tail, data + 5'000), tail.size());
    EXPECT_EQ(tail, std::vector<std::byte>(tail.size()));
}

TEST_F(SegmentWriterTest, BlocksAreWrittenFromWhereTheyLieAndTheRestFromTheBuffer) {
    const auto plan = plan_of({3 * 8192 + 5'000}, 1, 2);
    WatchedStorage watched(memory);
    auto writer = writer_of(plan, 0, watched);
    ASSERT_TRUE(writer->prepare(0).ok() && writer->prepare(1).ok());
    std::vector<std::byte> stream(3 * 8192 + 5'000), buffer(8192);
    fill_stream(key, 0, 0, stream);
    const std::vector<std::byte> before = stream;
    for (uint64_t offset = 0; offset < stream.size(); offset += 8192) {
        std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
        const auto chunk =
            std::span(stream).subspan(offset, std::min<uint64_t>(8192, stream.size() - offset));
        const auto blocks = chunk.first(chunk.size() / 4096 * 4096);
        std::copy(chunk.begin() + static_cast<ptrdiff_t>(blocks.size()), chunk.end(), buffer.begin());
        ASSERT_TRUE(writer->write(0, offset, blocks, buffer, chunk.size() - blocks.size()).ok());
        if (chunk.size() == 8192) {  // nothing of it was copied
            EXPECT_EQ(buffer, std::vector<std::byte>(8192, std::byte{0xee}));
        }
    }
    EXPECT_EQ(stream, before);
    ASSERT_TRUE(seal_and_commit(*writer, 0).ok() && seal_and_commit(*writer, 1).ok());
    // The last chunk is the second of the second file: two writes, of which the second is padded.
    auto file = memory->open(working_path("/shared", *plan, 1), {});
    ASSERT_TRUE(file.ok());
    const uint64_t data = data_offset(plan->header(1));
    EXPECT_EQ(*(*file)->size(), data + 2 * 8192);
    std::vector<std::byte> found(2 * 8192), wanted(2 * 8192);
    ASSERT_EQ(*(*file)->read_at(found, data), found.size());
    std::copy_n(stream.begin() + 8192, 8192, wanted.begin());
    std::copy_n(stream.begin() + 3 * 8192, 5'000, wanted.begin() + 8192);
    EXPECT_EQ(found, wanted);
}

TEST_F(SegmentWriterTest, StaleSlotOfAnEarlierAttemptIsGoneForGoodBeforeNewDataComes) {
    const auto plan = plan_of({8'192}, 1, 1);
    std::mt19937_64 random(1);
    for (int i = 0; i < 40; ++i) {  // a crash loses one write in four
        auto first = writer_of(plan, 0, *memory);
        ASSERT_TRUE(first->prepare(0).ok());
        ASSERT_TRUE(write(*first, 0, 0, 8'192).ok());
        ASSERT_TRUE(seal_and_commit(*first, 0).ok());
        EXPECT_TRUE(check_epoch(*memory, key, {8'192}, 1).ok());
        auto second = writer_of(plan, 0, *memory);
        ASSERT_TRUE(second->prepare(0).ok());
        EXPECT_EQ(check_epoch(*memory, key, {8'192}, 1).code(), Code::not_found);
        ASSERT_TRUE(write(*second, 0, 0, 8'192).ok());
        memory->crash(random);
        EXPECT_EQ(check_epoch(*memory, key, {8'192}, 1).code(), Code::not_found) << "after crash " << i;
    }
}

TEST_F(SegmentWriterTest, EpochIsThereOnlyWhenEveryLeadersSlotIs) {
    const auto plan = plan_of({8'192, 4'096}, 2, 1);
    auto first = writer_of(plan, 0, *memory), second = writer_of(plan, 1, *memory);
    ASSERT_TRUE(first->prepare(0).ok());
    ASSERT_TRUE(second->prepare(0).ok());
    ASSERT_TRUE(write(*first, 0, 0, 8'192).ok());
    ASSERT_TRUE(write(*second, 1, 0, 4'096).ok());
    ASSERT_TRUE(seal_and_commit(*first, 0).ok());
    EXPECT_EQ(check_epoch(*memory, key, {8'192, 4'096}, 1).code(), Code::not_found);
    ASSERT_TRUE(seal_and_commit(*second, 0).ok());
    const Status found = check_epoch(*memory, key, {8'192, 4'096}, 1);
    EXPECT_TRUE(found.ok()) << found.message();
}

TEST_F(SegmentWriterTest, FailedSyncOfDataLeavesNoSlot) {
    auto watched = std::make_shared<WatchedStorage>(memory);
    FaultyStorage faulty(watched, 1);
    const auto plan = plan_of({8'192}, 1, 1);
    auto writer = writer_of(plan, 0, faulty);
    ASSERT_TRUE(writer->prepare(0).ok());
    ASSERT_TRUE(write(*writer, 0, 0, 8'192).ok());
    FaultPlan every_sync;
    every_sync.sync_error = 1;
    faulty.set_plan(every_sync);
    EXPECT_EQ(seal_and_commit(*writer, 0).code(), Code::io_error);
    EXPECT_EQ(watched->calls().back().offset,
              index_offset(plan->header(0), 0));  // the sync failed above the watch
    EXPECT_EQ(check_epoch(*memory, key, {8'192}, 1).code(), Code::not_found);
}

TEST_F(SegmentWriterTest, AbandonedSegmentWritesNothingMoreAndNeverItsSlot) {
    WatchedStorage watched(memory);
    const auto plan = plan_of({8'192}, 1, 1);
    auto writer = writer_of(plan, 0, watched);
    ASSERT_TRUE(writer->prepare(0).ok());
    const size_t before = watched.calls().size();
    writer->abandon();
    EXPECT_EQ(write(*writer, 0, 0, 8'192).code(), Code::aborted);
    EXPECT_EQ(seal_and_commit(*writer, 0).code(), Code::aborted);
    EXPECT_EQ(watched.calls().size(), before);
}

TEST_F(SegmentWriterTest, DiscardRemovesEveryFileOfThePlan) {
    const auto plan = plan_of({8'192}, 1, 2);
    auto writer = writer_of(plan, 0, *memory);
    for (uint32_t file : {0u, 1u}) ASSERT_TRUE(writer->prepare(file).ok());
    EXPECT_EQ(memory->list("/shared")->size(), 2u);
    discard(*memory, "/shared", *plan);
    EXPECT_TRUE(memory->list("/shared")->empty());
}

TEST_F(SegmentWriterTest, FullFileSystemIsNoticedBeforeDataMoves) {
    memory->set_capacity(16'384);
    const auto plan = plan_of({1'000'000}, 1, 1);
    auto writer = writer_of(plan, 0, *memory);
    EXPECT_EQ(writer->prepare(0).code(), Code::no_space);
}

}  // namespace
}  // namespace tailrace::internal
