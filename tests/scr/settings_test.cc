// What becomes of SCR's keys.
#include "settings.h"

#include <gmock/gmock.h>

#include <sstream>

#include "environment.h"

namespace scr_on_tailrace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class ScrSettingsTest : public InOwnDirectory {
  protected:
    Settings settings(const std::vector<std::string>& lines = {}) {
        Parameters parameters;
        for (const auto& line : lines) parameters.apply(line);
        return settings_of(parameters);
    }
    std::string refusal(const std::string& line) {
        try {
            settings({line});
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "it was not refused";
    }
};

TEST_F(ScrSettingsTest, WithoutKeysThePrefixIsTheWorkingDirectoryAndFilesStay) {
    const auto made = settings();
    EXPECT_EQ(made.prefix, top_);
    EXPECT_TRUE(made.enabled);
    EXPECT_TRUE(made.bypass);
    EXPECT_FALSE(made.flush_async);
    EXPECT_EQ(made.cache_base, "");
    EXPECT_THAT(made.session, IsEmpty());
    EXPECT_THAT(made.notes, IsEmpty());
}

TEST_F(ScrSettingsTest, KeysBecomeSettings) {
    const auto made =
        settings({"SCR_PREFIX=a/../b/", "SCR_CACHE_BYPASS=0", "SCR_FLUSH_ASYNC=1", "SCR_CACHE_BASE=/dev/shm",
                  "SCR_CACHE_SIZE=3", "SCR_COPY_TYPE=RS", "SCR_SET_FAILURES=3", "SCR_SET_SIZE=12",
                  "SCR_CHECKPOINT_INTERVAL=5", "SCR_CHECKPOINT_SECONDS=600", "SCR_HALT_SECONDS=120",
                  "SCR_CURRENT=ckpt.7", "SCR_ENABLE=0"});
    EXPECT_EQ(made.prefix, top_ + "/b");
    EXPECT_FALSE(made.bypass);
    EXPECT_TRUE(made.flush_async);
    EXPECT_EQ(made.cache_base, "/dev/shm");
    EXPECT_EQ(made.first_current, "ckpt.7");
    EXPECT_FALSE(made.enabled);
    EXPECT_THAT(made.session, ElementsAre(Pair("keep_local", "3"), Pair("redundancy", "rs:3"),
                                          Pair("redundancy_set", "12"), Pair("save_every", "5"),
                                          Pair("save_interval", "600s"), Pair("stop_before", "120s")));
    EXPECT_THAT(made.notes, IsEmpty());
}

TEST_F(ScrSettingsTest, EachCopyTypeIsARedundancy) {
    const std::pair<std::string, std::string> types[] = {
        {"SINGLE", "none"}, {"FILE", "none"}, {"PARTNER", "partner"}, {"xor", "xor"}, {"RS", "rs:2"}};
    for (const auto& [type, redundancy] : types)
        EXPECT_THAT(settings({"SCR_COPY_TYPE=" + type}).session, ElementsAre(Pair("redundancy", redundancy)));
}

TEST_F(ScrSettingsTest, ZeroLeavesASettingAsItIs) {
    EXPECT_THAT(settings({"SCR_CACHE_SIZE=0", "SCR_CHECKPOINT_INTERVAL=0", "SCR_HALT_SECONDS=0"}).session,
                IsEmpty());
}

TEST_F(ScrSettingsTest, ABadValueIsRefusedWithItsPlace) {
    EXPECT_THAT(refusal("SCR_CACHE_SIZE=two"),
                HasSubstr("SCR_Config: SCR_CACHE_SIZE = two: this is no whole number"));
    EXPECT_THAT(refusal("SCR_CACHE_BYPASS=maybe"), HasSubstr("write 1 or 0"));
    EXPECT_THAT(refusal("SCR_COPY_TYPE=TRIPLE"), HasSubstr("write SINGLE, PARTNER, XOR or RS"));
    EXPECT_THAT(refusal("SCR_CHECKPOINT_INTERVAL=-1"), HasSubstr("the least is 0"));
    EXPECT_THAT(refusal("SCR_SET_SIZE=1"), HasSubstr("redundancy_set"));
    EXPECT_THAT(refusal("TAILRACE_FILES=none"), HasSubstr("TAILRACE_FILES"));
    EXPECT_THAT(refusal("TAILRACE_SHARED_DIR=/tmp"), HasSubstr("SCR_PREFIX and SCR_CACHE_BASE say where"));
    EXPECT_THAT(refusal("TAILRACE_PURPOSE=outputs"), HasSubstr("the flags of SCR_Start_output say it"));
}

TEST_F(ScrSettingsTest, KeysOfTailraceAreSettingsAndItsEnvironmentWins) {
    EXPECT_THAT(settings({"TAILRACE_FILES=4"}).session, ElementsAre(Pair("files", "4")));
    set("TAILRACE_FILES", "2");
    EXPECT_THAT(settings({"TAILRACE_FILES=4"}).session, IsEmpty());
}

TEST_F(ScrSettingsTest, AKeyWithoutEffectIsNamedWithWhatDoesItsWork) {
    const auto made =
        settings({"SCR_FLUSH=10", "STORE=/dev/shm GROUP=NODE", "SCR_JOB_ID=439", "SCR_CACHE_BYPAS=0"});
    EXPECT_THAT(made.notes,
                ElementsAre(AllOf(HasSubstr("SCR_Config: SCR_FLUSH has no effect"),
                                  HasSubstr("TAILRACE_SHARED_EVERY")),
                            HasSubstr("STORE has no effect"),
                            HasSubstr("SCR_CACHE_BYPAS has no effect; tailrace does not know it")));
}

// The table of docs/scr.md is this code's.
TEST_F(ScrSettingsTest, ThePageHasARowForEachKey) {
    std::ifstream file(TAILRACE_SCR_PAGE);
    std::stringstream page;
    page << file.rdbuf();
    for (const auto& key : known_keys()) {
        const auto row = "| `" + std::string(key.name) + "` | " +
                         std::string(key.has_effect ? "" : "no effect: ") + std::string(key.becomes) + " |\n";
        EXPECT_THAT(page.str(), HasSubstr(row));
    }
}

}  // namespace
}  // namespace scr_on_tailrace
