// A client of one process whose checkpoints are files that the program writes: VELOC's file mode.
#include <gmock/gmock.h>

#include "client_fixture.h"

namespace veloc_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string content_of(const std::string& path) {
    std::ifstream in(path);
    return in ? std::string(std::istreambuf_iterator<char>(in), {}) : "no file";
}

class VelocFilesTest : public VelocClientTest {
  protected:
    // A program's own writing, between Checkpoint_begin and Checkpoint_end.
    std::string write(const std::string& text, const std::string& original = "checkpoint.dat") {
        const auto path = client_->route_file(original);
        std::ofstream(path) << text;
        return path;
    }
    bool save_file(const std::string& name, int version, const std::string& text) {
        return client_->checkpoint_begin(name, version) && !write(text).empty() &&
               client_->checkpoint_end(true) && client_->checkpoint_wait();
    }
    std::string restored(const std::string& name, int version, int target_rank = -1) {
        if (!client_->restart_begin(name, version, target_rank)) return "not restored";
        const auto text = content_of(client_->route_file("another name"));
        return client_->restart_end(true) ? text : "not ended";
    }
    bool routes() { return !client_->route_file("f").empty(); }
};

TEST_F(VelocFilesTest, WhatTheProgramWroteComesBackInAnotherProcess) {
    start();
    ASSERT_TRUE(save_file("heat", 10, "ten"));
    ASSERT_TRUE(client_->checkpoint_begin("heat", 20));
    const auto written = write("", "first.dat");
    EXPECT_EQ(write("twenty", "/elsewhere/last.dat"), written) << "there is one file";
    ASSERT_TRUE(client_->checkpoint_end(true) && client_->finalize());
    EXPECT_FALSE(std::filesystem::exists(written));
    std::filesystem::remove_all(top_ + "/scratch");

    start();
    EXPECT_EQ(newest("heat"), 20);
    EXPECT_EQ(restored("heat", 10), "ten");
    ASSERT_TRUE(client_->restart_begin("heat", 20, -1));
    const auto path = client_->route_file("/elsewhere/last.dat");
    EXPECT_EQ(content_of(path), "twenty");
    EXPECT_EQ(client_->route_file(""), path);
    ASSERT_TRUE(client_->restart_end(true));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists("/elsewhere"));
    EXPECT_EQ(restored("heat", 20, 0), "twenty") << "of a rank that is named";
    EXPECT_THAT(failure_of([&] { return client_->restart_begin("heat", 20, 1); }),
                HasSubstr("was saved by 1 ranks"));
}

TEST_F(VelocFilesTest, ARestartThatBeginsLetsTheFileOfTheOneBeforeGo) {
    start();
    ASSERT_TRUE(save_file("one", 1, "1") && save_file("two", 2, "2"));
    ASSERT_TRUE(client_->restart_begin("one", 1, -1));
    const auto path = client_->route_file("f");
    EXPECT_EQ(content_of(path), "1");
    ASSERT_TRUE(client_->restart_begin("two", 2, -1));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(content_of(client_->route_file("f")), "2");
    EXPECT_TRUE(save_file("two", 3, "3")) << "a program may leave out Restart_end";
    EXPECT_EQ(restored("two", 3), "3");
}

TEST_F(VelocFilesTest, MemoryAndFilesMayAlternateFromVersionToVersion) {
    auto a = counted(5, 1);
    start();
    ASSERT_TRUE(protect(0, a) && save("n", 1));
    ASSERT_TRUE(save_file("n", 2, "two"));
    a[0] = 50;
    EXPECT_EQ(restored("n", 2), "two");
    EXPECT_EQ(a[0], 50) << "what is protected is not the file's";
    ASSERT_TRUE(save("n", 3) && client_->restart_begin("n", 2, -1));
    EXPECT_EQ(client_->recover_size(0), 0u);
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }),
                HasSubstr("none of these ids"));
    ASSERT_TRUE(client_->restart_begin("n", 1, -1));
    EXPECT_THAT(failure_of([&] { return routes(); }),
                AllOf(HasSubstr("rank 0 has not saved a file"), HasSubstr("Recover_mem")));
    ASSERT_TRUE(client_->recover_mem(VELOC_RECOVER_ALL, {}));
    EXPECT_EQ(a[0], 1);
}

