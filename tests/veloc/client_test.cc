// A client of one process: the order of calls, what is saved and restored, and what is refused.
#include <gmock/gmock.h>

#include <istream>
#include <ostream>

#include "client_fixture.h"

namespace veloc_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(VelocClientTest, WhatWasSavedComesBackInAnotherProcess) {
    auto a = counted(100000, 1), b = counted(3, 50);
    start();
    EXPECT_EQ(newest("heat"), -1);
    ASSERT_TRUE(protect(0, a) && protect(-7, b));
    ASSERT_TRUE(client_->checkpoint("heat", 10));
    a[0] = 5;
    ASSERT_TRUE(client_->checkpoint("heat", 20));
    ASSERT_TRUE(client_->finalize());
    const auto saved = std::pair(a, b);

    start();
    EXPECT_EQ(newest("heat"), 20);
    EXPECT_EQ(newest("heat", 19), 10);
    EXPECT_EQ(newest("heat", 9), -1);
    EXPECT_EQ(newest("heat", 1000), 20);
    a.assign(a.size(), 0);
    b.assign(b.size(), 0);
    ASSERT_TRUE(protect(0, a) && protect(-7, b));
    ASSERT_TRUE(client_->restart("heat", 20, -1));
    EXPECT_EQ(std::pair(a, b), saved);
    ASSERT_TRUE(client_->restart("heat", 10, -1));
    EXPECT_EQ(a[0], 1);
}

TEST_F(VelocClientTest, CheckpointMemTakesTheMemoryAndTheLastOneCounts) {
    auto a = counted(1000, 1);
    start();
    ASSERT_TRUE(protect(1, a));
    ASSERT_TRUE(client_->checkpoint_begin("n", 1));
    ASSERT_TRUE(client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    a[0] = 2;
    ASSERT_TRUE(client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    a[0] = 3;
    ASSERT_TRUE(client_->checkpoint_end(true));
    ASSERT_TRUE(client_->checkpoint_wait());
    EXPECT_TRUE(client_->checkpoint_finished());
    ASSERT_TRUE(client_->restart("n", 1, -1));
    EXPECT_EQ(a[0], 2);
}

TEST_F(VelocClientTest, SizesAndSelectionsMayChangeFromVersionToVersion) {
    auto a = counted(10, 1), b = counted(20, 100), c = counted(30, 1000);
    start();
    ASSERT_TRUE(protect(1, a) && protect(2, b) && protect(3, c));
    const auto save_some = [&](int version, int mode, const std::set<int>& ids) {
        return client_->checkpoint_begin("n", version) && client_->checkpoint_mem(mode, ids) &&
               client_->checkpoint_end(true);
    };
    ASSERT_TRUE(save_some(1, VELOC_CKPT_SOME, {1, 3}));
    ASSERT_TRUE(save_some(2, VELOC_CKPT_REST, {1, 3}));
    b = counted(50000, 7);
    ASSERT_TRUE(protect(2, b) && client_->mem_unprotect(1, default_group));
    ASSERT_TRUE(save_some(3, VELOC_CKPT_ALL, {}));
    ASSERT_TRUE(client_->checkpoint_wait());
    const auto sizes = [&](int version) {
        EXPECT_TRUE(client_->restart_begin("n", version, -1));
        std::vector<size_t> found;
        for (const int id : {1, 2, 3, 4}) found.push_back(client_->recover_size(id) / sizeof(int));
        EXPECT_TRUE(client_->restart_end(true));
        return found;
    };
    EXPECT_THAT(sizes(1), ElementsAre(10, 0, 30, 0));
    EXPECT_THAT(sizes(2), ElementsAre(0, 20, 0, 0));
    EXPECT_THAT(sizes(3), ElementsAre(0, 50000, 30, 0));

    // The usual pattern: a length first, then as much memory.
    ASSERT_TRUE(client_->restart_begin("n", 3, -1));
    c.assign(c.size() + 5, 0);  // larger than what was saved
    ASSERT_TRUE(protect(3, c));
    ASSERT_TRUE(client_->recover_mem(VELOC_RECOVER_SOME, {3}));
    EXPECT_EQ(c[29], 1029);
    std::vector<int> again(client_->recover_size(2) / sizeof(int));
    ASSERT_TRUE(protect(2, again));
    ASSERT_TRUE(client_->recover_mem(VELOC_RECOVER_REST, {3}));
    EXPECT_EQ(again, b);
    EXPECT_TRUE(client_->recover_mem(VELOC_RECOVER_REST, {2, 3}))
        << "nothing is left, and nothing is missing";
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_SOME, {9}); }),
                HasSubstr("none of these"));
    again.resize(10);
    ASSERT_TRUE(protect(2, again));
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }),
                AllOf(HasSubstr("id 2 was saved with 200000 bytes"), HasSubstr("Recover_size")));
    std::vector<int> last(30);
    ASSERT_TRUE(protect(2, b) && protect(3, last));
    b[0] = -1;
    last.resize(29);
    ASSERT_TRUE(protect(3, last));
    EXPECT_FALSE(client_->recover_mem(VELOC_RECOVER_ALL, {}));
    EXPECT_EQ(b[0], -1) << "id 3 is too small, so nothing was restored";
    ASSERT_TRUE(protect(3, c));
    ASSERT_TRUE(client_->mem_unprotect(2, default_group));
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }),
                HasSubstr("id 2 is in the version and is not protected"));
}

