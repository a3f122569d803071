// Datasets that are no checkpoints: where their files come to lie, and that they take no checkpoint's place.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "client_fixture.h"
#include "epochs_directory.h"

namespace scr_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ScrOutputsTest : public ScrBothWaysTest {
  protected:
    std::string directory() const { return top_ + "/.scr/tailrace"; }
    std::string text_of(const std::string& name) { return read(top_ + "/" + name + "/data"); }
};
INSTANTIATE_TEST_SUITE_P(Ways, ScrOutputsTest, testing::Bool(),
                         [](const auto& way) { return way.param ? "Bypass" : "Cached"; });

TEST_P(ScrOutputsTest, AnOutputLiesUnderItsNamesBelowThePrefix) {
    start();
    ASSERT_TRUE(save("result", "1", SCR_FLAG_OUTPUT));
    EXPECT_EQ(text_of("result"), "1");
    ASSERT_TRUE(save("without flags", "2", SCR_FLAG_NONE));
    EXPECT_EQ(text_of("without flags"), "2");
    EXPECT_EQ(offered(), "none");
    ASSERT_TRUE(save("result", "3", SCR_FLAG_OUTPUT)) << "its name may be used again";
    EXPECT_EQ(text_of("result"), "3");
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(top_ + "/result")) files += entry.exists();
    EXPECT_EQ(files, 1u);
}

