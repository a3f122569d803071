// A client of one process: the order of calls, what is saved and comes back, and what is refused.
#include "client.h"

#include <gmock/gmock.h>

#include "client_fixture.h"

namespace scr_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

INSTANTIATE_TEST_SUITE_P(Ways, ScrBothWaysTest, testing::Bool(),
                         [](const auto& way) { return way.param ? "Bypass" : "Cached"; });

TEST_P(ScrBothWaysTest, TheNewestCheckpointComesBackInAnotherProcess) {
    start();
    EXPECT_EQ(offered(), "none");
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(save("two", "22"));
    ASSERT_TRUE(save("result", "333", SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->finalize());
    start();
    EXPECT_EQ(offered(), "two");
    EXPECT_EQ(offered(), "two");
    EXPECT_EQ(restarted(), "22");
    EXPECT_EQ(offered(), "two");
}

TEST_P(ScrBothWaysTest, ACheckpointThatTheProgramCannotReadIsNotOfferedAgain) {
    start();
    for (const std::string name : {"one", "two", "three"}) ASSERT_TRUE(save(name, name));
    start();
    std::string name;
    for (const std::string expected : {"three", "two"}) {
        ASSERT_EQ(offered(), expected);
        ASSERT_TRUE(client_->start_restart(name));
        EXPECT_EQ(name, expected);
        EXPECT_THAT(failure_of([&] { return client_->complete_restart(false); }),
                    HasSubstr("checkpoint " + expected + " is not valid"));
    }
    start();
    EXPECT_EQ(offered(), "one");
    EXPECT_EQ(restarted(), "one");
}

TEST_P(ScrBothWaysTest, ADatasetThatIsNotValidDoesNotExist) {
    start();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(client_->start_output("two", SCR_FLAG_CHECKPOINT));
    write(routed("two/data"), "half");
    EXPECT_THAT(failure_of([&] { return client_->complete_output(false); }),
                HasSubstr("SCR_Complete_output: dataset 2 (two) is dropped"));
    EXPECT_EQ(offered(), "one");
    ASSERT_TRUE(save("two", "whole"));
    EXPECT_EQ(offered(), "two");
    EXPECT_EQ(restarted(), "whole");
    EXPECT_TRUE(client_->finalize());
}

TEST_P(ScrBothWaysTest, AFileThatWasRoutedAndNotWrittenFailsTheDataset) {
    start();
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    routed("one/data");
    EXPECT_THAT(failure_of([&] { return client_->complete_output(true); }), HasSubstr("data"));
    EXPECT_EQ(offered(), "none");
}

TEST_P(ScrBothWaysTest, ADatasetMayHaveManyFilesOrNone) {
    start();
    ASSERT_TRUE(client_->start_output("none", SCR_FLAG_CHECKPOINT));
    ASSERT_TRUE(client_->complete_output(true));
    EXPECT_EQ(offered(), "none");  // this is its name
    ASSERT_TRUE(client_->start_output("many", SCR_FLAG_CHECKPOINT));
    for (const std::string name : {"many/a", "many/deep/er/b", "c"}) write(routed(name), name);
    ASSERT_TRUE(client_->complete_output(true));
    start();
    ASSERT_EQ(offered(), "many");
    std::string name;
    ASSERT_TRUE(client_->start_restart(name));
    for (const std::string file : {"many/a", "many/deep/er/b", "c"}) EXPECT_EQ(read(routed(file)), file);
    EXPECT_EQ(read(routed("b")), "many/deep/er/b") << "by the last component alone";
    EXPECT_EQ(read(routed(top_ + "/many/./a")), "many/a");
    EXPECT_THAT(failure_of([&] { return client_->route_file("none/such", name); }), HasSubstr("such"));
    EXPECT_EQ(name, top_ + "/none/such");
    EXPECT_TRUE(client_->complete_restart(true));
}

TEST_P(ScrBothWaysTest, ANameThatIsUsedAgainMeansTheNewDataset) {
    start();
    ASSERT_TRUE(save("one", "old"));
    ASSERT_TRUE(save("two", "2"));
    ASSERT_TRUE(save("one", "new"));
    EXPECT_EQ(offered(), "one");
    EXPECT_EQ(restarted(), "new");
    ASSERT_TRUE(client_->drop("one"));
    EXPECT_EQ(offered(), "two");
}

TEST_P(ScrBothWaysTest, ACheckpointWithoutANameIsCalledAfterItsId) {
    start();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(client_->start_checkpoint());
    write(routed("file"), "2");
    ASSERT_TRUE(client_->complete_checkpoint(true));
    EXPECT_EQ(offered(), "scr.dataset.2");
}

TEST_P(ScrBothWaysTest, TheProgramMayGoBackToACheckpoint) {
    start();
    for (const std::string name : {"one", "two", "three"}) ASSERT_TRUE(save(name, name));
    ASSERT_TRUE(client_->current("two"));
    EXPECT_EQ(offered(), "two");
    start();
    EXPECT_EQ(offered(), "two");
    EXPECT_EQ(restarted(), "two");
    ASSERT_TRUE(save("four", "four"));
    EXPECT_EQ(offered(), "four");
    EXPECT_THAT(failure_of([&] { return client_->current("five"); }), HasSubstr("there is no dataset five"));
    start({"SCR_CURRENT=one"});
    EXPECT_EQ(offered(), "one");
}

TEST_P(ScrBothWaysTest, IdsGrowFromRunToRunEvenWhereDatasetsAreDropped) {
    start();
    for (const std::string name : {"one", "two"}) ASSERT_TRUE(save(name, name));
    ASSERT_TRUE(client_->drop("two"));
    start();
    ASSERT_TRUE(client_->start_checkpoint());
    ASSERT_TRUE(client_->complete_checkpoint(true));
    EXPECT_EQ(offered(), "scr.dataset.3");
}

TEST_P(ScrBothWaysTest, ACallInTheWrongPlaceFailsAndSaysWhatToDo) {
    start();
    std::string text;
    std::optional<std::string> found;
    bool yes = true;
    const auto wrong = [&](const std::function<bool()>& call) { return failure_of(call); };
    const auto nothing = HasSubstr("nothing has begun");
    EXPECT_THAT(wrong([&] { return client_->complete_output(true); }), nothing);
    EXPECT_THAT(wrong([&] { return client_->complete_checkpoint(true); }), nothing);
    EXPECT_THAT(wrong([&] { return client_->complete_restart(true); }), nothing);
    EXPECT_THAT(wrong([&] { return client_->start_restart(text); }), HasSubstr("ask SCR_Have_restart first"));
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    const auto output = HasSubstr("call SCR_Complete_output first");
    EXPECT_THAT(wrong([&] { return client_->start_output("two", 0); }),
                AllOf(StartsWith("scr on tailrace"), output));
    EXPECT_THAT(wrong([&] { return client_->start_checkpoint(); }), output);
    EXPECT_THAT(wrong([&] { return client_->complete_checkpoint(true); }), output);
    EXPECT_THAT(wrong([&] { return client_->have_restart(found); }), output);
    EXPECT_THAT(wrong([&] { return client_->need_checkpoint(yes); }), output);
    EXPECT_FALSE(yes);
    EXPECT_THAT(wrong([&] { return client_->should_exit(yes); }), output);
    EXPECT_THAT(wrong([&] { return client_->current("one"); }), output);
    EXPECT_THAT(wrong([&] { return client_->drop("one"); }), output);
    EXPECT_THAT(wrong([&] { return client_->remove("one"); }), output);
    ASSERT_TRUE(client_->complete_output(true));
    ASSERT_EQ(offered(), "one");
    ASSERT_TRUE(client_->start_restart(text));
    EXPECT_THAT(wrong([&] { return client_->start_checkpoint(); }),
                HasSubstr("call SCR_Complete_restart first"));
    ASSERT_TRUE(client_->complete_restart(true));
}

TEST_P(ScrBothWaysTest, OutsideOfDatasetsAFileIsWhereItsNameSays) {
    start();
    EXPECT_EQ(routed("../a/./b"), "../a/./b");
}

TEST_P(ScrBothWaysTest, AFileOutsideOfThePrefixFailsTheDataset) {
    start();
    std::string path;
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    EXPECT_THAT(failure_of([&] { return client_->route_file("/tmp/x", path); }),
                HasSubstr("/tmp/x is not below the prefix " + top_));
    EXPECT_THAT(failure_of([&] { return client_->route_file("../x", path); }), HasSubstr("is not below"));
    EXPECT_THAT(failure_of([&] { return client_->route_file(std::string(SCR_MAX_FILENAME, 'x'), path); }),
                Not(HasSubstr("it did not fail")));
    EXPECT_THAT(failure_of([&] { return client_->complete_output(true); }),
                HasSubstr("a file could not be routed"));
    EXPECT_EQ(offered(), "none");
}

TEST_P(ScrBothWaysTest, AnOutputThatIsNotCompletedIsDroppedAtTheEnd) {
    start();
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    write(routed("one/data"), "1");
    EXPECT_THAT(failure_of([&] { return client_->finalize(); }), HasSubstr("was not completed"));
    start();
    EXPECT_EQ(offered(), "none");
}

TEST_P(ScrBothWaysTest, BadNamesAndFlagsAreRefused) {
    start();
    EXPECT_THAT(failure_of([&] { return client_->start_output("a\nb", 1); }), HasSubstr("of a dataset"));
    EXPECT_THAT(failure_of([&] { return client_->start_output("a", 4); }), HasSubstr("flags 4 are unknown"));
    EXPECT_TRUE(save("a", "1"));
}

TEST_P(ScrBothWaysTest, TheIntervalSaysWhenACheckpointIsNeeded) {
    start({"SCR_CHECKPOINT_INTERVAL=3"});
    std::vector<bool> answers;
    for (int i = 0; i < 6; ++i) {
        bool yes = false;
        ASSERT_TRUE(client_->need_checkpoint(yes));
        answers.push_back(yes);
    }
    EXPECT_THAT(answers, ElementsAre(false, false, true, false, false, true));
    bool yes = true;
    ASSERT_TRUE(client_->should_exit(yes));
    EXPECT_FALSE(yes);
}

TEST_P(ScrBothWaysTest, ADatasetIsDurableOnceItIsComplete) {
    start();
    for (uint64_t id = 1; id <= 5; ++id) {
        ASSERT_TRUE(save("c" + std::to_string(id), std::string(100000, 'x')));
        const auto reader = tailrace::Reader::open_directory(top_ + "/.scr/tailrace", "scr", id);
        EXPECT_EQ(reader.epoch(), id);
    }
}

TEST_P(ScrBothWaysTest, ACheckpointThatCannotBeMarkedIsNotOfferedAgainInThisRun) {
    start();
    for (const std::string name : {"one", "two"}) ASSERT_TRUE(save(name, name));
    std::filesystem::create_directory(top_ + "/.scr/tailrace-index.new");  // in the way of the index
    ASSERT_EQ(offered(), "two");
    std::string name;
    ASSERT_TRUE(client_->start_restart(name));
    EXPECT_THAT(failure_of([&] { return client_->complete_restart(false); }),
                HasSubstr("removing " + top_ +
                          "/.scr/tailrace-index.new: a directory stands where this file should be; move it "
                          "away; the index is as it was"));
    EXPECT_EQ(offered(), "one");
    EXPECT_THAT(failure_of([&] { return save("three", "3"); }), HasSubstr("a directory stands"));
    std::filesystem::remove(top_ + "/.scr/tailrace-index.new");
    EXPECT_TRUE(save("three", "3"));
    EXPECT_EQ(offered(), "three");
}

// ---- where files stay ---------------------------------------------------------------------------

TEST_F(ScrClientTest, BypassedFilesAreWhereTheProgramHasNamedThem) {
    start();
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    EXPECT_EQ(routed("one/sub/../data"), top_ + "/one/data");
    EXPECT_TRUE(std::filesystem::is_directory(top_ + "/one"));
    write(top_ + "/one/data", "1");
    ASSERT_TRUE(client_->complete_output(true));
    EXPECT_EQ(read("one/data"), "1");
}

TEST_F(ScrClientTest, APrefixThatIsALinkIsThePlaceItLeadsTo) {
    std::filesystem::create_directory(top_ + "/real");
    std::filesystem::create_directory_symlink(top_ + "/real", top_ + "/link");
    start({"SCR_PREFIX=" + std::string("link")});
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    EXPECT_EQ(routed(top_ + "/real/a"), top_ + "/link/a");
    EXPECT_EQ(routed(top_ + "/link/a"), top_ + "/link/a");
    write("real/a", "1");
    EXPECT_TRUE(client_->complete_output(true));
}

TEST_F(ScrClientTest, ABypassedCheckpointWhoseFilesHaveChangedIsPassedOver) {
    start();
    for (const std::string name : {"one", "two", "three"}) ASSERT_TRUE(save(name, name));
    std::filesystem::remove(top_ + "/three/data");
    write("two/data", "two and more");
    testing::internal::CaptureStderr();
    EXPECT_EQ(offered(), "one");
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("three/data (a file of the checkpoint): No such file"),
                      HasSubstr("two/data has 12 bytes, and had 3 when")));
    // Once the files are back, another run takes it.
    write("three/data", "three");
    start();
    EXPECT_EQ(offered(), "three");
}

