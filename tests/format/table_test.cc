// Tables whose length a file says: what is read, and how much at once, before the length is believed.
#include "format/table.h"

#include <algorithm>

#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "format/hostile.h"
#include "format/map_storage.h"

namespace tailrace::internal {
namespace {

// An index of that many bytes, as far as its frame tells.
Bytes large_index(uint64_t bytes) {
    Bytes index = encode(SegmentIndex{});
    index.resize(bytes);
    reseal(index, 0, bytes);
    return index;
}

class TableTest : public testing::Test {
  protected:
    Result<bool> confirm(const Bytes& there, uint64_t bytes, uint32_t crc) {
        reads = most_at_once = 0;
        TAILRACE_TRY(confirm_table(TableKind::index, bytes, crc, "index",
                                   [&](std::span<std::byte> piece, uint64_t offset) -> Result<size_t> {
                                       ++reads;
                                       most_at_once = std::max(most_at_once, piece.size());
                                       const auto from = std::min<uint64_t>(offset, there.size());
                                       const auto got = std::min<size_t>(piece.size(), there.size() - from);
                                       std::copy_n(there.begin() + static_cast<std::ptrdiff_t>(from), got,
                                                   piece.begin());
                                       return got;
                                   }));
        return true;
    }
    size_t reads = 0, most_at_once = 0;
};

TEST_F(TableTest, ALargeTableIsConfirmedInSmallPieces) {
    const Bytes index = large_index(3 * unconfirmed_table_bytes + 64);
    EXPECT_EQ(confirm(index, index.size(), crc32c(index)).status().to_string(), "ok");
    EXPECT_LE(most_at_once, 1u << 20);
}

TEST_F(TableTest, ASmallTableIsNotReadTwice) {
    const Bytes index = large_index(unconfirmed_table_bytes);
    EXPECT_TRUE(confirm(index, index.size(), crc32c(index)).ok());
    EXPECT_EQ(reads, 0u);
}

TEST_F(TableTest, WhatIsNotATableIsKnownFromItsFirstPiece) {
    const Bytes zeros(2 * unconfirmed_table_bytes);
    expect_code(confirm(zeros, zeros.size(), crc32c(zeros)), Code::corrupt, "does not start with");
    EXPECT_EQ(reads, 1u);
    const Bytes index = large_index(2 * unconfirmed_table_bytes);
    expect_code(confirm(index, index.size() - 64, crc32c(index)), Code::corrupt, "are expected");
    EXPECT_EQ(reads, 1u);
}

TEST_F(TableTest, AWrongOrShortTableIsCorrupt) {
    Bytes index = large_index(2 * unconfirmed_table_bytes);
    const uint32_t crc = crc32c(index);
    index.back() ^= std::byte{1};
    expect_code(confirm(index, index.size(), crc), Code::corrupt, "checksum");
    const uint64_t bytes = index.size();
    index.pop_back();
    expect_code(confirm(index, bytes, crc), Code::corrupt, "cut off");
}

// A file that is its head and a hole behind it, and remembers the largest read.
class HoleFile final : public File {
  public:
    HoleFile(Bytes head, uint64_t bytes, size_t& largest)
        : head_(std::move(head)), bytes_(bytes), largest_(largest) {}
    Result<size_t> read_at(std::span<std::byte> target, uint64_t offset) override {
        largest_ = std::max(largest_, target.size());
        const size_t got = offset < bytes_ ? std::min<uint64_t>(target.size(), bytes_ - offset) : 0;
        for (size_t i = 0; i < got; ++i)
            target[i] = offset + i < head_.size() ? head_[offset + i] : std::byte{0};
        return got;
    }
    Status write_at(std::span<const std::byte>, uint64_t) override { return refused(); }
    Status reserve(uint64_t, uint64_t) override { return refused(); }
    Status truncate(uint64_t) override { return refused(); }
    Status sync() override { return refused(); }
    Result<uint64_t> size() override { return bytes_; }
    Status close() override { return {}; }
    const std::string& path() const override { return path_; }

  private:
    static Status refused() { return Status(Code::unsupported, "a hole is only read"); }
    const Bytes head_;
    const uint64_t bytes_;
    size_t& largest_;
    const std::string path_ = "hole";
};

class HoleStorage final : public MapStorage {
  public:
    Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options) override {
        auto file = MapStorage::open(path, options);
        if (!file.ok()) return file;
        return std::unique_ptr<File>(std::make_unique<HoleFile>(files[path], bytes, largest_read));
    }
    uint64_t bytes = 0;
    size_t largest_read = 0;
};

// The head's records are sealed: only the index is not what it is said to be.
TEST_F(TableTest, AnIndexOfAGigabyteOfHolesTakesNoGigabyte) {
    constexpr uint64_t claimed = uint64_t{1} << 30;
    SharedHeader header;
    header.job = "hole";
    header.key = {7, 1};
    header.file_count = 1;
    header.rank_count = 1;
    header.leader_count = 1;
    header.block_bytes = 4096;
    header.index_area_bytes = claimed;
    LeaderSlot slot;
    slot.key = header.key;
    slot.index_bytes = claimed;
    Bytes head = encode(header);
    const Bytes encoded_slot = encode(slot, header.block_bytes);
    head.insert(head.end(), encoded_slot.begin(), encoded_slot.end());
    Bytes start = encode(SegmentIndex{});  // the hole behind it gives it another checksum
    store(start, 24, claimed);

    HoleStorage storage;
    storage.bytes = data_offset(header) + 4096;
    const auto path = "dir/" + to_string(SharedFileName{header.job, header.key, 0, 1, false});
    for (const bool has_start : {false, true}) {
        if (has_start) head.insert(head.end(), start.begin(), start.end());
        storage.files[path] = head;
        storage.largest_read = 0;
        auto listed = list_shared(storage, "dir", "");
        ASSERT_TRUE(listed.ok() && listed->size() == 1);
        expect_code(load_shared_epoch(storage, listed->front()), Code::corrupt, "index of leader 1");
        EXPECT_TRUE(read_shared_head(storage, path).ok());
        EXPECT_LE(storage.largest_read, unconfirmed_table_bytes);
    }
}

}  // namespace
}  // namespace tailrace::internal