TEST_P(ScrOutputsTest, OutputsTakeNoCheckpointsPlace) {
    start({"TAILRACE_KEEP_SHARED=1", "TAILRACE_KEEP_OUTPUTS=2"});
    ASSERT_TRUE(save("checkpoint", "1"));
    for (const std::string name : {"a", "b", "c"}) ASSERT_TRUE(save(name, name, SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->finalize());
    client_.reset();
    std::filesystem::remove_all(top_ + "/tier");
    EXPECT_EQ(tailrace::Reader::open_directory(outputs_in(directory()), job, 3).epoch(), 3u);
    EXPECT_THROW(tailrace::Reader::open_directory(outputs_in(directory()), job, 2), tailrace::Error);
    for (const std::string name : {"a", "b", "c"})
        EXPECT_EQ(text_of(name), name) << "the files are the program's";
    start();
    EXPECT_EQ(offered(), "checkpoint");
    EXPECT_EQ(restarted(), "1");
}

TEST_P(ScrOutputsTest, DeletingAnOutputRemovesItsFiles) {
    start();
    for (const std::string name : {"one", "two"}) ASSERT_TRUE(save(name, name, SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->remove("one"));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/one"));
    start();
    ASSERT_TRUE(client_->remove("two")) << "of an earlier run";
    EXPECT_FALSE(std::filesystem::exists(top_ + "/two"));
    EXPECT_EQ(ids_in_index(), "");
}

TEST_P(ScrOutputsTest, NoRestartBeginsAtAnOutput) {
    start();
    ASSERT_TRUE(save("checkpoint", "1"));
    ASSERT_TRUE(save("result", "2", SCR_FLAG_OUTPUT));
    EXPECT_THAT(failure_of([&] { return client_->current("result"); }), HasSubstr("result is no checkpoint"));
    EXPECT_EQ(offered(), "checkpoint");
}

TEST_P(ScrOutputsTest, WithoutTheEarlierOutputsAProgramRestartsAllTheSame) {
    start();
    ASSERT_TRUE(save("checkpoint", "1"));
    client_.reset();
    write(outputs_in(directory()), "a file in the way");
    testing::internal::CaptureStderr();
    start();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("SCR_Init: "));
    EXPECT_EQ(offered(), "checkpoint");
    EXPECT_THAT(failure_of([&] { return save("result", "2", SCR_FLAG_OUTPUT); }),
                HasSubstr("SCR_Start_output: "));
    ASSERT_TRUE(save("another", "3"));
    EXPECT_EQ(offered(), "another");
}

TEST_P(ScrOutputsTest, WhatIsTheLibrarysIsNoFileOfTheProgram) {
    start();
    ASSERT_TRUE(client_->start_output("result", SCR_FLAG_OUTPUT));
    std::string path;
    EXPECT_THAT(failure_of([&] { return client_->route_file(".scr/tailrace-index", path); }),
                HasSubstr("lies in .scr"));
}

TEST_P(ScrOutputsTest, IdsOfOutputsAreNotUsedAgain) {
    start();
    ASSERT_TRUE(save("one", "1", SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->drop("one"));
    start();
    ASSERT_TRUE(save("two", "2"));
    EXPECT_EQ(ids_in_index(), "2");
}

TEST_P(ScrOutputsTest, WithoutOutputsThereIsNoDirectoryForThem) {
    start();
    ASSERT_TRUE(save("one", "1"));
    EXPECT_FALSE(std::filesystem::exists(outputs_in(directory())));
}

TEST_F(ScrClientTest, AnAsynchronousOutputHasItsNamesAtTheEnd) {
    start({"SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1"});
    for (const std::string name : {"one", "two", "three"}) ASSERT_TRUE(save(name, name, SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->finalize());
    for (const std::string name : {"one", "two", "three"}) EXPECT_EQ(read(top_ + "/" + name + "/data"), name);
}

// Its epoch may go before its files have their names.
TEST_F(ScrClientTest, AnAsynchronousOutputThatIsNotKeptHasItsNamesToo) {
    start({"SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1", "TAILRACE_KEEP_OUTPUTS=1"});
    const auto epoch_of = [&](int id) {
        return outputs_in(top_ + "/.scr/tailrace") + "/scr.files/e00000000" + std::to_string(id);
    };
    ASSERT_TRUE(save("one", "one", SCR_FLAG_OUTPUT));
    for (int i = 0; i < 2000 && !std::filesystem::exists(epoch_of(1)); ++i) ::usleep(10000);
    ASSERT_TRUE(save("two", "two", SCR_FLAG_OUTPUT));
    for (int i = 0; i < 2000 && std::filesystem::exists(epoch_of(1)); ++i) ::usleep(10000);
    ASSERT_TRUE(client_->finalize());
    EXPECT_EQ(read(top_ + "/one/data"), "one");
    EXPECT_EQ(read(top_ + "/two/data"), "two");
    EXPECT_FALSE(std::filesystem::exists(epoch_of(1)));
}

TEST_F(ScrClientTest, AnOutputThatIsDeletedOnItsWayGetsNoNames) {
    start({"SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1"});
    ASSERT_TRUE(save("one", "one", SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->remove("one"));
    ASSERT_TRUE(client_->finalize());
    EXPECT_FALSE(std::filesystem::exists(top_ + "/one"));
}

TEST_F(ScrClientTest, OutputsAreSavedWhateverTheEnvironmentSaysOfCheckpoints) {
    set("TAILRACE_PURPOSE", "outputs");
    set("TAILRACE_KEEP_SHARED", "1");
    start(
        {"SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1", "TAILRACE_QUEUE_POLICY=skip", "TAILRACE_QUEUE_EPOCHS=1"});
    ASSERT_TRUE(save("checkpoint", "1"));
    for (const std::string name : {"one", "two", "three"})
        ASSERT_TRUE(save(name, std::string(3 << 20, 'x'), SCR_FLAG_OUTPUT));
    EXPECT_EQ(offered(), "checkpoint");
    for (const std::string name : {"one", "two", "three"})
        EXPECT_EQ(std::filesystem::file_size(top_ + "/" + name + "/data"), 3u << 20);
}

TEST_F(ScrClientTest, FilesOfAStrangersDirectoryGetNoNames) {
    start({"SCR_CACHE_BYPASS=0"});
    write(outputs_in(top_ + "/.scr/tailrace") + "/scr.files/e000000001/result/data", "not this");
    EXPECT_THAT(failure_of([&] { return save("result", "this", SCR_FLAG_OUTPUT); }),
                HasSubstr("scr.files/e000000001"));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/result"));
}

TEST_F(ScrClientTest, DeletingAnOutputLeavesWhatTheProgramHasPutInItsPlace) {
    start({"SCR_CACHE_BYPASS=0"});
    ASSERT_TRUE(save("result", "1", SCR_FLAG_OUTPUT));
    std::filesystem::remove(top_ + "/result/data");
    write(top_ + "/result/data", "the program's own");
    ASSERT_TRUE(client_->remove("result"));
    EXPECT_EQ(read(top_ + "/result/data"), "the program's own");
}

TEST_F(ScrClientTest, AnOutputWhoseNameIsTakenByADirectoryIsCompleteAndSaysWhereItIs) {
    start({"SCR_CACHE_BYPASS=0"});
    write("result/data/in the way", "");
    EXPECT_THAT(failure_of([&] { return save("result", "1", SCR_FLAG_OUTPUT); }),
                AllOf(HasSubstr("scr.outputs/scr.files/e000000001/result/data"),
                      HasSubstr("the output is complete, and its files are there")));
    EXPECT_EQ(ids_in_index(), "1");
    EXPECT_EQ(read(outputs_in(top_ + "/.scr/tailrace") + "/scr.files/e000000001/result/data"), "1");
}

TEST_F(ScrClientTest, AnOutputMayStayInTheFewFiles) {
    start({"SCR_CACHE_BYPASS=0", "TAILRACE_FILES_AS=packed"});
    ASSERT_TRUE(save("result", "1", SCR_FLAG_OUTPUT));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/result"));
    const auto directory = outputs_in(top_ + "/.scr/tailrace");
    EXPECT_FALSE(std::filesystem::exists(directory + "/scr.files"));
    EXPECT_EQ(tailrace::Reader::open_directory(directory, job, 1).region(0, "file/result/data").bytes, 1u);
    EXPECT_TRUE(client_->remove("result"));
}

}  // namespace
}  // namespace scr_on_tailrace
