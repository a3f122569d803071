// Which epoch of a directory is opened as the newest, and what is said about those that are passed over.
#include "read/newest_epoch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "doubles/memory_storage.h"
#include "read/epoch_builder.h"
#include "read/judged_epoch.h"
#include "storage/forwarding_storage.h"

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_support;

// Does something once, before the n-th listing.
class ChangingStorage : public test::ForwardingStorage {
  public:
    ChangingStorage(std::shared_ptr<Storage> inner, int before_listing, std::function<void()> change)
        : ForwardingStorage(std::move(inner)), left_(before_listing), change_(std::move(change)) {}
    Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
        if (--left_ == 0) change_();
        return ForwardingStorage::list(path);
    }

  private:
    int left_;
    const std::function<void()> change_;
};

class DirectoryTest : public testing::Test {
  protected:
    BuiltEpoch epoch(uint64_t number, uint32_t run, bool cut_off = false) const {
        BuiltEpoch built;
        built.key = {number, run};
        built.ranks = {{{"density", pattern(number, 5000), std::nullopt}}};
        built.last_slot_missing = cut_off;
        return built;
    }
    void write(const BuiltEpoch& built) {
        const Status written = write_shared_files(*storage_, "/shared", built);
        ASSERT_TRUE(written.ok()) << written.message();
    }
    // Spoils the header of the epoch's first file.
    void damage(EpochKey key) {
        const auto listed = list_shared(*storage_, "/shared", "");
        ASSERT_TRUE(listed.ok());
        for (const auto& files : *listed) {
            if (files.key != key) continue;
            auto file = storage_->open(files.files.front().path, {Access::write, DirectIo::off});
            ASSERT_TRUE(file.ok());
            ASSERT_TRUE((*file)->write_at(std::vector<std::byte>(64, std::byte{7}), 0).ok());
        }
    }

    std::shared_ptr<MemoryStorage> storage_ = std::make_shared<MemoryStorage>();
};

TEST_F(DirectoryTest, TheNewestCompleteEpochIsOpened) {
    write(epoch(1, 1));
    write(epoch(2, 1));
    write(epoch(3, 1, true));
    const auto reader = open_newest_epoch(*storage_, "/shared", "", std::nullopt);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->key(), (EpochKey{2, 1}));
}

TEST_F(DirectoryTest, AReaderNamesTheDamagedEpochThatItTakesThePlaceOf) {
    write(epoch(1, 1));
    write(epoch(2, 1));
    damage({2, 1});
    const auto reader = open_newest_epoch(*storage_, "/shared", "", std::nullopt);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->key(), (EpochKey{1, 1}));
    EXPECT_THAT((*reader)->passed_over(), HasSubstr(to_string(EpochKey{2, 1})));
}

// Between the two listings a session completes epoch 3 and removes what it replaces.
TEST_F(DirectoryTest, AnEpochThatIsCompletedMeanwhileIsOpened) {
    write(epoch(1, 1));
    write(epoch(2, 1, true));
    ChangingStorage storage(storage_, 2, [this] { write(epoch(3, 1)); });
    const auto reader = open_newest_epoch(storage, "/shared", "", std::nullopt);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->key(), (EpochKey{3, 1}));
    EXPECT_THAT((*reader)->passed_over(), IsEmpty());
}

TEST_F(DirectoryTest, WhereNothingIsCompleteTheNewestFailureIsTold) {
    write(epoch(1, 1, true));
    write(epoch(2, 1));
    damage({2, 1});
    const auto reader = open_newest_epoch(*storage_, "/shared", "", std::nullopt);
    EXPECT_EQ(reader.status().code(), Code::corrupt);
    EXPECT_THAT(reader.status().message(), HasSubstr("no complete epoch in /shared"));
}

TEST_F(DirectoryTest, OneOfSeveralJobsMustBeNamed) {
    write(epoch(1, 1));
    BuiltEpoch other = epoch(2, 1);
    other.job = "other";
    write(other);
    EXPECT_EQ(open_newest_epoch(*storage_, "/shared", "", std::nullopt).status().code(),
              Code::invalid_argument);
    const auto reader = open_newest_epoch(*storage_, "/shared", "other", std::nullopt);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->key(), (EpochKey{2, 1}));
}

TEST_F(DirectoryTest, EveryEpochIsJudgedAndSortedAsARestoreTriesIt) {
    write(epoch(1, 1));
    write(epoch(2, 1));
    write(epoch(3, 1, true));
    write(epoch(2, 2));
    write(epoch(4, 1));
    damage({4, 1});
    auto found = find_epochs(*storage_, "/shared", "");
    ASSERT_TRUE(found.ok()) << found.status().message();
    auto judged = judge_all(*storage_, std::move(found->epochs));
    std::vector<std::pair<EpochKey, Completeness>> seen;
    for (const auto& one : judged) seen.emplace_back(one.found.key, one.completeness);
    using C = Completeness;
    EXPECT_THAT(seen,
                ElementsAre(std::pair(EpochKey{1, 1}, C::complete), std::pair(EpochKey{2, 1}, C::complete),
                            std::pair(EpochKey{2, 2}, C::complete), std::pair(EpochKey{3, 1}, C::incomplete),
                            std::pair(EpochKey{4, 1}, C::damaged)));
    EXPECT_TRUE(judged[1].replaced);
    EXPECT_TRUE(judged[3].left_behind) << "run 2 went back to epoch 1";
    EXPECT_TRUE(goes_first(judged[2], judged[0]));
    EXPECT_TRUE(goes_first(judged[0], judged[4])) << "what is left behind comes last";
}

// Once the files are listed, and before they are read, a session completes epoch 3 and removes epoch 1.
TEST_F(DirectoryTest, AListingBesideASessionIsTrueOfOneMoment) {
    write(epoch(1, 1));
    write(epoch(2, 1));
    const auto old = list_shared(*storage_, "/shared", "");
    ASSERT_TRUE(old.ok());
    ChangingStorage storage(storage_, 2, [&] {
        write(epoch(3, 1));
        for (const auto& file : old->front().files) ASSERT_TRUE(storage_->remove(file.path).ok());
    });
    const auto judged = judge_directory(storage, "/shared", "", [](const auto&) { return Status(); });
    ASSERT_TRUE(judged.ok()) << judged.status().message();
    std::vector<std::pair<EpochKey, Completeness>> seen;
    for (const auto& one : judged->epochs) seen.emplace_back(one.found.key, one.completeness);
    EXPECT_THAT(seen, ElementsAre(std::pair(EpochKey{2, 1}, Completeness::complete),
                                  std::pair(EpochKey{3, 1}, Completeness::complete)));
}

}  // namespace
}  // namespace tailrace::internal
