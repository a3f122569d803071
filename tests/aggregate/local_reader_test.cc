// Chunks of captured parts on a file system in memory: taken from where they lie, and what happens when
// somebody cuts the part short under them.
#include "aggregate/local_reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "aggregate/cluster.h"
#include "aggregate/segment_writer.h"
#include "storage/posix_storage.h"
#include "storage/scratch.h"

namespace tailrace::internal {
namespace {

constexpr uint64_t chunk_bytes = 8 * 4096, block_bytes = 4096;
constexpr uint64_t stream_bytes = chunk_bytes + 3 * 4096 + 100;
constexpr uint64_t head_bytes = 4096 + 24;  // in front of the stream, at no page's beginning
const EpochKey key{4, 1};

class LocalReaderTest : public testing::Test {
  protected:
    void SetUp() override {
        if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm may not be written";
        directory_.emplace("/dev/shm");
        if (!storage_->space(directory_->path())->in_memory) GTEST_SKIP() << "/dev/shm is no tmpfs";
        part_ = *directory_ / "part";
        std::vector<std::byte> content(head_bytes + stream_bytes);
        fill_stream(key, 0, 0, std::span(content).subspan(head_bytes));
        auto file = storage_->open(part_, {Access::write, DirectIo::off});
        TAILRACE_ASSERT_OK(file);
        TAILRACE_ASSERT_OK((*file)->write_at(content, 0));
        reader_ = std::make_unique<LocalReader>(
            *storage_, std::vector<LocalStream>{{{0, stream_bytes, 0, 0}, part_, head_bytes}}, chunk_bytes);
    }

    std::vector<std::byte> bytes_of(const LocalBytes& fetched) const {
        std::vector<std::byte> bytes(fetched.blocks.begin(), fetched.blocks.end());
        bytes.insert(bytes.end(), buffer_.begin(),
                     buffer_.begin() + static_cast<ptrdiff_t>(fetched.buffered_bytes));
        return bytes;
    }
    static std::vector<std::byte> wanted(const LocalChunk& chunk) {
        std::vector<std::byte> bytes(chunk.bytes);
        fill_stream(key, 0, chunk.stream_offset, bytes);
        return bytes;
    }

    std::shared_ptr<Storage> storage_ = make_posix_storage();
    std::optional<test::ScratchDirectory> directory_;
    std::string part_;
    std::unique_ptr<LocalReader> reader_;
    std::vector<std::byte> buffer_ = std::vector<std::byte>(chunk_bytes);
};

TEST_F(LocalReaderTest, WholeBlocksStayWhereTheyLieAndTheRestComesToTheBuffer) {
    const LocalChunk first = *reader_->next(), second = *reader_->next();
    auto fetched = reader_->fetch(first, block_bytes, buffer_);
    TAILRACE_ASSERT_OK(fetched);
    EXPECT_EQ(fetched->blocks.size(), chunk_bytes);
    EXPECT_EQ(fetched->buffered_bytes, 0u);
    EXPECT_EQ(bytes_of(*fetched), wanted(first));
    fetched = reader_->fetch(second, block_bytes, buffer_);
    TAILRACE_ASSERT_OK(fetched);
    EXPECT_EQ(fetched->blocks.size(), 3 * 4096u);
    EXPECT_EQ(fetched->buffered_bytes, 100u);
    EXPECT_EQ(bytes_of(*fetched), wanted(second));
    fetched = reader_->fetch(second, 4 * 4096, buffer_);  // no whole block
    TAILRACE_ASSERT_OK(fetched);
    EXPECT_EQ(fetched->buffered_bytes, second.bytes);
    EXPECT_EQ(bytes_of(*fetched), wanted(second));
}

TEST_F(LocalReaderTest, WithoutAddressSpaceForAViewTheChunkIsRead) {
    EXPECT_EQ(test::in_child([&] {
                  const rlimit none{0, 0};
                  const LocalChunk chunk = *reader_->next();
                  if (reader_->read(chunk, buffer_).code() != Code::ok) return 1;  // the file is open now
                  if (setrlimit(RLIMIT_AS, &none) != 0) return 2;
                  auto fetched = reader_->fetch(chunk, block_bytes, buffer_);
                  if (!fetched.ok()) return 3;
                  return fetched->view == nullptr && fetched->buffered_bytes == chunk.bytes ? 0 : 4;
              }),
              0);
}

// Even the last block of a stream, of which only a part is data.
TEST_F(LocalReaderTest, AChunkCutShortUnderItsViewFailsToBeWrittenAndTheReasonNamesTheCapturedPart) {
    PlanSettings settings;
    settings.chunk_bytes = chunk_bytes;
    settings.block_bytes = block_bytes;
    auto made =
        make_plan("test", key, 1, 1, group_of_node(0, 1, 1), {{0, {{0, stream_bytes, 0, 0}}}}, settings);
    TAILRACE_ASSERT_OK(made);
    const auto plan = std::make_shared<const FlushPlan>(*made);
    test::ScratchDirectory shared;
    Throttle throttle{0};
    SegmentWriter writer(plan, 0, *storage_, shared.path(), {Access::write, DirectIo::off}, throttle);
    TAILRACE_ASSERT_OK(writer.prepare(0));
    const LocalChunk first = *reader_->next(), second = *reader_->next();
    for (const LocalChunk& chunk : {first, second}) {
        auto fetched = reader_->fetch(chunk, block_bytes, buffer_);
        TAILRACE_ASSERT_OK(fetched);
        std::filesystem::resize_file(part_, 4096);
        const Status failure =
            writer.write(0, chunk.stream_offset, fetched->blocks, buffer_, fetched->buffered_bytes);
        EXPECT_EQ(failure.code(), Code::io_error) << failure.message();
        TAILRACE_EXPECT_FAILS(reader_->reason(chunk, *fetched, failure, buffer_), Code::corrupt,
                              "captured part " + part_);
        std::filesystem::resize_file(part_, head_bytes + stream_bytes);
        const Status other =
            reader_->reason(chunk, *fetched, failure, buffer_);  // nothing wrong with the part
        EXPECT_EQ(other.message(), failure.message());
    }
}

}  // namespace
}  // namespace tailrace::internal
