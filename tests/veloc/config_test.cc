// VELOC's configuration: how it is read, and what becomes of each key.
#include "config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace veloc_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

Configuration settings(const std::string& text, const Environment& environment = {}) {
    return settings_of(text, "veloc.cfg", environment);
}

// The sentence with which a configuration is refused.
std::string refusal(const std::string& text, const Environment& environment = {}) {
    try {
        settings(text, environment);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "it was not refused";
}

const std::string least = "scratch = /tmp/s\nmode = async\npersistent = /tmp/p\n";

TEST(VelocConfigTest, KeysAreReadWhateverTheirCaseAndTheBlanksAroundThem) {
    const auto read = settings(
        "\xEF\xBB\xBF  Scratch=/tmp/s x \t\r\nMODE :sync\r\n\n   ;no = key\n#nor = this\n"
        "persistent = /tmp/a;b ; a comment\n");
    EXPECT_EQ(read.scratch, "/tmp/s x");
    EXPECT_EQ(read.persistent, "/tmp/a;b");
    EXPECT_TRUE(read.sync);
    EXPECT_THAT(read.notes, IsEmpty());
    EXPECT_THAT(read.session, IsEmpty());
}

TEST(VelocConfigTest, ALineMayBeOfAnyLength) {
    const std::string path(5000, 'x');
    EXPECT_EQ(settings("mode = async\nscratch = /" + path + "\nmax_versions = 3").scratch, "/" + path);
}

TEST(VelocConfigTest, TheEnvironmentWinsOverTheFileAndMayTakeItsPlace) {
    const Environment environment = {{"VELOC_SCRATCH", "/tmp/e"}, {"VELOC_MODE", "sync"},
                                     {"VELOC_MAX_VERSIONS", "4"}, {"VELOC_TAILRACE_FILES", "2"},
                                     {"VELOC_BIN", "/opt/veloc"}, {"VELOC_DIR", "/opt/veloc"}};
    for (const auto& text : {least, std::string()}) {
        const auto read = settings_of(text, text.empty() ? "" : "veloc.cfg", environment);
        EXPECT_EQ(read.scratch, "/tmp/e");
        EXPECT_TRUE(read.sync);
        EXPECT_THAT(read.session, AllOf(Contains(Pair("keep_shared", "4")), Contains(Pair("files", "2"))));
        EXPECT_THAT(read.notes, IsEmpty()) << "variables of the installation are no keys";
    }
}

TEST(VelocConfigTest, NumbersOfVersionsBecomeWhatIsKept) {
    EXPECT_THAT(settings(least + "max_versions = 2\nscratch_versions = 1").session,
                ElementsAre(Pair("keep_shared", "2"), Pair("keep_local", "1")));
    EXPECT_THAT(settings(least + "max_versions = 0\nscratch_versions = 0").session,
                ElementsAre(Pair("keep_shared", "0"), Pair("keep_local", "1048576")));
    EXPECT_THAT(settings(least + "max_parallelism = 3").session, ElementsAre(Pair("writers", "3")));
}

TEST(VelocConfigTest, WithoutAPersistentDirectoryVersionsStayOnTheNode) {
    const auto read = settings("scratch = /tmp/s\nmode = async\nscratch_versions = 3");
    EXPECT_EQ(read.persistent, "");
    EXPECT_THAT(read.session,
                AllOf(Contains(Pair("flush_at_close", "no")), Contains(Pair("shared_every", "4294967295"))));
    EXPECT_EQ(read.session.back(), (std::pair<std::string, std::string>("keep_local", "3")))
        << "what is asked for wins";
    EXPECT_THAT(settings(least + "persistent_interval = -1").session, Contains(Pair("flush_at_close", "no")));
    EXPECT_THAT(settings(least + "persistent_interval = 0").session, IsEmpty());
}

TEST(VelocConfigTest, OwnKeysBecomeSettings) {
    const auto read = settings(least +
                               "max_versions = 2\nTAILRACE_Files = 8\ntailrace_honour_success = false\n"
                               "tailrace_keep_shared = 5\n");
    EXPECT_THAT(read.session, Contains(Pair("files", "8")));
    EXPECT_EQ(read.session.back().first, "keep_shared") << "own keys come after VELOC's, and win";
    EXPECT_FALSE(read.honour_success);
    EXPECT_TRUE(settings(least).honour_success);
    for (const std::string yes : {"yes", "true", "On", "1"})
        EXPECT_TRUE(settings(least + "tailrace_honour_success = " + yes).honour_success) << yes;
    for (const std::string no : {"no", "False", "off", "0"})
        EXPECT_FALSE(settings(least + "tailrace_honour_success = " + no).honour_success) << no;
    EXPECT_EQ(settings(least).import_from, "/tmp/p") << "where VELOC would look, too";
    EXPECT_EQ(settings(least + "tailrace_import = /old").import_from, "/old");
    EXPECT_EQ(settings(least + "tailrace_import = none").import_from, "");
    EXPECT_THAT(refusal(least + "tailrace_shared_dir = /x"), HasSubstr("persistent and scratch"));
}

TEST(VelocConfigTest, WhatHasNoEffectIsNamedWithWhatHas) {
    const auto notes =
        settings(least +
                 "aggregated = true\npersistent_interval = 60\nmax_version = 3\nec_interval = 0\n"
                 "[section]\nmode = nonsense\n")
            .notes;
    EXPECT_THAT(notes, Contains("veloc.cfg, line 4: aggregated has no effect; a version is always few files: "
                                "tailrace_files says how many"));
    EXPECT_THAT(
        notes, Contains(AllOf(HasSubstr("line 5: persistent_interval"), HasSubstr("tailrace_shared_every"))));
    EXPECT_THAT(notes, Contains(AllOf(HasSubstr("line 6: max_version has"), HasSubstr("neither"))));
    EXPECT_THAT(notes, Contains(HasSubstr("tailrace_redundancy")));
    EXPECT_THAT(notes, Contains(AllOf(HasSubstr("line 8"), HasSubstr("[section]"))));
    EXPECT_EQ(notes.size(), 5u);
}

TEST(VelocConfigTest, WhatCannotBeUsedIsRefusedWithItsLine) {
    EXPECT_THAT(refusal("scratch = /tmp/s"), AllOf(HasSubstr("mode is missing"), HasSubstr("VELOC_MODE")));
    EXPECT_THAT(refusal("mode = sync"), AllOf(HasSubstr("scratch is missing"), HasSubstr("VELOC_SCRATCH")));
    EXPECT_THAT(refusal("mode = sync\nscratch ="), HasSubstr("scratch is missing"));
    EXPECT_THAT(refusal("scratch = /tmp/s\nmode = fast"), HasSubstr("veloc.cfg, line 2: mode = fast"));
    EXPECT_THAT(refusal(least, {{"VELOC_MODE", "fast"}}), HasSubstr("environment variable VELOC_MODE"));
    EXPECT_THAT(refusal(least + "a sentence"), HasSubstr("line 4: \"a sentence\""));
    EXPECT_THAT(refusal(least + "= 5"), HasSubstr("line 4"));
    EXPECT_THAT(refusal(least + "mode = sync"), AllOf(HasSubstr("line 4"), HasSubstr("line 2 already")));
    for (const std::string bad :
         {"max_versions = -1", "max_versions = two", "max_versions =", "scratch_versions = 2x",
          "max_versions = 99999999999999999999", "max_parallelism = 0", "persistent_interval = x",
          "tailrace_honour_success = perhaps", "tailrace_honour_success =", "max_parallelism = 1000000"})
        EXPECT_THAT(refusal(least + bad), HasSubstr("veloc.cfg, line 4: ")) << bad;
}

TEST(VelocConfigTest, SettingsThatTailraceDoesNotTakeAreRefusedWithTheirLine) {
    EXPECT_THAT(refusal(least + "tailrace_file = 8"),
                AllOf(HasSubstr("veloc.cfg, line 4: tailrace_file = 8: "), HasSubstr("\"files\"")));
    EXPECT_THAT(refusal(least + "tailrace_files = many"), HasSubstr("line 4: tailrace_files = many: "));
    EXPECT_THAT(refusal(least, {{"VELOC_TAILRACE_FILES", "0x"}}), HasSubstr("variable VELOC_TAILRACE_FILES"));
}

TEST(VelocConfigTest, AFileThatCannotBeReadIsRefusedAndAnEmptyNameIsNone) {
    EXPECT_EQ(read_file(""), "");
    EXPECT_THROW(read_file("/nowhere/veloc.cfg"), ConfigError);
    EXPECT_THROW(read_file("/"), ConfigError);
}

// The table of docs/veloc.md is this code's.
TEST(VelocConfigTest, ThePageHasARowForEachKey) {
    std::ifstream file(TAILRACE_VELOC_PAGE);
    std::stringstream page;
    page << file.rdbuf();
    for (const auto& key : known_keys()) {
        const auto row = "| `" + std::string(key.name) + "` | " +
                         std::string(key.has_effect ? "" : "no effect: ") + std::string(key.becomes) + " |\n";
        EXPECT_THAT(page.str(), HasSubstr(row));
    }
}

}  // namespace
}  // namespace veloc_on_tailrace
