// The commit: a slot vouches for what is durable, whatever fails and whenever the power does.
#include "shared/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregate/seeds.h"
#include "base/crc32c.h"
#include "catalog/catalog.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"

namespace tailrace::internal {
namespace {

const std::string directory = "/shared";

SharedHeader header_of(uint32_t leaders) {
    SharedHeader header;
    header.job = "job";
    header.key = {7, 2};
    header.run_uid = 99;
    header.leader_count = leaders;
    header.rank_count = leaders;
    header.stripe_bytes = leaders == 1 ? 0 : 64 * header.block_bytes;
    return header;
}

std::string path_of(const SharedHeader& header) {
    return join_path(directory, to_string(SharedFileName{header.job, header.key, 0, 1, true}));
}

// One extent of 10,000 bytes of the leader's own rank, at the beginning of its data.
SegmentIndex index_of(const SharedHeader& header, uint32_t leader) {
    SegmentIndex index;
    for (uint32_t rank = 0; rank < header.rank_count; ++rank)
        index.streams.push_back({rank, 10'000, 4096, 7});
    index.extents.push_back({leader, 0, 10'000, place_in_stripes(header, leader, 0).file_offset});
    return index;
}

std::vector<std::byte> data_of(uint32_t leader) {
    return std::vector<std::byte>(12'288, std::byte(leader + 1));  // to the end of its last block
}

Status write_segment(Storage& storage, const SharedHeader& header, uint32_t leader,
                     std::span<const std::byte> data) {
    TAILRACE_ASSIGN(auto segment, Segment::begin(storage, directory, path_of(header), header, leader,
                                                 {Access::write, DirectIo::off}));
    const SegmentIndex index = index_of(header, leader);
    const uint64_t offset = index.extents[0].file_offset;
    TAILRACE_TRY(segment->file().write_at(data, offset));
    TAILRACE_TRY(segment->seal(index, offset + data.size()));
    return segment->commit();
}

// ok when the leader's slot is valid, and so are its index and its data.
Status vouches_for(Storage& storage, const SharedHeader& header, uint32_t leader,
                   std::span<const std::byte> data) {
    TAILRACE_ASSIGN(const auto head, read_shared_head(storage, path_of(header)));
    TAILRACE_TRY(head.slots[leader].status());
    const auto& index = head.indexes[leader];
    if (head.header != header || !index || !index->ok() ||
        (**index).extents != index_of(header, leader).extents)
        return Status(Code::corrupt, "a slot, and another index");
    std::vector<std::byte> found(10'000);
    TAILRACE_ASSIGN(const auto file, storage.open(path_of(header), {Access::read, DirectIo::off}));
    TAILRACE_TRY(file->read_at(found, (**index).extents.front().file_offset).status());
    return std::equal(found.begin(), found.end(), data.begin())
               ? Status()
               : Status(Code::corrupt, "a slot, and other data");
}

// What is wrong when there is a slot; not_found when there is none.
Status look_at(Storage& storage, const SharedHeader& header, uint32_t leader) {
    return vouches_for(storage, header, leader, data_of(leader));
}

std::shared_ptr<MemoryStorage> empty_directory() {
    auto memory = std::make_shared<MemoryStorage>();
    EXPECT_TRUE(memory->make_directories(directory).ok());
    EXPECT_TRUE(memory->sync_directory(directory).ok());
    return memory;
}

TEST(SegmentTest, WhatIsCommittedSurvivesThePower) {
    for (uint64_t seed : seeds(1, 50)) {
        SCOPED_TRACE(seed);
        const SharedHeader header = header_of(1 + static_cast<uint32_t>(seed % 3));
        auto memory = empty_directory();
        for (uint32_t leader = 0; leader < header.leader_count; ++leader)
            ASSERT_TRUE(write_segment(*memory, header, leader, data_of(leader)).ok());
        Random random(seed);
        memory->crash(random);
        for (uint32_t leader = 0; leader < header.leader_count; ++leader) {
            const Status found = look_at(*memory, header, leader);
            EXPECT_TRUE(found.ok()) << found.to_string();
        }
    }
}

TEST(SegmentTest, ASlotVouchesForWhatIsDurableWhicheverOperationIsTheLast) {
    uint64_t committed = 0, not_committed = 0;
    for (const uint32_t leaders : {1U, 3U}) {
        bool more = true;
        for (uint64_t last = 1; more; ++last)
            for (uint64_t seed = 0; seed < 20; ++seed) {
                SCOPED_TRACE(testing::Message() << leaders << " leaders, operation " << last << ", " << seed);
                auto memory = empty_directory();
                const SharedHeader header = header_of(leaders);
                for (uint32_t leader = 1; leader < leaders; ++leader)
                    ASSERT_TRUE(write_segment(*memory, header, leader, data_of(leader)).ok());
                FaultPlan plan;
                plan.die_at_operation = last;
                FaultyStorage faulty(memory, seed, plan);
                const Status written = write_segment(faulty, header, 0, data_of(0));
                more = faulty.dead();
                Random random(seed);
                memory->crash(random);
                const Status found = look_at(*memory, header, 0);
                ++(found.ok() ? committed : not_committed);
                EXPECT_TRUE(!written.ok() || found.ok()) << found.to_string();
                EXPECT_THAT(found.message(), testing::Not(testing::StartsWith("a slot, and")));
                for (uint32_t leader = 1; leader < leaders; ++leader)
                    EXPECT_TRUE(look_at(*memory, header, leader).ok()) << "of leader " << leader;
            }
    }
    EXPECT_GT(committed, 0u);
    EXPECT_GT(not_committed, 100u);
}

TEST(SegmentTest, TheSlotOfAnEarlierAttemptDoesNotVouchForNewData) {
    const SharedHeader header = header_of(1);
    const std::vector<std::byte> older(12'288, std::byte{0xee});
    uint64_t old_ones = 0, new_ones = 0, none = 0;
    bool more = true;
    for (uint64_t last = 1; more; ++last)
        for (uint64_t seed = 0; seed < 20; ++seed) {
            SCOPED_TRACE(testing::Message() << "operation " << last << ", " << seed);
            auto memory = empty_directory();
            ASSERT_TRUE(write_segment(*memory, header, 0, older).ok());
            FaultPlan plan;
            plan.die_at_operation = last;
            FaultyStorage faulty(memory, seed, plan);
            (void)write_segment(faulty, header, 0, data_of(0));
            more = faulty.dead();
            Random random(seed);
            memory->crash(random);
            const bool was_old = vouches_for(*memory, header, 0, older).ok();
            const bool is_new = vouches_for(*memory, header, 0, data_of(0)).ok();
            const auto head = read_shared_head(*memory, path_of(header));
            ASSERT_TRUE(head.ok()) << head.status().to_string();
            EXPECT_TRUE(was_old || is_new || !head->slots[0].ok()) << "a slot, and bytes of two attempts";
            ++(was_old ? old_ones : is_new ? new_ones : none);
        }
    EXPECT_GT(old_ones, 0u);
    EXPECT_GT(new_ones, 0u);
    EXPECT_GT(none, 0u);
}

TEST(SegmentTest, WhatIsNotSealedIsNotCommitted) {
    auto memory = empty_directory();
    const SharedHeader header = header_of(1);
    auto segment =
        Segment::begin(*memory, directory, path_of(header), header, 0, {Access::write, DirectIo::off});
    ASSERT_TRUE(segment.ok());
    EXPECT_EQ((*segment)->commit().code(), Code::failed_state);
    SegmentIndex large = index_of(header, 0);
    large.streams.resize(1000);
    EXPECT_EQ((*segment)->seal(large, data_offset(header)).code(), Code::failed_state);
    EXPECT_EQ((*segment)->commit().code(), Code::failed_state);
    EXPECT_FALSE(look_at(*memory, header, 0).ok());
}

}  // namespace
}  // namespace tailrace::internal