TEST_F(VelocClientTest, ACheckpointTakesTheGroupOfItsNameOrElseTheDefaultOne) {
    auto a = counted(5, 1), b = counted(6, 10);
    start();
    ASSERT_TRUE(protect(0, a) && protect(0, b, "own"));
    ASSERT_TRUE(save("own", 1) && save("other", 1));
    const auto bytes = [&](const std::string& name) {
        EXPECT_TRUE(client_->restart_begin(name, 1, -1));
        return client_->recover_size(0);
    };
    EXPECT_EQ(bytes("own"), 6 * sizeof(int));
    EXPECT_EQ(bytes("other"), 5 * sizeof(int));
    client_->mem_clear("own");
    ASSERT_TRUE(client_->restart_begin("own", 1, -1));
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }), HasSubstr("20;"))
        << "the default group's memory is tried, as its ids are the same";
}

TEST_F(VelocClientTest, VersionsMayBeginAtZeroRepeatAndFall) {
    auto a = counted(5, 0);
    start();
    ASSERT_TRUE(protect(0, a));
    EXPECT_EQ(newest("n"), -1);
    for (const int version : {0, 0, 1, 5, 3, 4}) {
        ++a[0];
        ASSERT_TRUE(save("n", version)) << version;
        EXPECT_EQ(newest("n"), version) << "the newest is the one that the program reached last";
    }
    ASSERT_TRUE(client_->restart("n", 0, -1));
    EXPECT_EQ(a[0], 2) << "the second one of this number";
    ASSERT_TRUE(client_->restart("n", 4, -1));
    EXPECT_EQ(a[0], 6);
}

TEST_F(VelocClientTest, AVersionThatTheProgramDropsDoesNotExist) {
    auto a = counted(5, 0);
    start();
    ASSERT_TRUE(protect(0, a) && save("n", 1));
    ASSERT_TRUE(client_->checkpoint_begin("n", 2) && client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    EXPECT_EQ(newest("n"), 1) << "2 has not ended";
    EXPECT_TRUE(client_->checkpoint_end(false));
    EXPECT_TRUE(client_->checkpoint_wait());
    EXPECT_EQ(newest("n"), 1);
    EXPECT_TRUE(save("n", 2)) << "the number may be used again";
    EXPECT_TRUE(client_->finalize()) << "what was dropped is no failure";
    start("tailrace_honour_success = false");
    ASSERT_TRUE(protect(0, a));
    ASSERT_TRUE(client_->checkpoint_begin("n", 3) && client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    EXPECT_TRUE(client_->checkpoint_end(false) && client_->checkpoint_wait());
    EXPECT_EQ(newest("n"), 3) << "as VELOC does it";
}

TEST_F(VelocClientTest, CallsInTheWrongOrderFailWithWhatIsMissing) {
    auto a = counted(5, 0);
    start();
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_mem(VELOC_CKPT_ALL, {}); }),
                HasSubstr("Checkpoint_begin first"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_end(true); }),
                HasSubstr("Checkpoint_begin first"));
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }),
                HasSubstr("Restart_begin first"));
    EXPECT_THAT(failure_of([&] { return client_->recover_size(0) != 0; }), HasSubstr("Restart_begin first"));
    EXPECT_TRUE(client_->restart_end(true));
    EXPECT_THAT(failure_of([&] { return client_->mem_unprotect(3, default_group); }), HasSubstr("id 3"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint("n", 1); }), HasSubstr("no region is chosen"));
    ASSERT_TRUE(protect(0, a));
    ASSERT_TRUE(client_->checkpoint_begin("n", 2));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_begin("n", 3); }),
                HasSubstr("version 2 of n has begun"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_wait(); }),
                HasSubstr("version 2 of n has begun"));
    EXPECT_THAT(failure_of([&] { return client_->restart_begin("n", 1, -1); }), HasSubstr("has begun"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_mem(3, {}); }), HasSubstr("mode 3"));
    EXPECT_THAT(failure_of([&] {
                    return client_->checkpoint_mem(VELOC_CKPT_SOME, {0, 4});
                }),
                HasSubstr("id 4"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_mem(VELOC_CKPT_REST, {0}); }),
                HasSubstr("no region"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_end(true); }),
                HasSubstr("version 2 of n was not saved"));
    EXPECT_THAT(failure_of([&] { return client_->restart("n", 2, -1); }), HasSubstr("Restart_begin"));
    EXPECT_THAT(failure_of([&] { return client_->restart("n", -1, -1); }), HasSubstr("below 0"));
    ASSERT_TRUE(save("n", 2) && client_->restart_begin("n", 2, -1));
    EXPECT_FALSE(client_->restart_begin("n", -1, -1));
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }),
                HasSubstr("Restart_begin first"))
        << "the one before is open no more";
    EXPECT_THAT(failure_of([&] { return client_->restart_test("n", -1, -1) >= 0; }), HasSubstr("below 0"));
    EXPECT_TRUE(save("n", 3));
    // A checkpoint that the program has not ended is not there afterwards, and is no failure of the others.
    ASSERT_TRUE(client_->checkpoint_begin("n", 4) && client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    EXPECT_TRUE(client_->finalize());
    start();
    EXPECT_EQ(newest("n"), 3);
}

