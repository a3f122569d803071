// The file phase: which holes are filled, what is written, and what a failure leaves in the task.
#include "collective/file_phase.h"

#include <gmock/gmock.h>

#include <cstring>
#include <thread>

#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal::collective {

namespace {

using testing::ElementsAre;

class FilePhaseTest : public testing::Test {
  protected:
    void prepare(uint64_t bytes, char fill) {
        auto file = storage_->open("/file", {Access::write, DirectIo::off});
        ASSERT_TRUE(file.ok());
        file_ = std::move(*file);
        const std::string content(bytes, fill);
        ASSERT_TRUE(file_->write_at(std::as_bytes(std::span(content)), 0).ok());
    }

    // Writes `runs` of a window [0, 64), each byte 'n', and returns the task.
    void run(FileTask& task, const std::vector<Request>& runs, bool writes, Sieving sieving) {
        image_.assign(64, std::byte{'n'});
        task.writes = writes;
        task.window = {0, 64};
        task.image = image_;
        task.lists = {runs};
        FilePhase phase([this] { return Result<File*>(file_.get()); }, sieving, 16, [] {});
        phase.submit(&task);
        while (!task.finished) std::this_thread::yield();
    }

    std::string content() {
        std::vector<std::byte> bytes(*file_->size());
        EXPECT_TRUE(file_->read_at(bytes, 0).ok());
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    std::shared_ptr<Storage> storage_ = std::make_shared<MemoryStorage>();
    std::unique_ptr<File> file_;
    std::vector<std::byte> image_;
};

}  // namespace

TEST(SegmentsTest, HolesUpToTheLimitAreFilled) {
    const std::vector<Request> runs = {{0, 10}, {14, 6}, {30, 10}};
    EXPECT_THAT(make_stretches(runs, 0, 100, 4096),
                ElementsAre(Stretch{0, 10}, Stretch{14, 20}, Stretch{30, 40}));
    EXPECT_THAT(make_stretches(runs, 4, 100, 4096), ElementsAre(Stretch{0, 20}, Stretch{30, 40}));
    EXPECT_THAT(make_stretches(runs, 10, 100, 4096), ElementsAre(Stretch{0, 40}));
}

TEST(SegmentsTest, HolesOfANewFileStayHoles) {
    const std::vector<Request> runs = {{0, 10}, {40, 10}};
    EXPECT_EQ(make_stretches(runs, 100, 0, 16).size(), 2u);   // the blocks at 16 would be filled with zeros
    EXPECT_EQ(make_stretches(runs, 100, 40, 16).size(), 1u);  // the file has something there
    EXPECT_EQ(make_stretches(runs, 100, 20, 16).size(), 1u);  // the hole holds no whole block of 16 beyond 20
    EXPECT_EQ(make_stretches(runs, 100, UINT64_MAX, 16).size(), 1u);
}

TEST(SievingTest, ReadingAndWritingAlongPaysWhereOperationsAreDear) {
    EXPECT_EQ(sieving_for("ext4", Sieve::automatic, Sieve::automatic).write_hole_bytes, 0u);
    EXPECT_GT(sieving_for("fuse", Sieve::automatic, Sieve::automatic).write_hole_bytes, 0u);
    EXPECT_GT(sieving_for("ext4", Sieve::automatic, Sieve::always).write_hole_bytes, 0u);
    EXPECT_EQ(sieving_for("fuse", Sieve::never, Sieve::never).write_hole_bytes, 0u);
    EXPECT_EQ(sieving_for("fuse", Sieve::never, Sieve::never).read_hole_bytes, 0u);
    EXPECT_GT(sieving_for("fuse", Sieve::automatic, Sieve::never).read_hole_bytes,
              sieving_for("xfs", Sieve::automatic, Sieve::never).read_hole_bytes);
}

TEST_F(FilePhaseTest, WritesRunsAndLeavesTheRest) {
    prepare(40, 'o');
    FileTask task;
    run(task, {{4, 4}, {12, 4}}, true, {});
    ASSERT_TRUE(task.status.ok());
    EXPECT_EQ(task.operations, 2u);
    EXPECT_EQ(content(), "oooonnnnoooonnnn" + std::string(24, 'o'));
}

TEST_F(FilePhaseTest, SievingWritesOnceAndPutsBackWhatWasInTheHole) {
    prepare(14, 'o');
    FileTask task;
    run(task, {{4, 4}, {10, 4}, {20, 4}}, true, {0, 8});
    ASSERT_TRUE(task.status.ok());
    EXPECT_EQ(task.operations, 2u);  // a read and a write
    EXPECT_EQ(content(), "oooonnnnoonnnn" + std::string(6, '\0') + "nnnn");
}

TEST_F(FilePhaseTest, SievingLeavesOutBlocksOfZerosThatMayBeAHole) {
    prepare(0, 'o');
    ASSERT_TRUE(
        file_->write_at(std::vector<std::byte>(4, std::byte{'o'}), 60).ok());  // by another aggregator
    ASSERT_TRUE(file_->write_at(std::vector<std::byte>(1, std::byte{'o'}), 40).ok());
    FileTask task;
    run(task, {{0, 4}, {8, 4}, {34, 4}, {56, 4}}, true, {0, 64});
    ASSERT_TRUE(task.status.ok());
    EXPECT_EQ(task.operations, 3u);  // a read, and a write on either side of the block at 16
    EXPECT_EQ(content(), "nnnn" + std::string(4, '\0') + "nnnn" + std::string(22, '\0') + "nnnn" +
                             std::string(2, '\0') + "o" + std::string(15, '\0') + "nnnnoooo");
}

TEST_F(FilePhaseTest, ReadsAcrossHolesAndFillsTheEndWithZeros) {
    prepare(20, 'o');
    FileTask task;
    run(task, {{0, 4}, {8, 4}, {16, 10}}, false, {4, 0});
    ASSERT_TRUE(task.status.ok());
    EXPECT_EQ(task.operations, 1u);
    EXPECT_EQ(task.file_end, 20u);
    EXPECT_EQ(image_[19], std::byte{'o'});
    EXPECT_EQ(image_[20], std::byte{0});
}

TEST_F(FilePhaseTest, AFailureStaysInItsTask) {
    auto faulty = std::make_shared<FaultyStorage>(storage_, 1);
    storage_ = faulty;
    prepare(10, 'o');
    FaultPlan plan;
    plan.write_error = 1;
    faulty->set_plan(plan);
    FileTask failing;
    run(failing, {{0, 4}}, true, {});
    EXPECT_EQ(failing.status.code(), Code::io_error);
    faulty->set_plan({});
    FileTask next;
    run(next, {{0, 4}}, true, {});
    EXPECT_TRUE(next.status.ok());
}

}  // namespace tailrace::internal::collective
