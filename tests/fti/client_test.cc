// A client of one process: what is saved and comes back, what is refused, and what the configuration file
// says afterwards.
#include "client.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

namespace fti_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int type_char = 0, type_int = 2, type_double = 9;

class FtiClientTest : public testing::Test {
  protected:
    FtiClientTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace fti XXXXXX").string();
        top_ = std::filesystem::canonical(::mkdtemp(pattern.data()));
        configure("");
    }
    ~FtiClientTest() override {
        client_.reset();
        std::filesystem::remove_all(top_);
    }

    std::string config() const { return top_ + "/config.fti"; }
    void write(const std::string& text) const { std::ofstream(config(), std::ios::binary) << text; }
    std::string read() const {
        std::ifstream in(config(), std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    // A configuration with these lines of [Basic], and a first run.
    void configure(const std::string& basic) const {
        write("[Basic]\nckpt_dir = \"" + top_ + "/local\"\nglbl_dir = \"" + top_ + "/global\"\n" + basic +
              "[Restart]\nfailure = 0\nexec_id = XXXX\n[tailrace]\nrecord = no\nbuffer_bytes = 1MiB\n");
    }
    // Begins a client, as a program that is started. The one before has died, unless it was finalized.
    Result start() {
        client_.reset();
        client_ = Client::open(on_tailrace::single_process(), config());
        return client_ ? client_->begun() : failed;
    }
    void finish() {
        EXPECT_EQ(client_->finalize(), good);
        client_.reset();
    }
    void protect(std::vector<int>& values, int id = 1) const {
        ASSERT_EQ(client_->protect(id, values.data(), static_cast<int64_t>(values.size()), type_int), good);
    }
    // What a call says on stderr, if it has this result.
    std::string said(Result expected, const std::function<Result()>& call) const {
        testing::internal::CaptureStderr();
        const auto result = call();
        const auto lines = testing::internal::GetCapturedStderr();
        return result == expected ? lines : "the result is " + std::to_string(result) + ": " + lines;
    }

    std::string top_;
    std::unique_ptr<Client> client_;
};

class FtiLevelTest : public FtiClientTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Levels, FtiLevelTest, testing::Values(1, 2, 3, 4));

TEST_P(FtiLevelTest, TheLastCheckpointComesBackInAnotherProcess) {
    std::vector<int> values{1, 2, 3};
    double time = 0.5;
    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->status(), 0);
    protect(values);
    ASSERT_EQ(client_->protect(0, &time, 1, type_double), good);
    ASSERT_EQ(client_->checkpoint(7, GetParam()), taken);
    values = {4, 5, 6};
    ASSERT_EQ(client_->checkpoint(3, GetParam()), taken);
    values = {0, 0, 0};
    time = 0;

    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->status(), 1);
    protect(values);
    ASSERT_EQ(client_->protect(0, &time, 1, type_double), good);
    ASSERT_EQ(client_->recover(), good);
    EXPECT_EQ(values, (std::vector<int>{4, 5, 6}));
    EXPECT_EQ(time, 0.5);
    EXPECT_EQ(client_->status(), 0);
    ASSERT_EQ(client_->checkpoint(3, GetParam()), taken);
    finish();
    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->status(), 0);
}

// Whoever may write to the directories could do so while the program runs.
TEST_F(FtiClientTest, NothingIsRemovedThroughALink) {
    std::vector<int> values{1};
    for (const std::string name : {"local", "global"}) {
        configure("");
        ASSERT_EQ(start(), good);
        protect(values);
        ASSERT_EQ(client_->checkpoint(1, 1), taken);
        const auto run = std::filesystem::directory_iterator(top_ + "/" + name)->path();
        const auto other = top_ + "/other " + name;
        for (const auto* directory : {"/tailrace", "/tailrace/l1"})
            std::filesystem::create_directories(other + directory);
        std::ofstream(other + "/tailrace/l1/mine") << "mine";
        std::filesystem::rename(run, top_ + "/moved " + name);
        std::filesystem::create_directory_symlink(other, run);
        EXPECT_THAT(said(good, [&] { return client_->finalize(); }),
                    AllOf(HasSubstr(run.string() + " is a link"), HasSubstr("nothing there was removed")));
        EXPECT_TRUE(std::filesystem::exists(other + "/tailrace/l1/mine")) << name;
        std::filesystem::remove(run);  // the next run may have its name
    }
}