TEST_F(VelocClientTest, NamesThatAreNoDirectoriesAreRefused) {
    auto a = counted(5, 0);
    start();
    ASSERT_TRUE(protect(0, a));
    for (const std::string name : {"", ".", "..", "a/b", "a b", "\xC3\xA4", "*"}) {
        EXPECT_THAT(failure_of([&] { return client_->checkpoint(name, 1); }), HasSubstr("letters, digits"))
            << name;
        EXPECT_THAT(failure_of([&] { return client_->restart_test(name, 0, -1) >= 0; }), HasSubstr("letters"))
            << name;
        EXPECT_THAT(failure_of([&] { return client_->restart_begin(name, 0, -1); }), HasSubstr("letters"))
            << name;
    }
    EXPECT_THAT(failure_of([&] { return client_->checkpoint(std::string(128, 'a'), 1); }), HasSubstr("127"));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint("n", -1); }), HasSubstr("below 0"));
    EXPECT_TRUE(save("a.b-c_9", 1));
    EXPECT_TRUE(save(std::string(127, 'a'), 1));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/persistent/a"));
}

TEST_F(VelocClientTest, MemoryThatCannotBeIsRefusedAndNoneIsAllowed) {
    start();
    int value = 1;
    EXPECT_THAT(failure_of([&] { return client_->mem_protect(0, nullptr, 1, 4, default_group); }),
                HasSubstr("NULL"));
    EXPECT_THAT(failure_of([&] { return client_->mem_protect(0, &value, SIZE_MAX, 2, default_group); }),
                HasSubstr("more than"));
    EXPECT_TRUE(client_->mem_protect(0, nullptr, 0, 4, default_group));
    EXPECT_TRUE(client_->mem_protect(1, &value, 1, sizeof value, default_group));
    EXPECT_TRUE(client_->mem_protect(1, &value, 1, sizeof value, default_group)) << "again";
    ASSERT_TRUE(save("n", 1));
    value = 2;
    ASSERT_TRUE(client_->restart("n", 1, -1));
    EXPECT_EQ(value, 1);
}