TEST_F(ScrClientTest, AnOverwrittenNameIsNotOfferedBeforeItIsCompleteAgain) {
    start();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(save("two", "2"));
    ASSERT_TRUE(client_->start_output("two", SCR_FLAG_CHECKPOINT));
    write(routed("two/data"), "X");
    EXPECT_EQ(ids_in_index(), "1");
    failure_of([&] { return client_->complete_output(false); });
    EXPECT_EQ(offered(), "one");
}

TEST_F(ScrClientTest, DeletingABypassedDatasetRemovesItsFilesAndTheirDirectories) {
    start();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(save("sub/two", "2"));
    write("sub/other", "stays");
    ASSERT_TRUE(client_->remove("one"));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/one"));
    ASSERT_TRUE(client_->remove("sub/two"));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/sub/two"));
    EXPECT_EQ(read("sub/other"), "stays");
    EXPECT_EQ(offered(), "none");
    EXPECT_THAT(failure_of([&] { return client_->remove("one"); }), HasSubstr("there is no dataset one"));
}

TEST_F(ScrClientTest, DroppingABypassedDatasetKeepsItsFiles) {
    start();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(client_->drop("one"));
    EXPECT_EQ(offered(), "none");
    EXPECT_EQ(read("one/data"), "1");
    EXPECT_TRUE(client_->drop("one")) << "twice is no failure";
}

