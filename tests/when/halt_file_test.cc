#include "when/halt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "doubles/memory_storage.h"
#include "when/halt_watch.h"

namespace tailrace::internal {
namespace {

using ::testing::HasSubstr;

const Halt orders[] = {{.now = true, .id = 7},
                       {.at_unix = 1795543200, .id = UINT64_MAX, .by = "anna@login2"},
                       {.after_saves = 3, .by = "a"},
                       {.after_saves = 10, .before_unix = 1795543200, .stop_before_seconds = 600, .id = 1},
                       {.stop_before_seconds = 7}};

TEST(HaltFileTest, OrdersComeBackAsTheyWere) {
    for (const Halt& halt : orders) {
        const auto decoded = decode_halt(encode(halt));
        ASSERT_TRUE(decoded.ok()) << decoded.status().message();
        EXPECT_EQ(*decoded, halt);
    }
    EXPECT_EQ(encode(orders[1]), "tailrace halt 1\nat 1795543200\nid ffffffffffffffff\nby anna@login2\n");
    EXPECT_EQ(decode_halt(encode({.now = true, .by = "a\nb c\x1b"}))->by, "a_b_c_")
        << "a name stays on its line";
}

TEST(HaltFileTest, WhatIsNoOrderIsRefused) {
    for (const char* bad :
         {"", "x", "tailrace halt 1", "tailrace halt 1\n", "tailrace halt 2\nnow\n",
          "tailrace halt 1\nlater\n", "tailrace halt 1\nat\n", "tailrace halt 1\nat soon\n",
          "tailrace halt 1\nat -5\n", "tailrace halt 1\nat 9999999999999\n", "tailrace halt 1\nafter\n",
          "tailrace halt 1\nafter -1\n", "tailrace halt 1\nnow\nid zz\n", "tailrace halt 1\nnow\nid 1",
          "tailrace halt 1\nnow\nby a b\n", "tailrace halt 1\nnow\nmore\n", "tailrace halt 1\nid 1\n",
          "tailrace halt 1\nbefore soon\n", "tailrace halt 1\nstop_before -1\n"})
        EXPECT_EQ(decode_halt(bad).status().code(), Code::invalid_argument) << bad;
    EXPECT_FALSE(decode_halt("tailrace halt 1\nnow\nby " + std::string(5000, 'x') + "\n").ok());
}

TEST(HaltFileTest, BytesThatAreFlippedOrCutNeverGiveAnOrderThatDoesNotComeBack) {
    const uint64_t seed = std::random_device{}();
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20'000; ++i) {
        std::string text = encode(orders[random() % std::size(orders)]);
        for (uint64_t flips = random() % 3; flips > 0; --flips)
            text[random() % text.size()] ^= static_cast<char>(1 << (random() % 8));
        if (random() % 3 == 0) text.resize(random() % text.size());
        const auto decoded = decode_halt(text);
        if (!decoded.ok()) continue;
        EXPECT_EQ(decode_halt(encode(*decoded)).value(), *decoded) << text;
    }
}

// Somebody else acts just before the next name changes.
class CrowdedStorage : public MemoryStorage {
  public:
    std::function<void()> before_change;

    Status rename(const std::string& from, const std::string& to) override {
        if (auto act = std::exchange(before_change, nullptr)) act();
        return MemoryStorage::rename(from, to);
    }
    Status remove(const std::string& path) override {
        if (auto act = std::exchange(before_change, nullptr)) act();
        return MemoryStorage::remove(path);
    }
};

TEST(HaltFileTest, AnOrderThatComesWhileAnOlderOneIsRemovedStays) {
    CrowdedStorage storage;
    ASSERT_TRUE(storage.make_directories("/s").ok());
    ASSERT_TRUE(write_halt(storage, "/s", orders[0]).ok());
    storage.before_change = [&] { ASSERT_TRUE(write_halt(storage, "/s", orders[1]).ok()); };
    EXPECT_TRUE(remove_this_halt(storage, "/s", orders[0]).ok());
    EXPECT_EQ(read_halt(storage, "/s").value(), orders[1]);
    EXPECT_TRUE(remove_this_halt(storage, "/s", orders[0]).ok());
    EXPECT_EQ(read_halt(storage, "/s").value(), orders[1]) << "it is another";
    EXPECT_TRUE(remove_this_halt(storage, "/s", orders[1]).ok());
    EXPECT_EQ(read_halt(storage, "/s").value(), std::nullopt);
    EXPECT_EQ(storage.list("/s").value().size(), 0u);
}

// A process that dies right before one of its changes.
class DyingStorage : public CrowdedStorage {
  public:
    size_t changes_left = SIZE_MAX;