TEST_F(FtiClientTest, TheNewestOfAllLevelsComesBack) {
    std::vector<int> values{0};
    for (const auto& levels_in_order : {std::vector<int>{4, 1, 2}, {1, 4}, {2, 3, 1, 4, 3}}) {
        configure("");
        ASSERT_EQ(start(), good);
        protect(values);
        for (const int level : levels_in_order) {
            ++values[0];
            ASSERT_EQ(client_->checkpoint(level, level), taken);
        }
        const int newest = values[0];
        values[0] = -1;
        ASSERT_EQ(start(), good);
        protect(values);
        ASSERT_EQ(client_->recover(), good);
        EXPECT_EQ(values[0], newest);
        values[0] = newest + 1;
        ASSERT_EQ(client_->checkpoint(1, 1), taken);
        values[0] = -1;
        ASSERT_EQ(start(), good);
        protect(values);
        ASSERT_EQ(client_->recover(), good);
        EXPECT_EQ(values[0], newest + 1);
        client_.reset();
    }
}

TEST_F(FtiClientTest, ACheckpointOfTheSameRunComesBack) {
    std::vector<int> values{1};
    ASSERT_EQ(start(), good);
    protect(values);
    EXPECT_THAT(said(not_recovered, [&] { return client_->recover(); }),
                HasSubstr("take one with FTI_Checkpoint"));
    for (int i = 1; i <= 2; ++i) {
        values[0] = i;
        ASSERT_EQ(client_->checkpoint(i, 1), taken);
        values[0] = -1;
        ASSERT_EQ(client_->recover(), good);
        EXPECT_EQ(values[0], i);
    }
}

TEST_F(FtiClientTest, OtherIdsOrSizesThanInTheCheckpointAreRefused) {
    std::vector<int> values{1, 2}, more{3};
    ASSERT_EQ(start(), good);
    protect(values);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    protect(more, 2);
    EXPECT_THAT(said(not_recovered, [&] { return client_->recover(); }),
                HasSubstr("id 2 is protected and not in the checkpoint"));
    ASSERT_EQ(start(), good);
    EXPECT_THAT(said(not_recovered, [&] { return client_->recover(); }),
                HasSubstr("id 1, 8 bytes, is in the checkpoint and not protected"));
    values = {5, 6, 7};
    protect(values);
    EXPECT_THAT(said(not_recovered, [&] { return client_->recover(); }),
                HasSubstr("id 1 has 12 bytes here and 8 bytes in the checkpoint"));
    EXPECT_EQ(values, (std::vector<int>{5, 6, 7}));
    EXPECT_EQ(client_->status(), 1);
}

TEST_F(FtiClientTest, WhatCannotBeProtectedIsRefused) {
    configure("max_var_id = 9\n");
    int value = 0;
    ASSERT_EQ(start(), good);
    EXPECT_THAT(said(failed, [&] { return client_->protect(10, &value, 1, type_int); }),
                HasSubstr("ids are 0 to 9"));
    EXPECT_THAT(said(failed, [&] { return client_->protect(-1, &value, 1, type_int); }),
                HasSubstr("ids are 0 to 9"));
    EXPECT_THAT(said(failed, [&] { return client_->protect(1, &value, -1, type_int); }),
                HasSubstr("cannot be"));
    EXPECT_THAT(said(failed, [&] { return client_->protect(1, &value, INT64_MAX, type_int); }),
                HasSubstr("cannot be"));
    EXPECT_THAT(said(failed, [&] { return client_->protect(1, nullptr, 1, type_int); }),
                HasSubstr("4 bytes at NULL"));
    EXPECT_THAT(said(failed, [&] { return client_->protect(1, &value, 1, 11); }),
                HasSubstr("there is no type 11"));
    EXPECT_EQ(client_->protect(1, nullptr, 0, type_int), good);
    EXPECT_EQ(client_->checkpoint(1, 1), taken);
}

TEST_F(FtiClientTest, LevelsThatAreNoneAreRefused) {
    ASSERT_EQ(start(), good);
    for (const int level : {0, -1, 10})
        EXPECT_THAT(said(failed, [&] { return client_->checkpoint(1, level); }),
                    HasSubstr("take FTI_L1 to FTI_L4"));
    EXPECT_THAT(said(taken, [&] { return client_->checkpoint(1, 8); }), HasSubstr("level 8 is level 4 here"));
    EXPECT_THAT(said(taken, [&] { return client_->checkpoint(2, 8); }), Not(HasSubstr("level 8")));
    EXPECT_THAT(said(taken, [&] { return client_->checkpoint(3, 9); }), Not(HasSubstr("level 9")));
}

