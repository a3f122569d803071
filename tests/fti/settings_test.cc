// What FTI's keys become.
#include "settings.h"

#include <gmock/gmock.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <tailrace.hpp>

namespace fti_on_tailrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

const std::string basic = "[Basic]\nckpt_dir = /tier\nglbl_dir = /shared\n";

Settings made(const std::string& more) {
    return settings_of(basic + more, "config.fti", "/here");
}
std::string refusal(const std::string& text) {
    try {
        settings_of(text, "config.fti", "/here");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "it was not refused";
}

TEST(FtiSettingsTest, BothDirectoriesAreNeeded) {
    EXPECT_EQ(refusal("[Basic]\nglbl_dir = a\n"),
              "config.fti: ckpt_dir is missing; write ckpt_dir = DIRECTORY into [Basic]");
    EXPECT_THAT(refusal("[Basic]\nckpt_dir = a\n"), HasSubstr("glbl_dir is missing"));
    EXPECT_THAT(refusal(""), HasSubstr("ckpt_dir is missing"));
}

TEST(FtiSettingsTest, RelativeDirectoriesLieBelowTheWorkingDirectory) {
    const auto settings = settings_of("[Basic]\nckpt_dir = ./a/\nglbl_dir = ../b\n", "config.fti", "/here");
    EXPECT_EQ(settings.ckpt_dir, "/here/a");
    EXPECT_EQ(settings.glbl_dir, "/b");
}

TEST(FtiSettingsTest, KeysOfCheckpointsAreTaken) {
    const auto settings = made(
        "ckpt_l1 = 3\nckpt_l2 = 0\nckpt_l3 = -1\nckpt_l4 = 11\ninline_l4 = 0\nkeep_last_ckpt = 1\n"
        "max_sync_intv = 4\nmax_var_id = 7\nverbosity = 3\n[Advanced]\nfast_forward = 10\n");
    EXPECT_THAT(settings.minutes, ElementsAre(0, 3, 0, 0, 11));
    EXPECT_THAT(settings.waits, ElementsAre(false, false, true, true, false));
    EXPECT_TRUE(settings.keeps_last);
    EXPECT_EQ(settings.most_iterations, 4);
    EXPECT_EQ(settings.greatest_id, 7);
    EXPECT_TRUE(settings.silent);
    EXPECT_EQ(settings.fast_forward, 10);
    EXPECT_THAT(settings.notes, IsEmpty());
}

TEST(FtiSettingsTest, ARestartNeedsItsRun) {
    EXPECT_THAT(refusal(basic + "[Restart]\nfailure = 1\n"),
                HasSubstr("exec_id, the run to restart from, is missing"));
    const auto settings = made("[Restart]\nfailure = 2\nexec_id = 2026-01-02_03-04-05\n");
    EXPECT_EQ(settings.failure, 2);
    EXPECT_EQ(settings.exec_id, "2026-01-02_03-04-05");
    for (const std::string id : {"..", "a/b", "a b"})
        EXPECT_THAT(refusal(basic + "[Restart]\nfailure = 1\nexec_id = " + id + "\n"),
                    HasSubstr("it may have"));
}

TEST(FtiSettingsTest, BadValuesAreRefusedWithTheirPlace) {
    EXPECT_EQ(refusal(basic + "ckpt_l1 = soon\n"),
              "config.fti, line 4: ckpt_l1 = soon: this is no whole number");
    EXPECT_THAT(refusal(basic + "group_size = 33\n"), HasSubstr("write a number from 1 to 32"));
    EXPECT_THAT(refusal(basic + "keep_last_ckpt = 2\n"), HasSubstr("write 1 or 0"));
    EXPECT_THAT(refusal(basic + "[Restart]\nfailure = 4\n"), HasSubstr("from 0 to 3"));
    EXPECT_THAT(refusal(basic + "[Restart]\nfailure = 3\n"), HasSubstr("no restarts from HDF5 files"));
    EXPECT_THAT(refusal(basic + "[tailrace]\nfiles = -1\n"), HasSubstr("config.fti, line 5: files = -1"));
    EXPECT_THAT(refusal(basic + "[tailrace]\nshared_dir = /x\n"),
                HasSubstr("glbl_dir and ckpt_dir say where"));
}

TEST(FtiSettingsTest, KeysWithoutEffectAreNamedWhereTheyAskForSomething) {
    EXPECT_THAT(
        made("head = 0\nenable_dcp = 0\ndcp_l4 = 0\nckpt_io = 1\nmeta_dir = /m\n[Injection]\nnumber = 0\n"
             "rank = 0\n[Advanced]\nblock_size = 1024\n")
            .notes,
        IsEmpty());
    EXPECT_THAT(
        made("head = 1\n").notes,
        ElementsAre("config.fti, line 4: head has no effect; tailrace's threads do the work, and no rank "
                    "is a server"));
    EXPECT_THAT(made("ckpt_io = 5\n").notes, ElementsAre(HasSubstr("ckpt_io has no effect")));
    EXPECT_THAT(made("glbl_stash_dir = /x\n").notes, ElementsAre(HasSubstr("FTI_SendFile")));
    EXPECT_THAT(
        made("surprise = 1\n").notes,
        ElementsAre(
            "config.fti, line 4: surprise has no effect; neither FTI nor tailrace knows it in [basic]"));
    EXPECT_THAT(made("[Other]\nhead = 1\n").notes, ElementsAre(HasSubstr("in [other]")));
}

TEST(FtiSettingsTest, EachLevelHasASessionOfItsOwn) {
    const auto settings =
        made("group_size = 4\nnode_size = 2\n[Advanced]\nlocal_test = 1\n[tailrace]\nfiles = 3\n");
    for (int level = 1; level <= levels; ++level) {
        const auto session = session_of(settings, level);
        EXPECT_THAT(session, Contains(Pair("ranks_per_node", "2")));
        EXPECT_EQ(session.back(), (std::pair<std::string, std::string>("files", "3")));
        tailrace::Options options;
        for (const auto& [key, value] : session) options.set(key, value);
    }
    EXPECT_THAT(session_of(settings, 1), Not(Contains(Pair("redundancy", testing::_))));
    EXPECT_THAT(session_of(settings, 2), Contains(Pair("redundancy", "partner")));
    EXPECT_THAT(session_of(settings, 3), Contains(Pair("redundancy", "rs:2")));
    EXPECT_THAT(session_of(settings, 3), Contains(Pair("redundancy_set", "4")));
    EXPECT_THAT(session_of(settings, 3), Contains(Pair("flush_at_close", "no")));
    EXPECT_THAT(session_of(settings, 4), Contains(Pair("keep_shared", "1")));
    EXPECT_THAT(session_of(settings, 4), Not(Contains(Pair("shared_every", testing::_))));
    EXPECT_THAT(session_of(made("keep_last_ckpt = 1\n"), 1), Contains(Pair("flush_at_close", "yes")));
    EXPECT_THAT(session_of(made("keep_l4_ckpt = 1\n"), 4), Contains(Pair("keep_shared", "0")));
    EXPECT_THAT(session_of(made("group_size = 1\n"), 2), Not(Contains(Pair("redundancy", testing::_))));
}

TEST(FtiSettingsTest, AnEnvironmentVariableComesBeforeTheFile) {
    ::setenv("TAILRACE_FILES", "5", 1);
    const auto settings = made("[tailrace]\nfiles = 3\nwriters = 2\n");
    ::unsetenv("TAILRACE_FILES");
    EXPECT_THAT(settings.session, ElementsAre(Pair("writers", "2")));
}

TEST(FtiSettingsTest, ThePageHasEveryKey) {
    std::ifstream file(TAILRACE_FTI_PAGE);
    const std::string page(std::istreambuf_iterator<char>(file), {});
    for (const auto& key : known_keys()) {
        auto section = std::string(key.section);
        section[0] = static_cast<char>(std::toupper(section[0]));
        const auto row = "| `[" + section + "]` | `" + std::string(key.name) + "` | " +
                         (key.has_effect ? "" : "no effect: ") + std::string(key.becomes) + " |\n";
        EXPECT_THAT(page, HasSubstr(row));
    }
}

}  // namespace
}  // namespace fti_on_tailrace
