// A removal that is cut short, by a death or by the power: the next session must know what is left for that.
#include "shared/epoch_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregate/seeds.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "shared/inventory.h"

namespace tailrace::internal {
namespace {

// Three durable files of epoch 1 under their final names.
std::shared_ptr<MemoryStorage> three_files() {
    auto memory = std::make_shared<MemoryStorage>();
    EXPECT_TRUE(memory->make_directories("/s").ok());
    for (uint32_t k = 0; k < 3; ++k)
        EXPECT_TRUE(memory
                        ->open("/s/" + to_string(SharedFileName{"job", {1, 1}, k, 3, false}),
                               {Access::write, DirectIo::off})
                        .ok());
    EXPECT_TRUE(memory->sync_directory("/s").ok());
    return memory;
}

// Says whether it was removed before the storage died at its n-th operation.
bool removed_until(std::shared_ptr<MemoryStorage> memory, uint64_t die_at) {
    FaultPlan plan;
    plan.die_at_operation = die_at;
    FaultyStorage faulty(std::move(memory), die_at, plan);
    return remove_shared_epoch(faulty, "/s", "job", {1, 1}).ok();
}

TEST(EpochFilesTest, ARemovalThatIsCutShortLeavesSomethingMarkedUnfinished) {
    for (uint64_t die_at = 1; die_at < 12; ++die_at) {
        SCOPED_TRACE(die_at);
        const auto memory = three_files();
        const bool removed = removed_until(memory, die_at);
        const auto left = list_shared(*memory, "/s", "job");
        ASSERT_TRUE(left.ok());
        EXPECT_TRUE(!removed || left->empty());
        if (left->empty()) continue;
        const bool unfinished = has_unfinished(left->front());
        EXPECT_TRUE(unfinished || left->front().files.size() == 3);
        ASSERT_TRUE(clean_shared(*memory, "/s", "job").ok());
        // As long as nothing was removed, it could be a damaged epoch that was just getting its names.
        const bool removing = unfinished && left->front().files.size() < 3;
        EXPECT_THAT(*list_shared(*memory, "/s", "job"), testing::SizeIs(removing ? 0 : 1));
    }
}

TEST(EpochFilesTest, OnlyAFileThatIsNotThereHasDisappeared) {
    FaultyStorage faulty(three_files(), 1);
    EXPECT_TRUE(name_shared_epoch(faulty, "/s", "job", {1, 1}, 3).ok());  // all have their names
    FaultPlan plan;
    plan.open_error = 1;
    faulty.set_plan(plan);
    EXPECT_EQ(name_shared_epoch(faulty, "/s", "job", {1, 1}, 3).code(), Code::io_error);
    faulty.set_plan({});
    EXPECT_EQ(name_shared_epoch(faulty, "/s", "job", {1, 1}, 4).code(), Code::not_found);
}

// What was not synced may come back, each removal by itself.
TEST(EpochFilesTest, APowerCutDuringARemovalLeavesSomethingMarkedUnfinished) {
    for (uint64_t die_at = 1; die_at < 14; ++die_at)
        for (const uint64_t seed : seeds(1, 50)) {
            SCOPED_TRACE(testing::Message() << "operation " << die_at << ", seed " << seed);
            const auto memory = three_files();
            const bool removed = removed_until(memory, die_at);
            Random random(seed);
            memory->crash(random);
            const auto left = list_shared(*memory, "/s", "job");
            ASSERT_TRUE(left.ok());
            EXPECT_TRUE(!removed || left->empty());
            if (left->empty()) continue;
            const auto& files = left->front();
            EXPECT_TRUE(has_unfinished(files) || files.files.size() == 3) << files.files.size() << " files";
        }
}

}  // namespace
}  // namespace tailrace::internal