TEST_F(VelocClientTest, SerializersWriteAndReadTheirRegions) {
    start();
    std::string text = "some text", read;
    bool accepts = true;
    const auto write = [&](std::ostream& out) { out << text; };
    const auto take = [&](std::istream& in) {
        std::getline(in, read);
        return accepts;
    };
    ASSERT_TRUE(client_->mem_protect(5, write, take, default_group));
    ASSERT_TRUE(save("n", 1));
    text = std::string(70000, 'x');
    ASSERT_TRUE(save("n", 2));
    ASSERT_TRUE(client_->restart("n", 1, -1));
    EXPECT_EQ(read, "some text");
    ASSERT_TRUE(client_->restart_begin("n", 2, -1));
    EXPECT_EQ(client_->recover_size(5), 70000u);
    accepts = false;
    EXPECT_THAT(failure_of([&] { return client_->recover_mem(VELOC_RECOVER_ALL, {}); }),
                HasSubstr("deserializer of id 5"));
    const auto throws = [](std::ostream&) { throw 5; };
    ASSERT_TRUE(client_->mem_protect(5, throws, take, default_group));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint("n", 3); }), HasSubstr("no std::exception"));
    const auto breaks = [](std::ostream& out) { out.setstate(std::ios::badbit); };
    ASSERT_TRUE(client_->mem_protect(5, breaks, take, default_group));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint("n", 4); }), HasSubstr("broken stream"));
    EXPECT_EQ(newest("n"), 2);
    EXPECT_THAT(failure_of([&] { return client_->mem_protect(5, {}, take, default_group); }),
                HasSubstr("empty"));
}

TEST_F(VelocClientTest, ObserversHearOfEachCheckpointThatEnds) {
    auto a = counted(5, 0);
    start();
    std::vector<std::pair<std::string, int>> heard;
    const auto hear = [&](const std::string& name, int version) { heard.emplace_back(name, version); };
    ASSERT_TRUE(client_->register_observer(VELOC_OBSERVE_CKPT_END, hear));
    EXPECT_THAT(failure_of([&] { return client_->register_observer(7, hear); }), HasSubstr("type 7"));
    EXPECT_THAT(failure_of([&] { return client_->register_observer(VELOC_OBSERVE_CKPT_END, {}); }),
                HasSubstr("empty"));
    ASSERT_TRUE(protect(0, a) && save("n", 1));
    ASSERT_TRUE(client_->checkpoint_begin("n", 2) && client_->checkpoint_end(false) == false);
    EXPECT_THAT(heard, ElementsAre(std::pair<std::string, int>("n", 1)));
}

// A job that starts again while the one before still holds the directory must not begin at step 0.
TEST_F(VelocClientTest, WithoutAnAnswerOfRestartTestNothingIsSaved) {
    auto a = counted(5, 0);
    start();
    ASSERT_TRUE(protect(0, a) && save("n", 7));
    const auto before = std::exchange(client_, nullptr);
    start();
    ASSERT_TRUE(protect(0, a));
    EXPECT_THAT(failure_of([&] { return newest("n") >= 0; }), HasSubstr("Restart_test: "));
    ASSERT_TRUE(before->finalize());
    EXPECT_THAT(failure_of([&] { return client_->checkpoint("n", 1); }),
                HasSubstr("could not say which versions of n"));
    EXPECT_TRUE(save("other", 1)) << "another name is not concerned";
    EXPECT_EQ(newest("n"), 7);
    EXPECT_TRUE(save("n", 8));
}

TEST_F(VelocClientTest, WithModeSyncTheVersionIsDurableAtItsEnd) {
    auto a = counted(5, 0);
    start();
    client_.reset();
    const auto file = top_ + "/veloc.cfg";
    std::ofstream(file) << "scratch = " << top_ << "/scratch\npersistent = " << top_
                        << "/persistent\nmode = sync\n"
                        << "tailrace_buffer_bytes = 1MiB\ntailrace_record = no\n";
    client_ = Client::open(single_process(0), file);
    ASSERT_NE(client_, nullptr);
    ASSERT_TRUE(protect(0, a));
    ASSERT_TRUE(client_->checkpoint_begin("n", 1) && client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    ASSERT_TRUE(client_->checkpoint_end(true));
    EXPECT_NO_THROW(tailrace::Reader::open_directory(top_ + "/persistent/n/0", Stream::job, 1));
    // An observer that throws keeps this rank from no wait that the others make.
    ASSERT_TRUE(client_->register_observer(VELOC_OBSERVE_CKPT_END, [](const std::string&, int) { throw 5; }));
    const auto shared = top_ + "/persistent/n/0";
    std::filesystem::rename(shared, shared + " moved");
    std::filesystem::create_directory(shared);
    ASSERT_TRUE(client_->checkpoint_begin("n", 2) && client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_end(true); }),
                AllOf(HasSubstr("no std::exception"), HasSubstr("version 2 of n is lost")));
}

