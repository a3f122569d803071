// The index of datasets: what it holds, which checkpoints it offers, and how its file changes.
#include "index.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <scr.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <tailrace_types.hpp>
#include <thread>

#include "environment.h"

namespace scr_on_tailrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ScrIndexTest : public InOwnDirectory {
  protected:
    static Dataset checkpoint(uint64_t id, const std::string& name) {
        return {id, SCR_FLAG_CHECKPOINT, false, false, name};
    }
    static std::vector<uint64_t> ids(const std::vector<Dataset>& datasets) {
        std::vector<uint64_t> all;
        for (const auto& dataset : datasets) all.push_back(dataset.id);
        return all;
    }
    static std::string refusal(const std::function<void()>& work) {
        try {
            work();
        } catch (const tailrace::Error& error) {
            return error.what();
        }
        return "it was not refused";
    }
};

TEST_F(ScrIndexTest, AnIndexComesBackFromItsText) {
    Index index;
    index.add(checkpoint(1, "a name with blanks"));
    index.add({5, SCR_FLAG_OUTPUT, true, false, "out"});
    index.add(checkpoint(6, "x"));
    index.mark_failed(6);
    index.set_current("a name with blanks");
    const auto text = index.encode();
    EXPECT_EQ(text,
              "tailrace-scr-index 1\ncurrent a name with blanks\n"
              "dataset 1 1 cached good a name with blanks\ndataset 5 2 bypass good out\n"
              "dataset 6 1 cached failed x\n");
    const auto again = Index::decode(text);
    EXPECT_EQ(again.datasets(), index.datasets());
    EXPECT_EQ(again.encode(), text);
}

TEST_F(ScrIndexTest, WhatIsNoIndexIsRefused) {
    const std::string first = "tailrace-scr-index 1\n";
    for (const auto& text :
         {std::string(), std::string("tailrace-scr-index 2\n"), first + "dataset 1 1 cached good\n",
          first + "dataset x 1 cached good n\n", first + "dataset 1 1 both good n\n",
          first + "dataset 1 1 cached fine n\n", first + "dataset 0 1 cached good n\n",
          first + "dataset 9223372036854775808 1 cached good n\n",
          first + "dataset 1 1 cached good \x1b[2J\n", first + "dataset 1 1x cached good n\n",
          first + "other\n", first + "\n"})
        EXPECT_THAT(refusal([&] { Index::decode(text); }), HasSubstr("is no line of an index")) << text;
}

TEST_F(ScrIndexTest, RestartsAreTheCompleteCheckpointsThatHaveNotFailedNewestFirst) {
    Index index;
    for (uint64_t id = 1; id <= 5; ++id) index.add(checkpoint(id, "c" + std::to_string(id)));
    index.add({6, SCR_FLAG_OUTPUT, false, false, "out"});
    EXPECT_THAT(ids(index.restarts({6, 5, 4, 2, 1})), ElementsAre(5, 4, 2, 1));
    index.mark_failed(4);
    EXPECT_THAT(ids(index.restarts({6, 5, 4, 2, 1})), ElementsAre(5, 2, 1));
    EXPECT_THAT(ids(index.restarts({})), IsEmpty());
}

TEST_F(ScrIndexTest, TheCurrentCheckpointIsTriedFirstUntilThereIsANewOne) {
    Index index;
    for (uint64_t id = 1; id <= 4; ++id) index.add(checkpoint(id, "c" + std::to_string(id)));
    index.set_current("c3");
    EXPECT_THAT(ids(index.restarts({4, 3, 2, 1})), ElementsAre(3, 2, 1));
    index.add({5, SCR_FLAG_OUTPUT, false, false, "out"});
    EXPECT_EQ(index.current(), "c3");
    index.add(checkpoint(6, "c6"));
    EXPECT_EQ(index.current(), "");
    EXPECT_THAT(ids(index.restarts({6, 4})), ElementsAre(6, 4));
    index.set_current("c2");
    index.drop("c2");
    EXPECT_EQ(index.current(), "");
}

