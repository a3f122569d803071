// The text of a configuration file: what is read of it, what is refused, and how [restart] is rewritten.
#include "ini_file.h"

#include <gmock/gmock.h>

namespace fti_on_tailrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> notes;

std::string value(const std::string& text, const std::string& key) {
    notes.clear();
    const auto values = values_of(text, "config.fti", notes);
    const auto found = values.find(key);
    return found == values.end() ? "none" : found->second.text;
}

std::string refusal(const std::string& text) {
    try {
        value(text, "");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "it was not refused";
}

TEST(IniFileTest, SectionsAndKeysAreInAnyCase) {
    EXPECT_EQ(value("[Basic]\nCkpt_Dir = /a/B\n", "basic:ckpt_dir"), "/a/B");
    EXPECT_EQ(value("  [ BASIC ]\r\n  head=0\r\n", "basic:head"), "0");
}

TEST(IniFileTest, AValueEndsAtAComment) {
    EXPECT_EQ(value("[Basic]\nckpt_dir = ./Local\t#/path/\n", "basic:ckpt_dir"), "./Local");
    EXPECT_EQ(value("[Basic]\nckpt_dir = ./Local ; there\n", "basic:ckpt_dir"), "./Local");
    EXPECT_EQ(value("[Basic]\nckpt_dir = \"a #b\" # c\n", "basic:ckpt_dir"), "a #b");
    EXPECT_EQ(value("# head = 1\n; head = 2\n\n[Basic]\nhead = 3", "basic:head"), "3");
}

TEST(IniFileTest, AnEmptyValueIsNone) {
    EXPECT_EQ(value("[Restart]\nexec_id =\n", "restart:exec_id"), "none");
}

TEST(IniFileTest, TheLastOfTwoKeysCounts) {
    EXPECT_EQ(value("[Basic]\nhead = 1\n[Basic]\nhead = 2\n", "basic:head"), "2");
    EXPECT_THAT(notes,
                ElementsAre("config.fti, line 4: head stands twice; config.fti, line 2 has no effect"));
}

TEST(IniFileTest, ALineThatIsNoneIsRefusedWithItsNumber) {
    EXPECT_THAT(refusal("[Basic]\nhead\n"), HasSubstr("config.fti, line 2: \"head\" is neither"));
    EXPECT_THAT(refusal("[Basic\n"), HasSubstr("line 1: \"[Basic\" has no closing ]"));
    EXPECT_THAT(refusal("head = 1\n"), HasSubstr("line 1: head stands before any section"));
    EXPECT_THAT(refusal("[Basic]\n= 1\n"), HasSubstr("line 2"));
}

TEST(RestartSectionTest, IsRewrittenAndNothingElse) {
    const std::string before =
        "# failure = 7\n[Basic]\nfailure = 5\n\n[Restart]\n# Set this\nFailure = 0   # no\nExec_ID = XXXX\n\n"
        "[Advanced]\nexec_id = 3\n";
    EXPECT_EQ(
        with_restart(before, 1, "run-1"),
        "# failure = 7\n[Basic]\nfailure = 5\n\n[Restart]\n# Set this\nFailure = 1 # no\nExec_ID = run-1\n\n"
        "[Advanced]\nexec_id = 3\n");
}

TEST(RestartSectionTest, IsTheSameTextWhenItIsRewrittenAgain) {
    const auto once = with_restart("[restart]\nfailure=1 ;x\n exec_id = a\n", 2, "b");
    EXPECT_EQ(with_restart(once, 2, "b"), once);
}

TEST(RestartSectionTest, MissingKeysAreAdded) {
    EXPECT_EQ(with_restart("[restart]\nfailure = 0\n\n[basic]\nhead = 0\n", 1, "a"),
              "[restart]\nfailure = 1\nexec_id = a\n\n[basic]\nhead = 0\n");
    EXPECT_EQ(with_restart("[restart]", 1, "a"), "[restart]\nfailure = 1\nexec_id = a\n");
}

TEST(RestartSectionTest, AMissingSectionIsAdded) {
    EXPECT_EQ(with_restart("[basic]\nhead = 0", 1, "a"),
              "[basic]\nhead = 0\n\n[Restart]\nfailure = 1\nexec_id = a\n");
}

TEST(RestartSectionTest, EveryCopyOfAKeyIsRewritten) {
    EXPECT_EQ(with_restart("[restart]\nfailure = 0\n[Restart]\nfailure = 0\nexec_id = x\n", 1, "a"),
              "[restart]\nfailure = 1\n[Restart]\nfailure = 1\nexec_id = a\n");
}

// Sentences and settings end at such a byte, so that nobody would see why it is refused.
TEST(IniFileTest, ANulByteIsRefusedAndSaidInWords) {
    std::vector<std::string> unused;
    for (const std::string line : {"a = b%c", "% = 1", "%"}) {
        auto text = "[x]\n" + line + "\n";
        text[text.find('%')] = '\0';
        try {
            (void)values_of(text, "f", unused);
            ADD_FAILURE() << line;
        } catch (const ConfigError& error) {
            EXPECT_STREQ(error.what(), "f, line 2: there is a NUL byte; remove it") << line;
        }
    }
}

}  // namespace
}  // namespace fti_on_tailrace