    Status rename(const std::string& from, const std::string& to) override {
        return dies() ? dead : CrowdedStorage::rename(from, to);
    }
    Status remove(const std::string& path) override { return dies() ? dead : CrowdedStorage::remove(path); }

  private:
    bool dies() { return changes_left == 0 || changes_left-- == 0; }
    const Status dead = Status(Code::aborted, "the process has died");
};

TEST(HaltFileTest, WhoDiesBetweenTheStepsOfARemovalLeavesNothingForEver) {
    for (const bool another : {false, true}) {
        DyingStorage storage;
        ASSERT_TRUE(storage.make_directories("/s").ok());
        ASSERT_TRUE(write_halt(storage, "/s", orders[0]).ok());
        if (another) storage.before_change = [&] { ASSERT_TRUE(write_halt(storage, "/s", orders[1]).ok()); };
        storage.changes_left = another ? 2 : 1;  // write_halt's rename is one
        EXPECT_FALSE(remove_this_halt(storage, "/s", orders[0]).ok());
        EXPECT_EQ(read_halt(storage, "/s").value(), std::nullopt);
        EXPECT_EQ(storage.list("/s")->size(), 1u);
        storage.changes_left = SIZE_MAX;
        ASSERT_TRUE(clear_halt_remains(storage, "/s").ok());
        EXPECT_EQ(read_halt(storage, "/s").value(), another ? std::optional(orders[1]) : std::nullopt);
        EXPECT_EQ(storage.list("/s")->size(), another ? 1u : 0u);
    }
}

TEST(HaltFileTest, AnOrderThatIsNewerThanOneFoundAgainStays) {
    DyingStorage storage;
    ASSERT_TRUE(storage.make_directories("/s").ok());
    ASSERT_TRUE(write_halt(storage, "/s", orders[0]).ok());
    storage.before_change = [&] { ASSERT_TRUE(write_halt(storage, "/s", orders[1]).ok()); };
    storage.changes_left = 2;
    EXPECT_FALSE(remove_this_halt(storage, "/s", orders[0]).ok());
    storage.changes_left = SIZE_MAX;
    ASSERT_TRUE(write_halt(storage, "/s", orders[2]).ok());
    ASSERT_TRUE(clear_halt_remains(storage, "/s").ok());
    EXPECT_EQ(read_halt(storage, "/s").value(), orders[2]);
    EXPECT_EQ(storage.list("/s")->size(), 1u);
}

TEST(HaltFileTest, WhatAWriterLeftIsRemovedAndOneThatLivesWritesAgain) {
    DyingStorage storage;
    ASSERT_TRUE(storage.make_directories("/s").ok());
    storage.changes_left = 0;
    EXPECT_FALSE(write_halt(storage, "/s", orders[0]).ok());
    EXPECT_EQ(storage.list("/s")->size(), 1u);
    storage.changes_left = SIZE_MAX;
    ASSERT_TRUE(clear_halt_remains(storage, "/s").ok());
    EXPECT_TRUE(storage.list("/s")->empty());
    storage.before_change = [&] { ASSERT_TRUE(clear_halt_remains(storage, "/s").ok()); };
    EXPECT_TRUE(write_halt(storage, "/s", orders[1]).ok()) << "a session opens just then";
    EXPECT_EQ(read_halt(storage, "/s").value(), orders[1]);
}

TEST(HaltFileTest, WhatIsNoRemainOfAHaltFileStays) {
    DyingStorage storage;
    ASSERT_TRUE(storage.make_directories("/s").ok());
    const std::vector<std::string> names{"tailrace.halt.txt", "tailrace.halt.0123456789abcdeg",
                                         "tailrace.halt.obeyed.", "tailrace.halt.obeyed.00000001.1",
                                         "tailrace.halt.e1r1.0.1"};
    for (const auto& name : names) {
        OpenOptions create;
        create.access = Access::create_new;
        ASSERT_TRUE(storage.open("/s/" + name, create).ok());
    }
    ASSERT_TRUE(clear_halt_remains(storage, "/s").ok());
    EXPECT_EQ(storage.list("/s")->size(), names.size());
}

class HaltDirectoryTest : public testing::Test {
  protected:
    HaltDirectoryTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace halt XXXXXX").string();
        directory_ = ::mkdtemp(pattern.data());
        storage_ = make_system_storage({.engine = IoEngine::posix}).value();
        path_ = directory_ + "/" + std::string(halt_file_name);
    }
    ~HaltDirectoryTest() override { std::filesystem::remove_all(directory_); }