// ---- cached files -------------------------------------------------------------------------------

TEST_F(ScrClientTest, CachedFilesLieInTheTierAndGoAfterTheRestart) {
    start({"SCR_CACHE_BYPASS=0"});
    ASSERT_TRUE(client_->start_output("one", SCR_FLAG_CHECKPOINT));
    const auto path = routed("one/data");
    EXPECT_THAT(path, StartsWith(top_ + "/tier/tailrace-"));
    write(path, "1");
    ASSERT_TRUE(client_->complete_output(true));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/one"));
    ASSERT_EQ(offered(), "one");
    std::string name;
    ASSERT_TRUE(client_->start_restart(name));
    const auto back = routed("one/data");
    EXPECT_EQ(read(back), "1");
    ASSERT_TRUE(client_->complete_restart(true));
    EXPECT_FALSE(std::filesystem::exists(back));
}

TEST_F(ScrClientTest, ACachedCheckpointNeedsNothingOfTheNode) {
    start({"SCR_CACHE_BYPASS=0"});
    ASSERT_TRUE(save("one", "1"));
    client_.reset();
    std::filesystem::remove_all(top_ + "/tier");
    start();  // the dataset knows that it was cached
    EXPECT_EQ(offered(), "one");
    EXPECT_EQ(restarted(), "1");
}