TEST_F(VelocClientTest, WhatFailsInTheBackgroundIsSaidOnceByTheNextWait) {
    auto a = counted(5, 0);
    start();
    ASSERT_TRUE(protect(0, a) && save("n", 1));
    const auto shared = top_ + "/persistent/n/0";
    std::filesystem::rename(shared, shared + " moved");
    std::filesystem::create_directory(shared);
    ASSERT_TRUE(client_->checkpoint_begin("n", 2) && client_->checkpoint_mem(VELOC_CKPT_ALL, {}));
    EXPECT_TRUE(client_->checkpoint_end(true));
    EXPECT_THAT(failure_of([&] { return client_->checkpoint_wait(); }), HasSubstr("version 2 of n is lost"));
    EXPECT_TRUE(client_->checkpoint_wait());
    testing::internal::CaptureStderr();
    EXPECT_TRUE(client_->finalize());
    testing::internal::GetCapturedStderr();
}

TEST_F(VelocClientTest, ProcessesOfDifferentIdsDoNotMeet) {
    auto a = counted(5, 0);
    for (const unsigned int id : {3u, 4u}) {
        start("", id);
        EXPECT_EQ(newest("n"), -1);
        a[0] = static_cast<int>(id);
        ASSERT_TRUE(protect(0, a) && save("n", 1));
    }
    start("", 3);
    ASSERT_TRUE(protect(0, a) && client_->restart("n", 1, -1));
    EXPECT_EQ(a[0], 3);
}

TEST_F(VelocClientTest, WithoutAPersistentDirectoryVersionsComeBackFromScratch) {
    auto a = counted(5, 1);
    start("", 0, false);
    ASSERT_TRUE(protect(0, a) && save("n", 1) && save("n", 2) && save("n", 3));
    start("", 0, false);
    EXPECT_EQ(newest("n"), 3);
    a[0] = 0;
    ASSERT_TRUE(protect(0, a) && client_->restart("n", 2, -1));
    EXPECT_EQ(a[0], 1);
}

TEST_F(VelocClientTest, MaxVersionsAndScratchVersionsAreCountedForEachName) {
    auto a = counted(5, 1);
    start("max_versions = 2\nscratch_versions = 1\n");
    ASSERT_TRUE(protect(0, a));
    for (int version = 1; version <= 4; ++version) ASSERT_TRUE(save("one", version) && save("two", version));
    ASSERT_TRUE(client_->finalize());
    start();
    for (const std::string name : {"one", "two"}) {
        EXPECT_EQ(newest(name), 4);
        EXPECT_EQ(newest(name, 3), 3);
        EXPECT_EQ(newest(name, 2), -1);
    }
}

TEST_F(VelocClientTest, ARankMayReadWhatAnotherOneSaved) {
    auto a = counted(5, 1);
    start();
    ASSERT_TRUE(protect(0, a) && save("n", 3) && save("n", 6));
    EXPECT_EQ(client_->restart_test("n", 0, 0), 6);
    EXPECT_EQ(client_->restart_test("n", 3, 0), 3);
    EXPECT_EQ(client_->restart_test("n", 2, 0), -1);
    EXPECT_EQ(client_->restart_test("n", 5, 0), 3) << "the greatest that is not above";
    EXPECT_EQ(client_->restart_test("other", 0, 0), -1);
    a[0] = 0;
    EXPECT_TRUE(client_->restart("n", 3, 0));
    EXPECT_EQ(a[0], 1);
    EXPECT_THAT(failure_of([&] { return client_->restart("n", 3, 1); }), HasSubstr("was saved by 1 ranks"));
}

TEST_F(VelocClientTest, TheLogGoesToAFileIfItIsAskedFor) {
    start("log_prefix = " + top_ + "\nmeta = /nowhere\n");
    testing::internal::CaptureStderr();
    EXPECT_FALSE(client_->checkpoint("a/b", 1));
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a/b")) << "failures are on stderr as well";
    std::string log;
    for (const auto& entry : std::filesystem::directory_iterator(top_))
        if (entry.path().filename().string().starts_with("veloc-client-")) {
            std::ifstream in(entry.path());
            log.assign(std::istreambuf_iterator<char>(in), {});
        }
    EXPECT_THAT(log, AllOf(HasSubstr("a/b"), HasSubstr("meta has no effect")));
    tailrace_set_log(nullptr, nullptr);
}

TEST_F(VelocClientTest, CleanupHasNothingToDo) {
    start();
    EXPECT_TRUE(client_->cleanup("n"));
}

TEST_F(VelocClientTest, WithoutAUsableConfigurationThereIsNoClient) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(Client::open(single_process(0), top_ + "/none.cfg"), nullptr);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("none.cfg cannot be read"));
}

}  // namespace
}  // namespace veloc_on_tailrace