    std::optional<Halt> read() {
        auto found = read_halt(*storage_, directory_);
        EXPECT_TRUE(found.ok()) << found.status().message();
        return found.ok() ? *found : std::nullopt;
    }
    void put(const std::string& path) {
        std::ofstream(path) << encode(orders[0]);
        ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    }
    void expect_refused(std::string_view why) {
        const auto found = read_halt(*storage_, directory_);
        ASSERT_FALSE(found.ok());
        EXPECT_THAT(found.status().message(), HasSubstr(std::string(why)));
        EXPECT_THAT(found.status().message(), HasSubstr(path_));
    }

    std::string directory_, path_;
    std::shared_ptr<Storage> storage_;
};

TEST_F(HaltDirectoryTest, AnOrderIsWrittenReadReplacedAndRemoved) {
    EXPECT_FALSE(read());
    for (const Halt& halt : orders) {
        ASSERT_TRUE(write_halt(*storage_, directory_, halt).ok());
        EXPECT_EQ(read(), halt);
    }
    EXPECT_EQ(storage_->list(directory_)->size(), 1u) << "nothing else is left";
    struct stat info {};
    ASSERT_EQ(::stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 022, 0u);
    ASSERT_TRUE(remove_halt(*storage_, directory_).ok());
    EXPECT_FALSE(read());
    EXPECT_EQ(remove_halt(*storage_, directory_).code(), Code::not_found);
}

TEST_F(HaltDirectoryTest, ALinkIsNotFollowed) {
    put(directory_ + "/elsewhere");
    std::filesystem::create_symlink("elsewhere", path_);
    expect_refused("link");
}

TEST_F(HaltDirectoryTest, AnotherNameOfAFileIsNotRead) {
    put(directory_ + "/elsewhere");
    std::filesystem::create_hard_link(directory_ + "/elsewhere", path_);
    expect_refused("2 names");
}

TEST_F(HaltDirectoryTest, WhatOthersMayWriteIsNotRead) {
    put(path_);
    ASSERT_EQ(::chmod(path_.c_str(), 0620), 0);
    expect_refused("users other than its owner may write");
}

TEST_F(HaltDirectoryTest, AnotherUsersFileIsNotRead) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's file";
    put(path_);
    ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
    expect_refused("belongs to user 12345");
}

TEST_F(HaltDirectoryTest, APipeDoesNotHoldAnybodyUp) {
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    expect_refused("pipe");
}

TEST_F(HaltDirectoryTest, TheWatchFindsAnOrderAndRemovesIt) {
    ASSERT_TRUE(write_halt(*storage_, directory_, orders[1]).ok());
    HaltWatch watch(*storage_, directory_);
    std::optional<Halt> found;
    for (int i = 0; i < 1000 && !found; ++i) {
        found = watch.ask({});
        sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(found, orders[1]);
    ASSERT_TRUE(write_halt(*storage_, directory_, orders[2]).ok());
    watch.obeyed(orders[1]);
    watch.finish();
    EXPECT_EQ(read(), orders[2]) << "that is another order";
    HaltWatch other(*storage_, directory_);
    (void)other.ask({});
    other.obeyed(orders[2]);
    other.finish();
    EXPECT_FALSE(read());
}

}  // namespace
}  // namespace tailrace::internal
