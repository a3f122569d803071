#include "doubles/faulty_storage.h"

#include <bit>

#include "doubles/memory_storage.h"
#include "storage/conformance.h"
#include "storage/scratch.h"

namespace tailrace::internal::test {
namespace {

StorageFixture faulty_fixture() {
    auto memory = std::make_shared<MemoryStorage>();
    TAILRACE_EXPECT_OK(memory->make_directories("/t"));
    return {std::make_shared<FaultyStorage>(memory, 1), "/t", nullptr};
}

INSTANTIATE_TEST_SUITE_P(Faulty, StorageConformance,
                         testing::Values(StorageCase{"faulty_at_rate_0", faulty_fixture}), case_name);

class FaultyStorageTest : public testing::Test {
  protected:
    void SetUp() override {
        TAILRACE_ASSERT_OK(memory_->make_directories("/d"));
        auto file = storage_.open("/d/a", {Access::write, DirectIo::off});
        TAILRACE_ASSERT_OK(file);
        file_ = std::move(*file);
        TAILRACE_ASSERT_OK(file_->write_at(content_, 0));
    }
    static FaultPlan always(double FaultPlan::*rate) {
        FaultPlan plan;
        plan.*rate = 1;
        return plan;
    }
    static size_t wrong_bits(std::span<const std::byte> a, std::span<const std::byte> b) {
        size_t count = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            count += static_cast<size_t>(std::popcount(std::to_integer<unsigned>(a[i] ^ b[i])));
        }
        return count;
    }
    std::vector<std::byte> stored() {
        auto file = memory_->open("/d/a", {});
        std::vector<std::byte> found(content_.size());
        EXPECT_EQ(*(*file)->read_at(found, 0), found.size());
        return found;
    }

