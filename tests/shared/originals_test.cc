// Original files beside an epoch: they are complete under their name, or there is nothing under it, wherever
// a node, a session or the power fails.
#include "shared/originals.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/crc32c.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "format/file_table.h"
#include "format/original_files.h"
#include "read/epoch_builder.h"
#include "read/epoch_reader.h"
#include "shared/epoch_files.h"
#include "shared/inventory.h"
#include "shared/retention.h"

namespace tailrace::internal {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr const char* complete = "/s/job.files/e000000007";

class OriginalsTest : public ::testing::Test {
  protected:
    using Files = std::map<std::string, std::vector<std::byte>>;

    static BuiltEpoch epoch_of(const std::vector<Files>& of_ranks, EpochKey key = {7, 1}) {
        BuiltEpoch built;
        built.job = "job";
        built.key = key;
        for (const auto& files : of_ranks) {
            std::vector<SavedFile> table;
            auto& regions = built.ranks.emplace_back();
            for (const auto& [name, bytes] : files) table.push_back({name, 0640});
            regions.push_back({std::string(original_files_region), {}, std::nullopt});
            regions.push_back({std::string(file_table_region), encode_file_table(table), std::nullopt});
            for (const auto& [name, bytes] : files)
                regions.push_back({file_region(name), bytes, std::nullopt});
        }
        return built;
    }
    static std::vector<Files> two_ranks() {
        return {{{"a", pattern(1, 700'000)}, {"deep/down/b", {}}}, {{"deep/c", pattern(2, 5000)}}};
    }
    OriginalsPlace place(Storage& storage) const { return {storage, "/s", "job"}; }

    // One node for each rank.
    Status write(Storage& shared, const BuiltEpoch& epoch,
                 OriginalsAttempt attempt = OriginalsAttempt::first) {
        MemoryStorage local;
        TAILRACE_TRY(write_captured_parts(local, "/l", epoch));
        for (uint32_t rank = 0; rank < epoch.ranks.size(); ++rank) {
            const PartFileName name{epoch.job, epoch.key, rank, false};
            const PartPlace part{epoch.key, "/l/" + to_string(name)};
            TAILRACE_TRY(write_originals(place(shared), local, {&part, 1}, attempt, nullptr));
        }
        return {};
    }
    Status save(Storage& shared, const BuiltEpoch& epoch) {
        TAILRACE_TRY(write(shared, epoch));
        TAILRACE_TRY(write_shared_files(shared, "/s", epoch));
        return publish_originals(place(shared), epoch.key, Replace::yes);
    }
    std::vector<std::string> names_in(const std::string& directory) {
        std::vector<std::string> names;
        if (const auto entries = shared_->list(directory); entries.ok())
            for (const auto& entry : *entries) names.push_back(entry.name);
        return names;
    }
    std::vector<std::byte> content(const std::string& path) {
        const auto file = shared_->open(path, {});
        if (!file.ok()) return {};
        std::vector<std::byte> bytes(*(*file)->size());
        EXPECT_EQ(*(*file)->read_at(bytes, 0), bytes.size());
        return bytes;
    }
    // What a reader may trust, if the mark is there.
    Result<FileList> mark() {
        const auto text = content(std::string(complete) + "/" + file_list_name);
        return decode_file_list({reinterpret_cast<const char*>(text.data()), text.size()});
    }
    void expect_complete(const std::vector<Files>& of_ranks, uint32_t run = 1) {
        const auto list = mark();
        ASSERT_TRUE(list.ok()) << list.status().to_string();
        EXPECT_EQ(list->key, (EpochKey{7, run}));
        size_t files = 0;
        for (const auto& of_rank : of_ranks) files += of_rank.size();
        ASSERT_EQ(list->files.size(), files);
        for (const auto& file : list->files) {
            const auto bytes = content(std::string(complete) + "/" + file.name);
            EXPECT_EQ(bytes.size(), file.bytes) << file.name;
            EXPECT_EQ(crc32c(bytes), file.crc) << file.name;
            EXPECT_EQ(file.rights, 0640u);
            bool found = false;
            for (const auto& of_rank : of_ranks)
                found |= of_rank.contains(file.name) && of_rank.at(file.name) == bytes;
            EXPECT_TRUE(found) << file.name;
        }
    }

    bool is_committed(EpochKey key) {
        const auto files = find_shared(*shared_, "/s", "job", key);
        return files.ok() && *files && load_shared_epoch(*shared_, **files).ok();
    }
    // A restore finds the files, which no shared file holds.
    void expect_readable(EpochKey key, const std::vector<Files>& of_ranks) {
        SCOPED_TRACE(to_string(key));
        const auto found = find_shared(*shared_, "/s", "job", key);
        ASSERT_TRUE(found.ok() && *found);
        auto epoch = load_shared_epoch(*shared_, **found);
        ASSERT_TRUE(epoch.ok()) << epoch.status().message();
        const uint32_t rank_count = epoch->rank_count;
        const auto reader = EpochReader::open(*shared_, *shared_, {key, rank_count, {}, std::move(*epoch)});
        ASSERT_TRUE(reader.ok());
        for (uint32_t rank = 0; rank < of_ranks.size(); ++rank)
            for (const auto& [name, bytes] : of_ranks[rank]) {
                std::vector<std::byte> read(bytes.size());
                const RegionTarget target{file_region(name), read};
                const Status status = (*reader)->read_regions(rank, {&target, 1});
                EXPECT_TRUE(status.ok()) << status.message();
                EXPECT_TRUE(read == bytes) << name;
            }
    }

    std::shared_ptr<MemoryStorage> shared_ = std::make_shared<MemoryStorage>();
};

TEST_F(OriginalsTest, TheFilesOfAllRanksLieTogetherUnderTheirNames) {
    ASSERT_TRUE(shared_->make_directories("/s").ok());
    const Status saved = save(*shared_, epoch_of(two_ranks()));
    ASSERT_TRUE(saved.ok()) << saved.message();
    EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007"));
    EXPECT_THAT(names_in(complete), UnorderedElementsAre("a", "deep", file_list_name));
    expect_complete(two_ranks());
}

TEST_F(OriginalsTest, AnEpochThatDoesNotWantThemHasNone) {
    auto epoch = epoch_of(two_ranks());
    for (auto& regions : epoch.ranks) regions.erase(regions.begin());
    ASSERT_TRUE(save(*shared_, epoch).ok());
    EXPECT_THAT(names_in("/s/job.files"), IsEmpty());
}

// At every operation, and with any part of what was not synced lost. A later session finds all files under
// the name, or no name.
TEST_F(OriginalsTest, WhatHasItsNameIsWholeWhereverThePowerFails) {
    for (uint64_t death = 1, whole = 0; whole == 0; ++death) {
        ASSERT_LT(death, 500u);
        for (uint64_t seed = 1; seed <= 4; ++seed) {
            SCOPED_TRACE(fmt::format("death at operation {}, seed {}", death, seed));
            shared_ = std::make_shared<MemoryStorage>();
            ASSERT_TRUE(shared_->make_directories("/s").ok());
            FaultPlan plan;
            plan.die_at_operation = death;
            FaultyStorage dying(shared_, seed, plan);
            const Status saved = save(dying, epoch_of(two_ranks()));
            whole += saved.ok() ? 1 : 0;
            std::mt19937_64 random(seed);
            shared_->crash(random);
            if (mark().ok()) expect_complete(two_ranks());
            if (is_committed({7, 1})) expect_readable({7, 1}, two_ranks());
            const auto inventory = clean_shared(*shared_, "/s", "job");
            ASSERT_TRUE(inventory.ok()) << inventory.status().message();
            if (inventory->committed.empty()) {
                EXPECT_FALSE(saved.ok());
                EXPECT_FALSE(mark().ok());
                // An epoch that has lost files may have committed, so its own stay.
                if (list_shared(*shared_, "/s", "job")->empty()) {
                    EXPECT_THAT(names_in("/s/job.files"), IsEmpty());
                }
            } else {
                expect_complete(two_ranks());
                EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007"));
            }
            if (HasFailure()) return;
        }
    }
}

TEST_F(OriginalsTest, ANameThatTwoRanksHaveUsedIsRefused) {
    const Status saved = write(*shared_, epoch_of({{{"x", pattern(1, 10)}}, {{"x", pattern(2, 10)}}}));
    EXPECT_EQ(saved.code(), Code::invalid_argument);
    EXPECT_THAT(saved.message(), HasSubstr("rank 1 and another rank have both saved a file \"x\""));
}

TEST_F(OriginalsTest, AFileInPlaceOfAnotherRanksDirectoryIsRefused) {
    EXPECT_FALSE(write(*shared_, epoch_of({{{"x", {}}}, {{"x/y", {}}}})).ok());
    MemoryStorage fresh;
    EXPECT_FALSE(write(fresh, epoch_of({{{"x/y", {}}}, {{"x", {}}}})).ok());
}

// invalid_argument would mean that the ranks' files never go together, and the epoch would be given up.
TEST_F(OriginalsTest, AStrangersFileInTheWayIsNotTheRanksFault) {
    ASSERT_TRUE(shared_->make_directories("/s").ok());
    ASSERT_TRUE(shared_->open("/s/job.files", {Access::write}).ok());
    EXPECT_EQ(write(*shared_, epoch_of(two_ranks())).code(), Code::io_error);
}

TEST_F(OriginalsTest, TheNameOfTheMarkIsRefused) {
    for (const auto& name : {file_list_name, file_list_name + "/x"}) {
        const Status saved = write(*shared_, epoch_of({{{name, {}}}}));
        EXPECT_EQ(saved.code(), Code::invalid_argument) << name;
    }
}

// Nodes that finish the epoch of a dead program do not know what it has written. What they cannot tell apart
// is found at the end.
TEST_F(OriginalsTest, ANodeThatGoesOnReplacesWhatIsLeft) {
    const auto epoch = epoch_of(two_ranks());
    ASSERT_TRUE(shared_->make_directories("/s/job.files/e000000007.r0001.unfinished").ok());
    const auto path = "/s/job.files/e000000007.r0001.unfinished/a";
    ASSERT_TRUE((*shared_->open(path, {Access::write}))->write_at(pattern(9, 800'000), 0).ok());
    EXPECT_FALSE(write(*shared_, epoch).ok());
    ASSERT_TRUE(write(*shared_, epoch, OriginalsAttempt::again).ok());
    ASSERT_TRUE(write_shared_files(*shared_, "/s", epoch).ok());
    ASSERT_TRUE(publish_originals(place(*shared_), epoch.key, Replace::no).ok());
    expect_complete(two_ranks());
    EXPECT_TRUE(publish_originals(place(*shared_), epoch.key, Replace::no).ok()) << "it is done already";

    const auto both = epoch_of({{{"x", pattern(1, 10)}}, {{"x", pattern(2, 10)}}}, {8, 1});
    ASSERT_TRUE(write(*shared_, both, OriginalsAttempt::again).ok());
    ASSERT_TRUE(write_shared_files(*shared_, "/s", both).ok());
    EXPECT_EQ(publish_originals(place(*shared_), both.key, Replace::no).code(), Code::invalid_argument);
    EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007", "e000000008.r0001.unfinished"));
}

TEST_F(OriginalsTest, WithoutOneOfItsFilesADirectoryGetsNoName) {
    const auto epoch = epoch_of(two_ranks());
    ASSERT_TRUE(write(*shared_, epoch).ok());
    ASSERT_TRUE(write_shared_files(*shared_, "/s", epoch).ok());
    ASSERT_TRUE(shared_->remove("/s/job.files/e000000007.r0001.unfinished/deep/c").ok());
    const Status published = publish_originals(place(*shared_), epoch.key, Replace::yes);
    EXPECT_THAT(published.message(), HasSubstr("\"deep/c\""));
    EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007.r0001.unfinished"));
}

TEST_F(OriginalsTest, ALaterRunsFilesTakeThePlaceOfAnEarlierRuns) {
    ASSERT_TRUE(save(*shared_, epoch_of(two_ranks())).ok());
    const std::vector<Files> others = {{{"a", pattern(5, 700'000)}}};
    const auto later = epoch_of(others, {7, 2});
    ASSERT_TRUE(write(*shared_, later).ok());
    ASSERT_TRUE(write_shared_files(*shared_, "/s", later).ok());
    EXPECT_EQ(publish_originals(place(*shared_), later.key, Replace::no).code(), Code::already_exists);
    expect_complete(two_ranks());
    ASSERT_TRUE(remove_originals(place(*shared_), {7, 3}).ok());
    expect_complete(two_ranks());
    ASSERT_TRUE(publish_originals(place(*shared_), later.key, Replace::yes).ok());
    expect_complete(others, 2);
    // The earlier attempt still has its files.
    EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007", "e000000007.r0001.unfinished"));
    expect_readable({7, 1}, two_ranks());
    expect_readable({7, 2}, others);
    ASSERT_TRUE(publish_originals(place(*shared_), {7, 1}, Replace::yes).ok());
    expect_complete(others, 2);
    ASSERT_TRUE(clean_shared(*shared_, "/s", "job").ok());
    EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007"));
    EXPECT_THAT(*list_shared(*shared_, "/s", "job"), SizeIs(1));
    expect_complete(others, 2);
}

// The files' bytes lie there and nowhere else.
TEST_F(OriginalsTest, TheSharedFilesDoNotHoldThem) {
    const std::vector<Files> large = {{{"a", pattern(1, 3 << 20)}, {"b", {}}}, {{"c", pattern(2, 1 << 20)}}};
    ASSERT_TRUE(save(*shared_, epoch_of(large)).ok());
    uint64_t bytes = 0;
    for (const auto& entry : *shared_->list("/s")) bytes += entry.is_directory ? 0 : entry.bytes;
    EXPECT_LT(bytes, uint64_t{200'000});
    expect_readable({7, 1}, large);
}

TEST_F(OriginalsTest, AReaderFollowsThemToTheirName) {
    const auto epoch = epoch_of(two_ranks());
    ASSERT_TRUE(write(*shared_, epoch).ok());
    ASSERT_TRUE(write_shared_files(*shared_, "/s", epoch).ok());
    expect_readable(epoch.key, two_ranks());
    auto loaded = load_shared_epoch(*shared_, **find_shared(*shared_, "/s", "job", epoch.key));
    ASSERT_TRUE(loaded.ok());
    const auto reader = EpochReader::open(*shared_, *shared_, {epoch.key, 2, {}, std::move(*loaded)});
    ASSERT_TRUE(reader.ok());
    std::vector<std::byte> empty;
    const RegionTarget first{file_region("deep/down/b"), empty};
    ASSERT_TRUE((*reader)->read_regions(0, {&first, 1}).ok());
    ASSERT_TRUE(publish_originals(place(*shared_), epoch.key, Replace::yes).ok());
    std::vector<std::byte> read(700'000);
    const RegionTarget second{file_region("a"), read};
    const Status status = (*reader)->read_regions(0, {&second, 1});
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(read == two_ranks()[0].at("a"));
}

// The shared files are lost, and the epoch is written again from its captured parts, by this run or by one
// that has its number again.
TEST_F(OriginalsTest, AnEpochThatIsWrittenAgainTakesThePlaceOfWhatWasLeft) {
    for (const bool by_session : {true, false}) {
        shared_ = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(save(*shared_, epoch_of({{{"a", pattern(9, 5000)}}})).ok());
        for (const auto& entry : *shared_->list("/s"))
            if (!entry.is_directory) {
                ASSERT_TRUE(shared_->remove("/s/" + entry.name).ok());
            }
        const auto epoch = epoch_of(two_ranks());
        if (by_session) {
            ASSERT_TRUE(remove_for_rewrite(*shared_, "/s", "job", {7, 1}, epoch.run_uid).ok());
        }
        const Status saved = save(*shared_, epoch);
        ASSERT_TRUE(saved.ok()) << saved.message();
        expect_complete(two_ranks());
        expect_readable({7, 1}, two_ranks());
        EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000007"));
        ASSERT_TRUE(remove_shared_epoch(*shared_, "/s", "job", {7, 1}).ok());
        EXPECT_THAT(names_in("/s/job.files"), IsEmpty());
    }
}

// Without checksums nobody would notice.
TEST_F(OriginalsTest, AFileThatIsGoneIsNotTakenFromAnotherRun) {
    for (const uint32_t run : {1u, 2u}) {
        auto epoch = epoch_of({{{"a", pattern(run, 5000)}}}, {7, run});
        epoch.has_checksums = false;
        ASSERT_TRUE(save(*shared_, epoch).ok());
    }
    ASSERT_TRUE(shared_->remove("/s/job.files/e000000007.r0001.unfinished/a").ok());
    auto loaded = load_shared_epoch(*shared_, **find_shared(*shared_, "/s", "job", {7, 1}));
    const auto reader = EpochReader::open(*shared_, *shared_, {{7, 1}, 1, {}, std::move(*loaded)});
    std::vector<std::byte> read(5000);
    const RegionTarget target{file_region("a"), read};
    EXPECT_EQ((*reader)->read_regions(0, {&target, 1}).code(), Code::corrupt);
}

// Retention must not remove the last epoch that can be read in its favour.
TEST_F(OriginalsTest, AnEpochWithoutItsDirectoryDoesNotCountAsRestorable) {
    ASSERT_TRUE(save(*shared_, epoch_of(two_ranks())).ok());
    auto loaded = load_shared_epoch(*shared_, **find_shared(*shared_, "/s", "job", {7, 1}));
    EXPECT_TRUE(check_restorable(*shared_, *loaded).ok());
    ASSERT_TRUE(shared_->rename(complete, "/elsewhere").ok());
    EXPECT_EQ(check_restorable(*shared_, *loaded).code(), Code::corrupt);
}

TEST_F(OriginalsTest, AFileThatIsGoneOrChangedIsNamed) {
    ASSERT_TRUE(save(*shared_, epoch_of(two_ranks())).ok());
    const auto file = shared_->open(std::string(complete) + "/a", {Access::write});
    ASSERT_TRUE(file.ok() && (*file)->write_at(pattern(3, 10), 300'000).ok());
    ASSERT_TRUE(shared_->remove(std::string(complete) + "/deep/c").ok());
    auto loaded = load_shared_epoch(*shared_, **find_shared(*shared_, "/s", "job", {7, 1}));
    const auto reader = EpochReader::open(*shared_, *shared_, {{7, 1}, 2, {}, std::move(*loaded)});
    ASSERT_TRUE(reader.ok());
    std::vector<std::byte> read(700'000);
    const RegionTarget changed{file_region("a"), read};
    Status status = (*reader)->read_regions(0, {&changed, 1});
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("checksum mismatch in '/s/job.files/e000000007/a'"));
    read.resize(5000);
    const RegionTarget gone{file_region("deep/c"), read};
    status = (*reader)->read_regions(1, {&gone, 1});
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_THAT(status.message(), HasSubstr("/s/job.files/e000000007/deep/c"));
}

TEST_F(OriginalsTest, ADirectoryOfSomebodyElseStays) {
    ASSERT_TRUE(shared_->make_directories(complete).ok());
    ASSERT_TRUE(shared_->open(std::string(complete) + "/notes", {Access::write}).ok());
    EXPECT_FALSE(save(*shared_, epoch_of(two_ranks())).ok());
    ASSERT_TRUE(remove_originals(place(*shared_), {7, 1}).ok());
    EXPECT_THAT(names_in(complete), UnorderedElementsAre("notes"));
}

// At every operation: what is left is no directory that seems complete.
TEST_F(OriginalsTest, TheyGoWithTheirEpochWhereverTheRemovalIsCutShort) {
    for (uint64_t death = 1, whole = 0; whole == 0; ++death) {
        SCOPED_TRACE(death);
        ASSERT_LT(death, 500u);
        shared_ = std::make_shared<MemoryStorage>();
        ASSERT_TRUE(save(*shared_, epoch_of(two_ranks())).ok());
        ASSERT_TRUE(save(*shared_, epoch_of({{{"next", {}}}}, {8, 1})).ok());
        FaultPlan plan;
        plan.die_at_operation = death;
        FaultyStorage dying(shared_, death, plan);
        whole += remove_shared_epoch(dying, "/s", "job", {7, 1}).ok() ? 1 : 0;
        std::mt19937_64 random(death);
        shared_->crash(random);
        if (mark().ok()) expect_complete(two_ranks());
        if (is_committed({7, 1})) expect_readable({7, 1}, two_ranks());
        ASSERT_TRUE(clean_shared(*shared_, "/s", "job").ok());
        if (is_committed({7, 1})) expect_readable({7, 1}, two_ranks());
        ASSERT_TRUE(remove_shared_epoch(*shared_, "/s", "job", {7, 1}).ok());
        EXPECT_THAT(names_in("/s/job.files"), UnorderedElementsAre("e000000008"));
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace tailrace::internal
