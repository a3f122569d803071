// What an EpochReader does with indexes that are valid as far as the format goes and make no sense.
#include <gtest/gtest.h>

#include "doubles/memory_storage.h"
#include "read/epoch_reader.h"

namespace tailrace::internal {
namespace {

TEST(HostileEpochTest, StreamsWithoutBytesAreCorrupt) {
    MemoryStorage storage;
    SharedEpoch epoch;
    epoch.job = "job";
    epoch.key = {1, 1};
    epoch.rank_count = 3;
    epoch.paths = {"/s/none"};
    for (uint32_t rank = 0; rank < epoch.rank_count; ++rank) epoch.streams.push_back({{rank, 0, 0, 0}, {}});
    auto reader = EpochReader::open(storage, storage, {epoch.key, epoch.rank_count, {}, epoch});
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_EQ((*reader)->arrays().status().code(), Code::corrupt);
    EXPECT_EQ((*reader)->read_box("u", {}, {}, {}).code(), Code::corrupt);
    EXPECT_EQ((*reader)->manifest(1).status().code(), Code::corrupt);
    EXPECT_EQ((*reader)->verify(2, {}).code(), Code::corrupt);
}

}  // namespace
}  // namespace tailrace::internal