    const std::vector<std::byte> content_ = pattern(10'000, 1);
    std::shared_ptr<MemoryStorage> memory_ = std::make_shared<MemoryStorage>();
    FaultyStorage storage_{memory_, 7};
    std::unique_ptr<File> file_;
};

TEST_F(FaultyStorageTest, EveryKindOfErrorStrikesAndIsCounted) {
    std::vector<std::byte> memory(100);
    storage_.set_plan(always(&FaultPlan::open_error));
    TAILRACE_EXPECT_FAILS(storage_.open("/d/a", {}), Code::io_error, "/d/a");
    storage_.set_plan(always(&FaultPlan::read_error));
    TAILRACE_EXPECT_FAILS(file_->read_at(memory, 0), Code::io_error, "/d/a");
    storage_.set_plan(always(&FaultPlan::write_error));
    TAILRACE_EXPECT_FAILS(file_->write_at(memory, 0), Code::io_error, "/d/a");
    TAILRACE_EXPECT_FAILS(file_->truncate(1), Code::io_error, "/d/a");
    storage_.set_plan(always(&FaultPlan::write_no_space));
    TAILRACE_EXPECT_FAILS(file_->write_at(memory, 0), Code::no_space, "/d/a");
    TAILRACE_EXPECT_FAILS(file_->reserve(0, 1), Code::no_space, "/d/a");
    storage_.set_plan(always(&FaultPlan::rename_error));
    TAILRACE_EXPECT_FAILS(storage_.rename("/d/a", "/d/b"), Code::io_error, "/d/a");
    TAILRACE_EXPECT_FAILS(storage_.remove("/d/a"), Code::io_error, "/d/a");
    storage_.set_plan(always(&FaultPlan::list_error));
    TAILRACE_EXPECT_FAILS(storage_.list("/d"), Code::io_error, "/d");
    storage_.set_plan(always(&FaultPlan::sync_error));
    TAILRACE_EXPECT_FAILS(storage_.sync_directory("/d"), Code::io_error, "/d");
    const FaultCounts counts = storage_.counts();
    EXPECT_EQ(counts.open_error, 1u);
    EXPECT_EQ(counts.read_error, 1u);
    EXPECT_EQ(counts.write_error, 2u);
    EXPECT_EQ(counts.write_no_space, 2u);
    EXPECT_EQ(counts.rename_error, 2u);
    EXPECT_EQ(counts.list_error, 1u);
    EXPECT_EQ(counts.sync_error, 1u);
    EXPECT_EQ(counts.total(), 10u);
    storage_.set_plan({});
    TAILRACE_EXPECT_OK(storage_.open("/d/a", {}));
}

TEST_F(FaultyStorageTest, AFailedSyncIsNeverForgotten) {
    storage_.set_plan(always(&FaultPlan::sync_error));
    TAILRACE_EXPECT_FAILS(file_->sync(), Code::io_error, "/d/a");
    storage_.set_plan({});
    TAILRACE_EXPECT_FAILS(file_->sync(), Code::io_error, "earlier sync");
    TAILRACE_EXPECT_FAILS(file_->sync(), Code::io_error, "earlier sync");
    TAILRACE_EXPECT_OK((*storage_.open("/d/a", {Access::write, DirectIo::off}))->sync());
}

TEST_F(FaultyStorageTest, AFailedSyncMakesNothingDurable) {
    int lost = 0;
    std::mt19937_64 random(1);
    for (int round = 0; round < 20; ++round) {
        auto memory = std::make_shared<MemoryStorage>();
        FaultyStorage storage(memory, 1, always(&FaultPlan::sync_error));
        TAILRACE_ASSERT_OK(memory->make_directories("/d"));
        auto file = storage.open("/d/a", {Access::create_new, DirectIo::off});
        TAILRACE_ASSERT_OK(memory->sync_directory("/d"));
        TAILRACE_ASSERT_OK((*file)->write_at(content_, 0));
        TAILRACE_EXPECT_FAILS((*file)->sync(), Code::io_error, "/d/a");
        memory->crash(random);
        std::vector<std::byte> found(content_.size());
        auto count = (*memory->open("/d/a", {}))->read_at(found, 0);
        TAILRACE_ASSERT_OK(count);
        lost += *count != content_.size() || found != content_ ? 1 : 0;
    }
    EXPECT_GT(lost, 0);
}

TEST_F(FaultyStorageTest, AReadMayComeShortOrWrongInOneBit) {
    std::vector<std::byte> found(content_.size());
    storage_.set_plan(always(&FaultPlan::short_read));
    EXPECT_LT(*file_->read_at(found, 0), content_.size());
    storage_.set_plan(always(&FaultPlan::read_flip));
    EXPECT_EQ(*file_->read_at(found, 0), content_.size());
    EXPECT_EQ(wrong_bits(found, content_), 1u);
    std::vector<std::byte> tail(content_.size() - 10);
    const std::vector<Piece> pieces = {std::span(found).first(10), tail};
    EXPECT_EQ(*file_->read_pieces(pieces, 0), content_.size());
    std::copy(tail.begin(), tail.end(), found.begin() + 10);
    EXPECT_EQ(wrong_bits(found, content_), 1u);
    EXPECT_EQ(stored(), content_);
}

TEST_F(FaultyStorageTest, AWriteMayStoreOneWrongBitSilently) {
    storage_.set_plan(always(&FaultPlan::write_flip));
    TAILRACE_EXPECT_OK(file_->write_at(content_, 0));
    EXPECT_EQ(wrong_bits(stored(), content_), 1u);
    EXPECT_EQ(storage_.counts().write_flip, 1u);
}

TEST_F(FaultyStorageTest, AFailedWriteLeavesAPrefix) {
    storage_.set_plan(always(&FaultPlan::write_error));
    EXPECT_FALSE(file_->write_at(std::vector<std::byte>(10'000, std::byte{0xEE}), 0).ok());
    const auto found = stored();
    size_t prefix = 0;
    while (prefix < found.size() && found[prefix] == std::byte{0xEE}) ++prefix;
    EXPECT_TRUE(std::equal(found.begin() + static_cast<std::ptrdiff_t>(prefix) + 20, found.end(),
                           content_.begin() + static_cast<std::ptrdiff_t>(prefix) + 20));
}

TEST_F(FaultyStorageTest, FaultsKeepToTheirPaths) {
    FaultPlan plan = always(&FaultPlan::open_error);
    plan.path_filter = "bad";
    storage_.set_plan(plan);
    TAILRACE_EXPECT_OK(storage_.open("/d/good", {Access::write, DirectIo::off}));
    TAILRACE_EXPECT_FAILS(storage_.open("/d/bad", {Access::write, DirectIo::off}), Code::io_error, "/d/bad");
}

TEST_F(FaultyStorageTest, AfterDeathEverythingIsAborted) {
    FaultPlan plan;
    plan.die_at_operation = storage_.operations() + 2;
    storage_.set_plan(plan);
    TAILRACE_EXPECT_OK(file_->size());
    EXPECT_FALSE(storage_.dead());
    EXPECT_EQ(file_->write_at(std::vector<std::byte>(10'000, std::byte{0xEE}), 0).code(), Code::aborted);
    EXPECT_TRUE(storage_.dead());
    const auto torn = stored();
    std::vector<std::byte> memory(1);
    EXPECT_EQ(file_->write_at(memory, 0).code(), Code::aborted);
    EXPECT_EQ(file_->read_at(memory, 0).status().code(), Code::aborted);
    EXPECT_EQ(file_->sync().code(), Code::aborted);
    EXPECT_EQ(file_->truncate(0).code(), Code::aborted);
    EXPECT_EQ(file_->close().code(), Code::aborted);
    EXPECT_EQ(storage_.open("/d/b", {Access::write, DirectIo::off}).status().code(), Code::aborted);
    EXPECT_EQ(storage_.rename("/d/a", "/d/b").code(), Code::aborted);
    EXPECT_EQ(storage_.remove("/d/a").code(), Code::aborted);
    EXPECT_EQ(storage_.list("/d").status().code(), Code::aborted);
    EXPECT_EQ(storage_.make_directories("/e").code(), Code::aborted);
    EXPECT_EQ(storage_.sync_directory("/d").code(), Code::aborted);
    EXPECT_EQ(storage_.space("/d").status().code(), Code::aborted);
    EXPECT_EQ(storage_.lock_directory("/d").status().code(), Code::aborted);
    EXPECT_EQ(stored(), torn) << "nothing is done after death";
    EXPECT_FALSE(memory_->open("/d/b", {}).ok());
}

TEST_F(FaultyStorageTest, TheSameSeedStrikesAlike) {
    auto faults = [&](uint64_t seed) {
        FaultPlan plan;
        plan.read_error = 0.3;
        FaultyStorage storage(memory_, seed, plan);
        auto file = storage.open("/d/a", {});
        std::string pattern_of_faults;
        std::vector<std::byte> memory(1);
        for (int i = 0; i < 64; ++i) pattern_of_faults += file.value()->read_at(memory, 0).ok() ? '.' : 'x';
        return pattern_of_faults;
    };
    EXPECT_EQ(faults(3), faults(3));
    EXPECT_NE(faults(3), faults(4));
    EXPECT_NE(faults(3).find('x'), std::string::npos);
    EXPECT_NE(faults(3).find('.'), std::string::npos);
}

}  // namespace
}  // namespace tailrace::internal::test