TEST_F(ScrClientTest, ACachedCheckpointWithoutItsEpochIsPassedOver) {
    start({"SCR_CACHE_BYPASS=0"});
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(save("two", "2"));
    client_.reset();
    std::filesystem::remove_all(top_ + "/tier");
    for (const auto& entry : std::filesystem::directory_iterator(top_ + "/.scr/tailrace"))
        if (entry.path().filename().string().find("e000000002") != std::string::npos)
            std::filesystem::remove(entry.path());
    start({"SCR_CACHE_BYPASS=0"});
    EXPECT_EQ(offered(), "one");
    ASSERT_TRUE(save("three", "3")) << "its id is above that of the dataset that is gone";
    EXPECT_EQ(ids_in_index(), "1 2 3");
}

TEST_F(ScrClientTest, AsynchronousDatasetsAreCompleteAtTheEnd) {
    start({"SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1"});
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(save("c" + std::to_string(i), std::to_string(i)));
    EXPECT_EQ(offered(), "c5");
    ASSERT_TRUE(client_->finalize());
    client_.reset();
    std::filesystem::remove_all(top_ + "/tier");
    start();
    EXPECT_EQ(offered(), "c5");
    EXPECT_EQ(restarted(), "5");
}

TEST_F(ScrClientTest, AnOutputThatCannotBeginIsNoneAndTheNextOneMayBe) {
    start({"SCR_CACHE_BYPASS=0"});
    std::filesystem::rename(top_ + "/tier", top_ + "/away");
    write(top_ + "/tier", "in the way of the node-local tier");
    EXPECT_THAT(failure_of([&] { return client_->start_output("one", SCR_FLAG_CHECKPOINT); }),
                HasSubstr("SCR_Start_output: "));
    EXPECT_THAT(failure_of([&] { return client_->complete_output(true); }), HasSubstr("nothing has begun"));
    std::filesystem::remove(top_ + "/tier");
    std::filesystem::rename(top_ + "/away", top_ + "/tier");
    EXPECT_TRUE(save("two", "2"));
    EXPECT_EQ(offered(), "two");
    EXPECT_TRUE(client_->finalize());
}