TEST_F(VelocFilesTest, MemoryAndAFileInOneVersionAreRefused) {
    auto a = counted(5, 1);
    start();
    ASSERT_TRUE(protect(0, a) && save("n", 1) && client_->checkpoint_begin("n", 2));
    const auto copy = [&] { return client_->checkpoint_mem(VELOC_CKPT_ALL, {}); };
    const auto path = write("two");
    EXPECT_THAT(failure_of(copy), HasSubstr("has memory or a file"));
    EXPECT_THAT(failure_of(copy), HasSubstr("has memory or a file"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_end(true); }),
                AllOf(HasSubstr("version 2 of n was not saved"), HasSubstr("has memory or a file")));
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_TRUE(client_->checkpoint_begin("n", 3) && copy());
    EXPECT_THAT(failure_of([&] { return routes(); }), HasSubstr("has memory or a file"));
    EXPECT_FALSE(client_->checkpoint_end(true));
    EXPECT_EQ(newest("n"), 1);
    EXPECT_TRUE(save_file("n", 4, "four") && save("n", 5));
    EXPECT_EQ(restored("n", 4), "four");
    EXPECT_TRUE(client_->finalize()) << "it was said already";
}

TEST_F(VelocFilesTest, AVersionThatTheProgramDropsDoesNotExist) {
    start();
    ASSERT_TRUE(save_file("n", 1, "one") && client_->checkpoint_begin("n", 2));
    const auto path = write("half of two");
    EXPECT_EQ(newest("n"), 1);
    EXPECT_TRUE(client_->checkpoint_end(false) && client_->checkpoint_wait());
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_EQ(newest("n"), 1);
    ASSERT_TRUE(client_->checkpoint_begin("n", 3));
    EXPECT_FALSE(std::filesystem::exists(client_->route_file("f"))) << "nothing of the one before is there";
    EXPECT_TRUE(client_->checkpoint_end(false));
    ASSERT_TRUE(save_file("n", 2, "two"));
    EXPECT_EQ(restored("n", 2), "two");
    EXPECT_TRUE(client_->checkpoint_begin("n", 4) && !write("four").empty());
    EXPECT_TRUE(client_->finalize()) << "what was dropped is no failure";
    start("tailrace_honour_success = false");
    EXPECT_EQ(newest("n"), 2);
    ASSERT_TRUE(client_->checkpoint_begin("n", 5) && !write("five").empty());
    EXPECT_TRUE(client_->checkpoint_end(false) && client_->checkpoint_wait());
    EXPECT_EQ(restored("n", 5), "five") << "as VELOC does it";
}

TEST_F(VelocFilesTest, AFileThatIsNotThereFailsTheVersion) {
    start();
    EXPECT_THAT(failure_of([&] { return routes(); }), HasSubstr("Checkpoint_begin or Restart_begin first"));
    ASSERT_TRUE(client_->checkpoint_begin("n", 1) && routes());
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_end(true); }),
                AllOf(HasSubstr("Checkpoint_end"), HasSubstr("veloc")));
    EXPECT_EQ(newest("n"), -1);
    EXPECT_TRUE(save_file("n", 2, "two"));
    EXPECT_TRUE(client_->finalize()) << "it was said already";
}

TEST_F(VelocFilesTest, ObserversAndModeSyncAreAsForMemory) {
    start("", 0, true, "sync");
    std::vector<int> heard;
    ASSERT_TRUE(client_->register_observer(
        VELOC_OBSERVE_CKPT_END, [&](const std::string&, int version) { heard.push_back(version); }));
    ASSERT_TRUE(client_->checkpoint_begin("n", 1) && !write("one").empty() && client_->checkpoint_end(true));
    EXPECT_THAT(heard, ElementsAre(1));
    const auto reader = tailrace::Reader::open_directory(top_ + "/persistent/n/0", Stream::job, 1);
    EXPECT_EQ(reader.epoch(), 1u);
}

TEST_F(VelocFilesTest, WithoutAPersistentDirectoryFilesComeBackFromScratch) {
    start("", 0, false);
    ASSERT_TRUE(save_file("n", 1, "one") && save_file("n", 2, "two"));
    start("", 0, false);
    EXPECT_EQ(newest("n"), 2);
    EXPECT_EQ(restored("n", 1), "one");
    ASSERT_TRUE(save_file("n", 1, "one again")) << "a version that falls";
    EXPECT_EQ(restored("n", 1), "one again");
}

}  // namespace
}  // namespace veloc_on_tailrace
