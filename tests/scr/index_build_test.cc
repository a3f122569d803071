// Datasets that come back into the index: what their epochs say of them, and which are refused.
#include "index_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "client_fixture.h"

namespace scr_on_tailrace {
namespace {

using ::testing::HasSubstr;

class ScrIndexBuildTest : public ScrClientTest, public ::testing::WithParamInterface<bool> {
  protected:
    void begin() { start({GetParam() ? "SCR_CACHE_BYPASS=1" : "SCR_CACHE_BYPASS=0"}); }
    KnownDatasets known() const { return {prefix_, prefix_.path() + "/.scr/tailrace"}; }
    std::string refusal(const std::function<Dataset(const KnownDatasets&)>& ask) const {
        try {
            ask(known());
        } catch (const tailrace::Error& error) {
            return error.what();
        }
        return "it was not refused";
    }

    const Prefix prefix_ = Prefix(top_);
};
INSTANTIATE_TEST_SUITE_P(Ways, ScrIndexBuildTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Bypass" : "Cached"; });

TEST_P(ScrIndexBuildTest, ADatasetThatWasDroppedComesBack) {
    begin();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(save("a result", "2", SCR_FLAG_OUTPUT));
    ASSERT_TRUE(client_->drop("one"));
    ASSERT_TRUE(client_->drop("a result"));
    ASSERT_EQ(ids_in_index(), "");
    const IndexFile file(top_ + "/.scr/tailrace-index");
    file.change([&](Index& index) { index.put(known().by_name("a result")); });
    file.change([&](Index& index) { index.put(known().by_id(1)); });
    EXPECT_EQ(file.read().encode(), GetParam() ? "tailrace-scr-index 1\ndataset 1 1 bypass good one\n"
                                                 "dataset 2 2 bypass good a result\n"
                                               : "tailrace-scr-index 1\ndataset 1 1 cached good one\n"
                                                 "dataset 2 2 cached good a result\n");
    begin();
    std::optional<std::string> found;
    ASSERT_TRUE(client_->have_restart(found));
    EXPECT_EQ(found, "one");
}

TEST_P(ScrIndexBuildTest, OneThatTheProgramCouldNotReadIsGoodAgain) {
    begin();
    ASSERT_TRUE(save("one", "1"));
    const IndexFile file(top_ + "/.scr/tailrace-index");
    file.change([](Index& index) { index.mark_failed(1); });
    file.change([&](Index& index) { index.put(known().by_id(1)); });
    EXPECT_FALSE(file.read().datasets().front().failed);
}

TEST_P(ScrIndexBuildTest, ADatasetThatIsNotThereIsRefused) {
    begin();
    ASSERT_TRUE(save("one", "1"));
    EXPECT_THAT(refusal([](const auto& all) { return all.by_id(7); }), HasSubstr("dataset 7 is not in"));
    EXPECT_THAT(refusal([](const auto& all) { return all.by_name("two"); }), HasSubstr("has the name two"));
    for (const auto& entry : std::filesystem::directory_iterator(top_ + "/.scr/tailrace"))
        if (entry.path().extension() == ".tailrace") std::filesystem::resize_file(entry.path(), 5000);
    EXPECT_NE(refusal([](const auto& all) { return all.by_id(1); }), "it was not refused");
    EXPECT_THAT(refusal([](const auto& all) { return all.by_name("one"); }),
                HasSubstr("no complete dataset"));
}

TEST_P(ScrIndexBuildTest, OfTwoWithOneNameTheProgramsUserChooses) {
    begin();
    ASSERT_TRUE(save("one", "1"));
    ASSERT_TRUE(save("one", "2"));
    EXPECT_THAT(refusal([](const auto& all) { return all.by_name("one"); }),
                HasSubstr("the datasets 1, 2 have the name one; choose one with --build ID"));
    EXPECT_EQ(known().by_id(2).id, 2u);
    if (GetParam())
        EXPECT_THAT(refusal([](const auto& all) { return all.by_id(1); }),
                    HasSubstr("dataset 2 has the name one, too, and has written over the files"));
    else
        EXPECT_EQ(known().by_id(1).id, 1u);
}

class ScrFilesTest : public ScrIndexBuildTest {};
INSTANTIATE_TEST_SUITE_P(Ways, ScrFilesTest, ::testing::Values(true), [](const auto&) { return "Bypass"; });

TEST_P(ScrFilesTest, FilesThatHaveChangedAreRefused) {
    begin();
    ASSERT_TRUE(save("one", "1"));
    const auto path = top_ + "/one/data";
    const auto when = std::filesystem::last_write_time(path);
    EXPECT_EQ(known().by_id(1).name, "one");
    // A later run may have died while it wrote over them.
    std::filesystem::last_write_time(path, when + std::chrono::hours(1));
    EXPECT_THAT(refusal([](const auto& all) { return all.by_id(1); }),
                HasSubstr("data was written after dataset 1"));
    write(path, "more");
    std::filesystem::last_write_time(path, when);
    EXPECT_THAT(refusal([](const auto& all) { return all.by_id(1); }), HasSubstr("has 4 bytes, and had 1"));
    std::filesystem::remove(path);
    EXPECT_THAT(refusal([](const auto& all) { return all.by_id(1); }), HasSubstr("lacks its file"));
}

TEST(ScrIndexIdTest, AnIdIsANumberOrEndsADirectorysName) {
    EXPECT_EQ(id_of("5"), 5u);
    EXPECT_EQ(id_of("scr.dataset.12"), 12u);
    EXPECT_EQ(id_of("/p/.scr/scr.dataset.12"), 12u);
    for (const char* bad : {"", "0", "-1", "5x", "scr.dataset.", "scr.dataset.0", "99999999999999999999"})
        EXPECT_THROW(id_of(bad), tailrace::Error) << bad;
}

}  // namespace
}  // namespace scr_on_tailrace