TEST_F(ScrClientTest, AnAsynchronousDatasetThatIsLostIsToldLater) {
    start({"SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1"});
    ASSERT_TRUE(save("one", "1"));
    EXPECT_EQ(offered(), "one");
    std::filesystem::rename(top_ + "/.scr/tailrace", top_ + "/.scr/away");
    write(top_ + "/.scr/tailrace", "in the way of the shared directory");
    ASSERT_TRUE(save("two", "2"));
    EXPECT_THAT(failure_of([&] { return client_->finalize(); }),
                AllOf(HasSubstr("SCR_Finalize: dataset 2 (two) was not completed: "),
                      Not(HasSubstr("SCR_Finalize: rank"))));
}

TEST_F(ScrClientTest, DeletingACachedDatasetForgetsItsName) {
    start({"SCR_CACHE_BYPASS=0"});
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(client_->remove("one"));
    EXPECT_EQ(offered(), "none");
}

// ---- configurations -----------------------------------------------------------------------------

TEST_F(ScrClientTest, WithoutUseIsWithoutAClient) {
    Settings off;
    off.prefix = top_;
    off.enabled = false;
    EXPECT_THAT(failure_of([&] { return Client::open(single_process(), off) != nullptr; }),
                HasSubstr("SCR_ENABLE is 0"));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/.scr"));
    EXPECT_EQ(failure_of([&] { return Client::open(single_process(), std::nullopt) != nullptr; }), "");
}

TEST_F(ScrClientTest, APrefixThatCannotBeMadeIsNamed) {
    write("file", "");
    Settings settings;
    settings.prefix = top_ + "/file";
    EXPECT_THAT(failure_of([&] { return Client::open(single_process(), settings) != nullptr; }),
                AllOf(HasSubstr("SCR_Init"), HasSubstr("file/.scr")));
}

TEST(ScrListTest, AListOfFilesComesBackFromItsText) {
    const std::vector<Listed> files = {{0, "a"}, {123456789012, "a b/c"}};
    EXPECT_EQ(encode(files), "0 a\n123456789012 a b/c\n");
    EXPECT_EQ(decode(encode(files)), files);
    EXPECT_EQ(decode(""), std::vector<Listed>());
    for (const std::string text :
         {"\n", "a\n", "1\n", "1 \n", "1a b\n", "-1 b\n", "1 ../b\n", "1 /b\n", "1 a/../../b\n", "1 a//b\n",
          "1 a/\n", "1 .\n", "1 ..\n", "1 .scr/tailrace-index\n"})
        EXPECT_THROW(decode(text), tailrace::Error) << text;
}

}  // namespace
}  // namespace scr_on_tailrace