TEST_F(FtiClientTest, ACheckpointThatDoesNotReachItsLevelFails) {
    std::vector<int> values{1};
    ASSERT_EQ(start(), good);
    protect(values);
    ASSERT_EQ(client_->checkpoint(1, 4), taken);
    std::filesystem::remove_all(std::filesystem::directory_iterator(top_ + "/global")->path());
    EXPECT_THAT(said(failed, [&] { return client_->checkpoint(2, 4); }), HasSubstr("FTI_Checkpoint: "));
}

TEST_F(FtiClientTest, ACheckpointThatNobodyHasWaitedForIsSaidToBeLost) {
    configure("inline_l4 = 0\n");
    std::vector<int> values{1};
    ASSERT_EQ(start(), good);
    protect(values);
    ASSERT_EQ(client_->checkpoint(1, 4), taken);
    ASSERT_EQ(client_->checkpoint(2, 1), taken);  // waits for the one before
    std::filesystem::remove_all(std::filesystem::directory_iterator(top_ + "/global")->path() / "tailrace" /
                                "l4");
    ASSERT_EQ(client_->checkpoint(3, 4), taken);
    EXPECT_THAT(said(failed, [&] { return client_->finalize(); }),
                HasSubstr("the checkpoint before, of level 4, did not get there"));
}

// ---- the configuration file ---------------------------------------------------------------------

TEST_F(FtiClientTest, TheConfigurationFileSaysWhatTheNextStartIs) {
    int value = 1;
    ASSERT_EQ(start(), good);
    EXPECT_THAT(read(), AllOf(HasSubstr("failure = 0\n"), Not(HasSubstr("XXXX"))));
    const auto id = read().substr(read().find("exec_id"));
    ASSERT_EQ(client_->protect(1, &value, 1, type_int), good);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    EXPECT_THAT(read(), AllOf(HasSubstr("failure = 1\n"), HasSubstr(id)));
    finish();
    EXPECT_THAT(read(), AllOf(HasSubstr("failure = 0\n"), HasSubstr(id)));
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/global"));
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/local"));
}

TEST_F(FtiClientTest, TheLastCheckpointIsKeptIfTheConfigurationSaysSo) {
    configure("keep_last_ckpt = 1\n");
    std::vector<int> values{1};
    ASSERT_EQ(start(), good);
    protect(values);
    for (const int level : {1, 4, 1}) {
        ++values[0];
        ASSERT_EQ(client_->checkpoint(1, level), taken);
    }
    finish();
    EXPECT_THAT(read(), HasSubstr("failure = 2\n"));
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/local"));
    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->status(), 2);
    values = {0};
    protect(values);
    ASSERT_EQ(client_->recover(), good);
    EXPECT_EQ(values[0], 4);
    finish();
    EXPECT_THAT(read(), HasSubstr("failure = 2\n"));
}

TEST_F(FtiClientTest, WithoutACheckpointNothingIsKept) {
    configure("keep_last_ckpt = 1\n");
    ASSERT_EQ(start(), good);
    finish();
    EXPECT_THAT(read(), HasSubstr("failure = 0\n"));
}

TEST_F(FtiClientTest, ALinkStaysALinkAndTheFileKeepsItsRights) {
    std::filesystem::rename(config(), top_ + "/real.fti");
    std::filesystem::create_symlink("real.fti", config());
    const auto rights = std::filesystem::perms::owner_all | std::filesystem::perms::group_read;
    std::filesystem::permissions(top_ + "/real.fti", rights);
    ASSERT_EQ(start(), good);
    EXPECT_TRUE(std::filesystem::is_symlink(config()));
    EXPECT_THAT(read(), Not(HasSubstr("XXXX")));
    EXPECT_EQ(std::filesystem::status(config()).permissions(), rights);
}

TEST_F(FtiClientTest, TheUmaskTakesNoRightsOfTheFile) {
    std::filesystem::permissions(config(), std::filesystem::perms::all);
    const auto before = ::umask(077);
    EXPECT_EQ(start(), good);
    ::umask(before);
    EXPECT_THAT(read(), Not(HasSubstr("XXXX")));
    EXPECT_EQ(std::filesystem::status(config()).permissions(), std::filesystem::perms::all);
}

TEST_F(FtiClientTest, AFileThatSomebodyHasPlantedIsNotWritten) {
    std::ofstream(top_ + "/of another") << "theirs";
    std::filesystem::create_symlink(top_ + "/of another", config() + ".new");
    ASSERT_EQ(start(), good);
    EXPECT_THAT(read(), Not(HasSubstr("XXXX")));
    EXPECT_FALSE(std::filesystem::is_symlink(config()));
    std::ifstream theirs(top_ + "/of another");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(theirs), {}), "theirs");
}

