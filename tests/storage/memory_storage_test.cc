#include "doubles/memory_storage.h"

#include <map>

#include "storage/conformance.h"
#include "storage/scratch.h"

namespace tailrace::internal::test {
namespace {

StorageFixture memory_fixture(bool offer_map) {
    auto storage = std::make_shared<MemoryStorage>(MemoryStorageOptions{UINT64_MAX, 4096, offer_map});
    TAILRACE_EXPECT_OK(storage->make_directories("/t"));
    return {storage, "/t", nullptr};
}

INSTANTIATE_TEST_SUITE_P(Memory, StorageConformance,
                         testing::Values(StorageCase{"memory", [] { return memory_fixture(false); }},
                                         StorageCase{"memory_with_map", [] { return memory_fixture(true); }}),
                         case_name);

std::vector<std::byte> content_of(Storage& storage, const std::string& path) {
    auto file = storage.open(path, {});
    if (!file.ok()) return {};
    std::vector<std::byte> content(static_cast<size_t>(*(*file)->size()));
    EXPECT_EQ(*(*file)->read_at(content, 0), content.size());
    return content;
}

bool exists(Storage& storage, const std::string& path) {
    return storage.open(path, {}).ok();
}

class MemoryStorageTest : public testing::Test {
  protected:
    void SetUp() override { TAILRACE_ASSERT_OK(storage_.make_directories("/d")); }
    std::unique_ptr<File> create(const std::string& path, std::span<const std::byte> content) {
        auto file = storage_.open(path, {Access::create_new, DirectIo::off});
        EXPECT_TRUE(file.ok()) << file.status().to_string();
        TAILRACE_EXPECT_OK((*file)->write_at(content, 0));
        return std::move(*file);
    }
    MemoryStorage storage_;
    std::mt19937_64 random_{1};
};

TEST_F(MemoryStorageTest, WhatWasSyncedSurvivesEveryCrash) {
    const auto content = pattern(20'000, 1);
    auto file = create("/d/a", content);
    TAILRACE_ASSERT_OK(file->sync());
    TAILRACE_ASSERT_OK(storage_.sync_directory("/d"));
    for (int round = 0; round < 50; ++round) {
        storage_.crash(random_);
        EXPECT_EQ(content_of(storage_, "/d/a"), content);
    }
}

TEST_F(MemoryStorageTest, UnsyncedWritesSurviveInAnySubsetAndTorn) {
    std::map<std::string, int> seen;
    for (int round = 0; round < 400; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        auto file = storage.open("/d/a", {Access::create_new, DirectIo::off});
        TAILRACE_ASSERT_OK((*file)->write_at(std::vector<std::byte>(8192, std::byte{'.'}), 0));
        TAILRACE_ASSERT_OK((*file)->sync());
        TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        TAILRACE_ASSERT_OK((*file)->write_at(std::vector<std::byte>(4096, std::byte{'1'}), 0));
        TAILRACE_ASSERT_OK((*file)->write_at(std::vector<std::byte>(4096, std::byte{'2'}), 4096));
        storage.crash(random_);
        const auto content = content_of(storage, "/d/a");
        ASSERT_EQ(content.size(), 8192u);
        std::string kind;
        for (size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{8191}}) {
            kind += static_cast<char>(content[at]);
        }
        ++seen[kind];
    }
    for (const char* kind : {"....", "11..", "..22", "1122", "1...", "..2.", "1.2.", "1.22", "112."}) {
        EXPECT_GT(seen[kind], 0) << kind;
    }
    EXPECT_EQ(seen.size(), 9u);
}

TEST_F(MemoryStorageTest, ALostWriteMayLeaveItsLength) {
    std::map<size_t, int> lengths;
    for (int round = 0; round < 200; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        auto file = storage.open("/d/a", {Access::create_new, DirectIo::off});
        TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        TAILRACE_ASSERT_OK((*file)->write_at(std::vector<std::byte>(1, std::byte{'1'}), 999));
        storage.crash(random_);
        const auto content = content_of(storage, "/d/a");
        ++lengths[content.size() * 10 + (content.size() == 1000 && content[999] == std::byte{'1'} ? 1 : 0)];
    }
    EXPECT_GT(lengths[0], 0);
    EXPECT_GT(lengths[10'000], 0);
    EXPECT_GT(lengths[10'001], 0);
}

TEST_F(MemoryStorageTest, NamesSurviveOnlyBySyncOfTheirDirectory) {
    int kept = 0;
    for (int round = 0; round < 100; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        auto file = storage.open("/d/a", {Access::create_new, DirectIo::off});
        TAILRACE_ASSERT_OK((*file)->sync());  // of the content, not of the name
        storage.crash(random_);
        kept += exists(storage, "/d/a") ? 1 : 0;
    }
    EXPECT_GT(kept, 10);
    EXPECT_LT(kept, 90);
}

TEST_F(MemoryStorageTest, APendingRenameLeavesOneWholeFileOrTheOther) {
    const auto old_content = pattern(5000, 1), new_content = pattern(7000, 2);
    int renamed = 0, kept = 0;
    for (int round = 0; round < 100; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        for (const auto& [path, content] : {std::pair{"/d/a", old_content}, {"/d/b", new_content}}) {
            auto file = storage.open(path, {Access::create_new, DirectIo::off});
            TAILRACE_ASSERT_OK((*file)->write_at(content, 0));
            TAILRACE_ASSERT_OK((*file)->sync());
        }
        TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        TAILRACE_ASSERT_OK(storage.rename("/d/b", "/d/a"));
        storage.crash(random_);
        const auto found = content_of(storage, "/d/a");
        if (found == new_content) {
            ++renamed;
            EXPECT_FALSE(exists(storage, "/d/b"));
        } else {
            ASSERT_EQ(found, old_content);
            ++kept;
            EXPECT_EQ(content_of(storage, "/d/b"), new_content);
        }
    }
    EXPECT_GT(renamed, 10);
    EXPECT_GT(kept, 10);
}

TEST_F(MemoryStorageTest, APendingRenameOfADirectoryIsKeptWholeOrNotAtAll) {
    int renamed = 0, kept = 0;
    for (int round = 0; round < 100; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d/a/b"));
        for (const char* path : {"/d/a/x", "/d/a/b/y"})
            TAILRACE_ASSERT_OK((*storage.open(path, {Access::create_new, DirectIo::off}))->sync());
        TAILRACE_EXPECT_FAILS(storage.rename("/d/a", "/d/c"), Code::failed_state, "was not synced");
        TAILRACE_ASSERT_OK(storage.sync_directory("/d/a/b"));
        TAILRACE_ASSERT_OK(storage.sync_directory("/d/a"));
        TAILRACE_ASSERT_OK(storage.rename("/d/a", "/d/c"));
        storage.crash(random_);
        const bool now = exists(storage, "/d/c/x");
        EXPECT_EQ(exists(storage, "/d/c/b/y"), now);
        EXPECT_EQ(exists(storage, "/d/a/x"), !now);
        EXPECT_EQ(exists(storage, "/d/a/b/y"), !now);
        EXPECT_EQ(storage.list("/d")->size(), 1u);
        ++(now ? renamed : kept);
    }
    EXPECT_GT(renamed, 10);
    EXPECT_GT(kept, 10);
}

TEST_F(MemoryStorageTest, ARenameBetweenDirectoriesNeedsBothSynced) {
    int kept_in_old = 0;
    for (int round = 0; round < 60; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        TAILRACE_ASSERT_OK(storage.make_directories("/e"));
        TAILRACE_ASSERT_OK(storage.open("/d/a", {Access::create_new, DirectIo::off}));
        TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        TAILRACE_ASSERT_OK(storage.rename("/d/a", "/e/a"));
        TAILRACE_ASSERT_OK(storage.sync_directory("/e"));
        const bool both = round % 2 == 0;
        if (both) TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        storage.crash(random_);
        EXPECT_NE(exists(storage, "/d/a"), exists(storage, "/e/a"));
        if (both) {
            EXPECT_TRUE(exists(storage, "/e/a"));
        } else {
            kept_in_old += exists(storage, "/d/a") ? 1 : 0;
        }
    }
    EXPECT_GT(kept_in_old, 0);
}

TEST_F(MemoryStorageTest, APendingRemovalMayComeBack) {
    int back = 0;
    for (int round = 0; round < 60; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        TAILRACE_ASSERT_OK(storage.open("/d/a", {Access::create_new, DirectIo::off}));
        TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        TAILRACE_ASSERT_OK(storage.remove("/d/a"));
        if (round % 2 == 0) TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        storage.crash(random_);
        if (round % 2 == 0) {
            EXPECT_FALSE(exists(storage, "/d/a"));
        } else {
            back += exists(storage, "/d/a") ? 1 : 0;
        }
    }
    EXPECT_GT(back, 0);
    EXPECT_LT(back, 30);
}

TEST_F(MemoryStorageTest, ARemovalNeverReachesTheFileThatALostRenameWouldHaveReplaced) {
    const auto old_content = pattern(100, 1), new_content = pattern(200, 2);
    int old_left = 0;
    for (int round = 0; round < 60; ++round) {
        MemoryStorage storage;
        TAILRACE_ASSERT_OK(storage.make_directories("/d"));
        for (const auto& [path, content] : {std::pair{"/d/a", old_content}, {"/d/b", new_content}}) {
            auto file = storage.open(path, {Access::create_new, DirectIo::off});
            TAILRACE_ASSERT_OK((*file)->write_at(content, 0));
            TAILRACE_ASSERT_OK((*file)->sync());
        }
        TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
        TAILRACE_ASSERT_OK(storage.rename("/d/b", "/d/a"));
        TAILRACE_ASSERT_OK(storage.remove("/d/a"));
        storage.crash(random_);
        if (exists(storage, "/d/b")) {  // the rename was lost
            EXPECT_EQ(content_of(storage, "/d/a"), old_content);
            ++old_left;
        }
    }
    EXPECT_GT(old_left, 0);
}

TEST_F(MemoryStorageTest, FilesAndLocksOfBeforeACrashAreDead) {
    auto file = create("/d/a", pattern(10, 1));
    TAILRACE_ASSERT_OK(file->sync());
    TAILRACE_ASSERT_OK(storage_.sync_directory("/d"));
    auto lock = storage_.lock_directory("/d");
    TAILRACE_ASSERT_OK(lock);
    storage_.crash(random_);
    std::vector<std::byte> memory(10);
    TAILRACE_EXPECT_FAILS(file->read_at(memory, 0), Code::io_error, "/d/a");
    TAILRACE_EXPECT_FAILS(file->write_at(memory, 0), Code::io_error, "/d/a");
    TAILRACE_EXPECT_FAILS(file->sync(), Code::io_error, "/d/a");
    auto next = storage_.lock_directory("/d");
    TAILRACE_ASSERT_OK(next);
    lock->reset();  // must not release what is another's now
    EXPECT_EQ(storage_.lock_directory("/d").status().code(), Code::busy);
    TAILRACE_EXPECT_OK(file->close());
    EXPECT_EQ(storage_.used_bytes(), 4096u);
}

TEST_F(MemoryStorageTest, ALockThatWasHandedOverIsHeldUntilBothHaveLetGo) {
    auto lock = storage_.lock_directory("/d");
    TAILRACE_ASSERT_OK(lock);
    const int descriptor = (*lock)->descriptor();
    auto other = storage_.duplicate_lock(descriptor);
    ASSERT_NE(other, nullptr);
    lock->reset();
    EXPECT_EQ(storage_.lock_directory("/d").status().code(), Code::busy);
    EXPECT_EQ(storage_.duplicate_lock(descriptor), nullptr) << "that end has let go";
    other.reset();
    TAILRACE_EXPECT_OK(storage_.lock_directory("/d"));
}

TEST_F(MemoryStorageTest, TheDeathOfAProcessLosesNoBytes) {
    const auto content = pattern(10'000, 3);
    auto file = create("/d/a", content);
    auto lock = storage_.lock_directory("/d");
    storage_.process_death();
    EXPECT_EQ(content_of(storage_, "/d/a"), content);
    EXPECT_EQ(file->sync().code(), Code::io_error);
    TAILRACE_EXPECT_OK(storage_.lock_directory("/d"));
}

TEST_F(MemoryStorageTest, CapacityIsKeptAndGivenBack) {
    storage_.set_capacity(10 * 4096);
    auto file = create("/d/a", pattern(6 * 4096, 1));
    EXPECT_EQ(storage_.used_bytes(), 6u * 4096);
    TAILRACE_EXPECT_OK(file->write_at(pattern(4096, 2), 0));  // in place: takes nothing
    TAILRACE_EXPECT_FAILS(file->write_at(pattern(5 * 4096, 2), 6 * 4096), Code::no_space, "/d/a");
    TAILRACE_EXPECT_FAILS(file->reserve(0, 11 * 4096), Code::no_space, "/d/a");
    TAILRACE_EXPECT_OK(file->reserve(6 * 4096, 4 * 4096));
    EXPECT_EQ(storage_.space("/d")->free_bytes, 0u);
    TAILRACE_EXPECT_OK(file->write_at(pattern(4 * 4096, 2), 6 * 4096));  // into what was reserved
    auto other = storage_.open("/d/b", {Access::create_new, DirectIo::off});
    TAILRACE_ASSERT_OK(other);
    EXPECT_EQ((*other)->write_at(pattern(1, 1), 0).code(), Code::no_space);
    TAILRACE_EXPECT_OK(storage_.remove("/d/a"));
    EXPECT_EQ((*other)->write_at(pattern(1, 1), 0).code(), Code::no_space);  // still open
    file.reset();
    TAILRACE_EXPECT_OK((*other)->write_at(pattern(1, 1), 0));
    EXPECT_EQ(storage_.used_bytes(), 4096u);
    TAILRACE_EXPECT_OK((*other)->truncate(0));
    EXPECT_EQ(storage_.used_bytes(), 0u);
}

TEST_F(MemoryStorageTest, ACrashOfAMappingKeepsWhatWasSynced) {
    MemoryStorage storage({UINT64_MAX, 4096, true});
    TAILRACE_ASSERT_OK(storage.make_directories("/d"));
    auto file = storage.open("/d/a", {Access::create_new, DirectIo::off});
    TAILRACE_ASSERT_OK(storage.sync_directory("/d"));
    auto mapping = (*file)->map(64 * 4096);
    TAILRACE_ASSERT_OK(mapping);
    std::fill(mapping->begin(), mapping->end(), std::byte{1});
    TAILRACE_ASSERT_OK((*file)->sync());
    std::fill(mapping->begin(), mapping->end(), std::byte{2});
    storage.crash(random_);
    const auto content = content_of(storage, "/d/a");
    ASSERT_EQ(content.size(), 64u * 4096);
    size_t pages_of[3] = {};
    for (size_t at = 0; at < content.size(); at += 4096) ++pages_of[static_cast<size_t>(content[at])];
    EXPECT_EQ(pages_of[0], 0u);
    EXPECT_GT(pages_of[1], 0u);
    EXPECT_GT(pages_of[2], 0u);
}

TEST_F(MemoryStorageTest, ACrashIsTheSameForTheSameSeed) {
    auto leftovers = [](uint64_t seed) {
        MemoryStorage storage;
        std::string found;
        (void)storage.make_directories("/d");
        for (int i = 0; i < 20; ++i) {
            const std::string path = "/d/" + std::to_string(i);
            auto file = storage.open(path, {Access::create_new, DirectIo::off});
            (void)(*file)->write_at(pattern(5000, static_cast<uint64_t>(i)), 0);
            if (i % 3 == 0) (void)storage.rename(path, path + "x");
        }
        std::mt19937_64 random(seed);
        storage.crash(random);
        const auto entries = storage.list("/d");
        for (const DirectoryEntry& entry : *entries) {
            found += entry.name + ":" + std::to_string(entry.bytes) + " ";
        }
        return found;
    };
    EXPECT_EQ(leftovers(5), leftovers(5));
    EXPECT_NE(leftovers(5), leftovers(6));
}

}  // namespace
}  // namespace tailrace::internal::test