TEST_F(ScrIndexTest, ANameMayBelongToSeveralDatasets) {
    Index index;
    index.add(checkpoint(1, "c"));
    index.add(checkpoint(2, "d"));
    index.add(checkpoint(3, "c"));
    EXPECT_THAT(ids(index.named("c")), ElementsAre(3, 1));
    index.drop(3);
    EXPECT_THAT(ids(index.named("c")), ElementsAre(1));
    index.drop("c");
    EXPECT_THAT(ids(index.datasets()), ElementsAre(2));
}

TEST_F(ScrIndexTest, ADatasetThatIsNotAboveTheOthersIsRefused) {
    Index index;
    index.add(checkpoint(4, "c"));
    EXPECT_THAT(refusal([&] { index.add(checkpoint(4, "d")); }), HasSubstr("another program has added one"));
}

TEST_F(ScrIndexTest, NamesHaveNoControlCharactersAndFitTheProgramsRoom) {
    for (const auto& name : {std::string(), std::string("a\nb"), std::string(SCR_MAX_FILENAME, 'x')})
        EXPECT_THAT(refusal([&] { check_name(name); }), HasSubstr("of a dataset should have"));
    check_name(std::string(SCR_MAX_FILENAME - 1, 'x'));
    check_name("time step 1/\xC3\xA4");
}

TEST_F(ScrIndexTest, TheFileIsReplacedAsAWhole) {
    const IndexFile file(top_ + "/index");
    EXPECT_THAT(file.read().datasets(), IsEmpty());
    file.change([](Index& index) { index.add(checkpoint(1, "a")); });
    std::ofstream(top_ + "/index.new") << "left by a program that was killed";
    file.change([](Index& index) { index.add(checkpoint(2, "b")); });
    EXPECT_THAT(ids(file.read().datasets()), ElementsAre(1, 2));
    EXPECT_FALSE(std::filesystem::exists(top_ + "/index.new"));
    EXPECT_THAT(refusal([&] { file.change([](Index& index) { index.add(checkpoint(2, "c")); }); }),
                HasSubstr("is not above"));
    EXPECT_THAT(ids(file.read().datasets()), ElementsAre(1, 2));
}

TEST_F(ScrIndexTest, ChangesOfSeveralProgramsAreAllThere) {
    const IndexFile file(top_ + "/index");
    const auto add_many = [&] {
        for (int i = 0; i < 20; ++i)
            IndexFile(top_ + "/index").change([](Index& index) {
                index.add(checkpoint(index.greatest_id() + 1, "n"));
            });
    };
    std::thread other(add_many);
    add_many();
    other.join();
    EXPECT_EQ(file.read().datasets().size(), 40u);
}

TEST_F(ScrIndexTest, ADamagedFileIsNamed) {
    write(top_ + "/index", "something else\n");
    EXPECT_THAT(refusal([&] { IndexFile(top_ + "/index").read(); }),
                HasSubstr(top_ + "/index: \"something else\""));
}

// Whoever may read the file can lock it.
TEST_F(ScrIndexTest, ALockThatIsNotReleasedIsNotWaitedForForEver) {
    const IndexFile file("index", std::chrono::milliseconds(50));
    file.change([](Index& index) { index.add(checkpoint(1, "a")); });
    const int other = ::open("index.lock", O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::flock(other, LOCK_EX), 0);
    EXPECT_THAT(refusal([&] { file.change([](Index& index) { index.drop("a"); }); }),
                HasSubstr("locking index.lock: another process has held the lock for 50 ms; end it "
                          "(`fuser -v index.lock` names it); the index is as it was"));
    ::close(other);
    file.change([](Index& index) { index.drop("a"); });
}

TEST_F(ScrIndexTest, NoLockIsMadeThroughALink) {
    std::filesystem::create_symlink("elsewhere", "index.lock");
    EXPECT_THAT(refusal([] { IndexFile("index").change([](Index& index) { index.drop("a"); }); }),
                HasSubstr("index.lock"));
    EXPECT_FALSE(std::filesystem::exists("elsewhere"));
}

}  // namespace
}  // namespace scr_on_tailrace