TEST_F(FtiClientTest, AConfigurationThatIsNoFileIsRefused) {
    std::filesystem::remove(config());
    ASSERT_EQ(::mkfifo(config().c_str(), 0600), 0);
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("this is no regular file"));
    std::filesystem::remove(config());
    std::filesystem::create_directory(config());
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("this is no regular file"));
    std::filesystem::remove(config());
    write("#");
    std::filesystem::resize_file(config(), (64u << 20) + 1);
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("it has more than 64 MiB"));
}

TEST_F(FtiClientTest, ARunWithoutCheckpointsLeavesNothing) {
    ASSERT_EQ(start(), good);
    EXPECT_FALSE(std::filesystem::is_empty(top_ + "/global"));
    finish();
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/global"));
}

// The level's epochs may be the newest.
TEST_F(FtiClientTest, ALevelThatCannotBeLookedAtStopsTheRestart) {
    std::vector<int> values{1};
    ASSERT_EQ(start(), good);
    protect(values);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    client_.reset();
    const auto before = read();
    const auto level_3 = std::filesystem::directory_iterator(top_ + "/global")->path() / "tailrace" / "l3";
    std::ofstream(level_3) << "no directory";
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("cannot be looked at; nothing was changed"));
    EXPECT_EQ(read(), before);
    std::filesystem::remove(level_3);
    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->status(), 1);
    values[0] = 0;
    protect(values);
    ASSERT_EQ(client_->recover(), good);
    EXPECT_EQ(values[0], 1);
}

TEST_F(FtiClientTest, FilesOfOthersBesideOursStay) {
    int value = 1;
    ASSERT_EQ(start(), good);
    ASSERT_EQ(client_->protect(1, &value, 1, type_int), good);
    ASSERT_EQ(client_->checkpoint(1, 4), taken);
    const auto run = std::filesystem::directory_iterator(top_ + "/global")->path();
    std::ofstream(run / "theirs") << "1";
    finish();
    EXPECT_TRUE(std::filesystem::exists(run / "theirs"));
    EXPECT_FALSE(std::filesystem::exists(run / "tailrace"));
}

TEST_F(FtiClientTest, ARestartWithoutACheckpointBeginsAnew) {
    write(read().replace(read().find("failure = 0"), 11, "failure = 1"));
    EXPECT_THAT(said(not_recovered, [&] { return start(); }), HasSubstr("no checkpoint of run XXXX"));
    EXPECT_THAT(read(), AllOf(HasSubstr("failure = 1"), HasSubstr("exec_id = XXXX")));
    finish();
    EXPECT_THAT(read(), HasSubstr("exec_id = XXXX"));
    EXPECT_EQ(start(), not_recovered);
    EXPECT_EQ(client_->status(), 0);
    std::vector<int> values{3};
    protect(values);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    EXPECT_THAT(read(), Not(HasSubstr("exec_id = XXXX")));
    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->status(), 1);
}

TEST_F(FtiClientTest, AnyNumberOfACheckpointGoes) {
    int value = 1;
    for (const int id : {7, -5, std::numeric_limits<int>::max()}) {
        configure("");
        ASSERT_EQ(start(), good);
        ASSERT_EQ(client_->protect(1, &value, 1, type_int), good);
        ASSERT_EQ(client_->checkpoint(id, 1), taken);
        ASSERT_EQ(start(), good);
    }
}

TEST_F(FtiClientTest, ADamagedCheckpointIsPassedOver) {
    std::vector<int> values(100000, 1);
    ASSERT_EQ(start(), good);
    protect(values);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    values.assign(values.size(), 2);
    ASSERT_EQ(client_->checkpoint(2, 4), taken);
    client_.reset();
    // The level's session may have the epoch in its tier, too.
    int damaged = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top_)) {
        const auto path = entry.path().string();
        if (!entry.is_regular_file() || entry.file_size() < 4 * values.size()) continue;
        std::ifstream in(path, std::ios::binary);
        const std::string text(std::istreambuf_iterator<char>(in), {});
        const std::string twos("\2\0\0\0\2\0\0\0\2\0\0\0", 12);
        const auto at = text.find(twos);
        if (at == std::string::npos) continue;
        std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(at + 4));
        file << "x";
        ++damaged;
    }
    ASSERT_GT(damaged, 0);
    EXPECT_THAT(said(good, [&] { return start(); }),
                HasSubstr("epoch 2, cannot be recovered, and is passed over"));
    protect(values);
    ASSERT_EQ(client_->recover(), good);
    EXPECT_EQ(values, std::vector<int>(100000, 1));
}

