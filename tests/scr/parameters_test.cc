// SCR's keys: how a line is read, and which of the places counts that a key may have its value from.
#include "parameters.h"

#include <gmock/gmock.h>

#include "environment.h"

namespace scr_on_tailrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class ScrParametersTest : public InOwnDirectory {
  protected:
    void apply(const std::string& line) { EXPECT_EQ(parameters_.apply(line), std::nullopt) << line; }
    // "none" if there is no value.
    std::string asked(const std::string& line) { return parameters_.apply(line).value_or("none"); }
    std::string refusal(const std::string& line) {
        try {
            parameters_.apply(line);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "it was not refused";
    }

    Parameters parameters_;
};

TEST_F(ScrParametersTest, ALineHasAKeyAValueAndParts) {
    const auto line = parse_line(" CKPT = 0\tTYPE =XOR SET_SIZE= 16 ");
    EXPECT_EQ(line.key, "CKPT");
    EXPECT_EQ(line.value, "0");
    EXPECT_THAT(line.parts, ElementsAre(Pair("TYPE", "XOR"), Pair("SET_SIZE", "16")));
    EXPECT_FALSE(line.asks);
    EXPECT_TRUE(parse_line("KEY").asks);
    EXPECT_EQ(parse_line("CKPT=0 TYPE").asked_part, "TYPE");
    EXPECT_FALSE(parse_line("KEY=").asks);
    EXPECT_EQ(parse_line("KEY=").value, std::nullopt);
}

TEST_F(ScrParametersTest, BlanksMayStandAroundTheEqualsSign) {
    EXPECT_EQ(asked("DEBUG"), "none");
    for (const std::string line : {"DEBUG=1", "DEBUG =2", "DEBUG= 3", "DEBUG  = 4"}) {
        apply(line);
        EXPECT_EQ(asked("DEBUG"), line.substr(line.size() - 1));
    }
}

TEST_F(ScrParametersTest, AValueMayHaveEqualsSigns) {
    apply("SCR_CACHE_BASE=/dev/shm/a");
    EXPECT_EQ(asked("SCR_CACHE_BASE"), "/dev/shm/a");
    apply("SCR_CACHE_BASE==/dev/shm/b=");
    EXPECT_EQ(asked("SCR_CACHE_BASE"), "=/dev/shm/b=");
    apply("SCR_CACHE_BASE= =/dev/shm/==c");
    EXPECT_EQ(asked("SCR_CACHE_BASE"), "=/dev/shm/==c");
}

TEST_F(ScrParametersTest, AValueMayHavePartsAndAKeySeveralSuchValues) {
    apply("STORE= /dev/shm/foo GROUP = NODE COUNT  =1");
    apply("CKPT=0 INTERNAL=1 GROUP=NODE STORE=/dev/shm TYPE=XOR SET_SIZE=16");
    EXPECT_EQ(asked("STORE= /dev/shm/foo COUNT"), "1");
    EXPECT_EQ(asked("CKPT=0 SET_SIZE"), "16");
    EXPECT_EQ(asked("STORE"), "/dev/shm/foo");
    EXPECT_EQ(asked("STORE=/dev/shm/foo GROUP"), "NODE");
    EXPECT_EQ(asked("FOOBAR"), "none");
    EXPECT_EQ(asked("CKPT=1 FOOBAR"), "none");
    apply("STORE=/dev/shm GROUP=WORLD COUNT=2");
    EXPECT_EQ(asked("STORE=/dev/shm COUNT"), "2");
    EXPECT_EQ(asked("STORE=/dev/shm/foo COUNT"), "1");
    EXPECT_THAT(refusal("STORE"), HasSubstr("STORE has 2 values"));
    apply("STORE=/dev/shm COUNT=3");
    EXPECT_EQ(asked("STORE=/dev/shm COUNT"), "3");
    EXPECT_EQ(asked("STORE=/dev/shm GROUP"), "WORLD");
    apply("STORE=");
    EXPECT_EQ(asked("STORE"), "none");
}

TEST_F(ScrParametersTest, ALineWithoutSenseIsRefused) {
    for (const std::string line :
         {"", " ", "=1", "KEY VALUE", "KEY=1 = 2", "KEY=1 PART=", "KEY=1 PART=2 ASKED"})
        EXPECT_THAT(refusal(line), HasSubstr("write KEY=VALUE")) << line;
}

TEST_F(ScrParametersTest, EnvironmentVariablesAreExpanded) {
    set("VAR_A", "value a");
    set("VAR_B", "value b");
    const std::pair<std::string, std::string> cases[] = {{"$VAR_A", "value a"},
                                                         {"${VAR_A}", "value a"},
                                                         {"${VAR_A", "${VAR_A"},
                                                         {"${VAR_A}>", "value a>"},
                                                         {"$VAR_A>", "value a>"},
                                                         {"$VAR_A ${VAR_B}", "value a value b"},
                                                         {":$VAR_A ${VAR_B}:", ":value a value b:"},
                                                         {"$VAR_A ${VAR_B>}", "value a ${VAR_B>}"},
                                                         {"$VAR_C", ""},
                                                         {"a$", "a$"},
                                                         {"${}", "${}"}};
    for (const auto& [text, becomes] : cases) {
        EXPECT_EQ(expanded(text), becomes);
        set("SCR_TEXT", text);
        EXPECT_EQ(asked("SCR_TEXT"), becomes);
    }
    apply("SCR_PREFIX=/scratch/$VAR_C/x");
    EXPECT_EQ(asked("SCR_PREFIX"), "/scratch//x");
}

TEST_F(ScrParametersTest, TheEnvironmentWinsOverTheFileAndTheFileOverTheProgram) {
    write(".scrconf", "# a comment\n\nSCR_A = file # and why\nSCR_B=file\nCKPT=0 TYPE=XOR\n");
    for (const std::string key : {"SCR_A", "SCR_B", "SCR_C"}) apply(key + "=program");
    apply("CKPT=0 TYPE=PARTNER SET_SIZE=3");
    set("SCR_A", "environment");
    EXPECT_EQ(asked("SCR_A"), "environment");
    EXPECT_EQ(asked("SCR_B"), "file");
    EXPECT_EQ(asked("SCR_C"), "program");
    EXPECT_EQ(asked("CKPT=0 TYPE"), "XOR");
    EXPECT_EQ(asked("CKPT=0 SET_SIZE"), "3");
    EXPECT_EQ(parameters_.origin("SCR_A"), "environment variable SCR_A");
    EXPECT_EQ(parameters_.origin("SCR_B"), "./.scrconf");
    EXPECT_EQ(parameters_.origin("SCR_C"), "SCR_Config");
    EXPECT_THAT(parameters_.keys(), ElementsAre("CKPT", "SCR_A", "SCR_B", "SCR_C"));
}

TEST_F(ScrParametersTest, TheEnvironmentOrTheProgramNamesTheFile) {
    write("prefix/user.conf", "SCR_PREFIX=prefix\n");
    write("user1.conf", "SCR_COPY_TYPE=PARTNER\n");
    write("user2.conf", "SCR_COPY_TYPE=XOR\n");
    apply("SCR_CONF_FILE=prefix/user.conf");
    apply("SCR_PREFIX=.");
    EXPECT_EQ(asked("SCR_PREFIX"), "prefix");
    apply("SCR_CONF_FILE=user1.conf");
    EXPECT_EQ(asked("SCR_COPY_TYPE"), "PARTNER");
    apply("SCR_CONF_FILE=user2.conf");
    EXPECT_EQ(asked("SCR_COPY_TYPE"), "XOR");
    set("SCR_CONF_FILE", "user1.conf");
    EXPECT_EQ(asked("SCR_COPY_TYPE"), "PARTNER");
    ::unsetenv("SCR_CONF_FILE");
    apply("SCR_CONF_FILE=");
    EXPECT_EQ(asked("SCR_COPY_TYPE"), "none");
    EXPECT_THAT(parameters_.keys(), ElementsAre("SCR_PREFIX"));
}

TEST_F(ScrParametersTest, TheFileLiesInThePrefix) {
    write("elsewhere/.scrconf", "SCR_A=1\n");
    EXPECT_EQ(asked("SCR_A"), "none");
    apply("SCR_PREFIX=elsewhere");
    EXPECT_EQ(asked("SCR_A"), "1");
}

TEST_F(ScrParametersTest, AFileThatCannotBeUsedIsNamedEachTime) {
    set("SCR_CONF_FILE", "none.conf");
    for (int i = 0; i < 2; ++i)
        EXPECT_THAT(refusal("SCR_A"), HasSubstr("none.conf (SCR_CONF_FILE) cannot be read"));
    write("none.conf", "SCR_A=1\nSCR_B\n");
    for (int i = 0; i < 2; ++i) EXPECT_THAT(refusal("SCR_A"), HasSubstr("none.conf, line 2"));
}

}  // namespace
}  // namespace scr_on_tailrace