TEST_F(FtiClientTest, AConfigurationThatCannotBeUsedIsRefused) {
    write("[Basic\n");
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("has no closing ]"));
    write("");
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("ckpt_dir is missing"));
    std::filesystem::remove(config());
    EXPECT_THAT(said(failed, [&] { return start(); }), HasSubstr("cannot be read"));
    EXPECT_EQ(client_, nullptr);
}

// ---- variables one by one -----------------------------------------------------------------------

TEST_F(FtiClientTest, VariablesComeBackOneByOne) {
    std::vector<int> first{1, 2}, second{3, 4};
    ASSERT_EQ(start(), good);
    protect(first, 1);
    protect(second, 2);
    EXPECT_EQ(client_->begin_recovering(), good);
    EXPECT_EQ(client_->recover_one(1), good);  // nothing to do
    ASSERT_EQ(client_->checkpoint(1, 4), taken);
    first = second = {0, 0};
    ASSERT_EQ(start(), good);
    protect(second, 2);
    ASSERT_EQ(client_->begin_recovering(), good);
    EXPECT_EQ(client_->recover_one(2), good);
    EXPECT_EQ(second, (std::vector<int>{3, 4}));
    EXPECT_THAT(said(failed, [&] { return client_->recover_one(1); }), HasSubstr("id 1 is not protected"));
    protect(first, 3);
    EXPECT_THAT(said(not_recovered, [&] { return client_->recover_one(3); }),
                HasSubstr("is not in the checkpoint"));
    first.resize(1);
    protect(first, 1);
    EXPECT_THAT(said(not_recovered, [&] { return client_->recover_one(1); }),
                HasSubstr("8 bytes in the checkpoint"));
    EXPECT_EQ(first[0], 0);
    EXPECT_EQ(client_->end_recovering(), good);
    EXPECT_EQ(client_->status(), 1);
}

TEST_F(FtiClientTest, MemoryGetsTheSizeThatItHadInTheCheckpoint) {
    std::vector<int> values{1, 2, 3, 4};
    ASSERT_EQ(start(), good);
    protect(values);
    testing::internal::CaptureStderr();
    EXPECT_EQ(client_->stored_size(1), 0);
    EXPECT_EQ(client_->resize(1, &values), &values);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("id 1 is in no checkpoint"), HasSubstr("this is no restart")));
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    EXPECT_EQ(client_->stored_size(1), 16);

    ASSERT_EQ(start(), good);
    EXPECT_EQ(client_->stored_size(1), 16);
    void* memory = std::malloc(4);
    ASSERT_EQ(client_->protect(1, memory, 1, type_int), good);
    memory = client_->resize(1, memory);
    ASSERT_EQ(client_->recover(), good);
    EXPECT_EQ(std::vector<int>(static_cast<int*>(memory), static_cast<int*>(memory) + 4), values);
    std::free(memory);
}

TEST_F(FtiClientTest, TypesOfTheProgramHaveTheirSize) {
    struct Point {
        double x;
        int tag;
    };
    Point points[2] = {{1, 2}, {3, 4}};
    ASSERT_EQ(start(), good);
    const int type = client_->types().add(sizeof(Point));
    EXPECT_EQ(type, 11);
    ASSERT_EQ(client_->protect(1, points, 2, type), good);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    EXPECT_EQ(client_->stored_size(1), static_cast<int64_t>(sizeof points));
    EXPECT_NO_THROW(client_->types().check_field(type, type_int, offsetof(Point, tag), {}));
    EXPECT_NO_THROW(client_->types().check_field(type, type_char, 0, {4, 4}));
    EXPECT_THROW(client_->types().check_field(type, type_char, 1, {4, 4}), tailrace::Error);
    EXPECT_THROW(client_->types().check_field(type, type_char, -1, {}), tailrace::Error);
    EXPECT_THROW(client_->types().check_field(type, type_char, 0, {0}), tailrace::Error);
    EXPECT_THROW(client_->types().check_field(99, type_char, 0, {}), tailrace::Error);
    EXPECT_THROW(client_->types().add(0), tailrace::Error);
    while (client_->types().add(1) + 1 < static_cast<int>(Types::most)) {
    }
    EXPECT_THROW(client_->types().add(1), tailrace::Error);
}

TEST_F(FtiClientTest, ASnapshotRecoversOnARestart) {
    std::vector<int> values{1};
    ASSERT_EQ(start(), good);
    protect(values);
    EXPECT_EQ(client_->snapshot(), good);
    ASSERT_EQ(client_->checkpoint(1, 1), taken);
    values[0] = 0;
    ASSERT_EQ(start(), good);
    protect(values);
    EXPECT_EQ(client_->snapshot(), good);
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(client_->snapshot(), good);
}

}  // namespace
}  // namespace fti_on_tailrace
