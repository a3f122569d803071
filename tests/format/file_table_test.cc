// The table of a rank's files, and which names files may have.
#include "format/file_table.h"

#include <gmock/gmock.h>

#include "base/bytes.h"
#include "format/manifest.h"

namespace tailrace::internal {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> table_of(uint32_t version, const std::vector<SavedFile>& files) {
    ByteWriter out;
    out.put(version);
    out.put(static_cast<uint64_t>(files.size()));
    for (const auto& file : files) {
        out.put(file.rights);
        out.put_string(file.name);
    }
    return out.take();
}

std::string deep(size_t directories) {
    std::string name = "x";
    for (size_t i = 0; i < directories; ++i) name = "a/" + name;
    return name;
}

TEST(FileTableTest, NamesBelowTheDirectoryArePossible) {
    EXPECT_TRUE(check_file_name(deep(64)).ok());
    for (const char* name : {"a", "a/b", "a.b", "...", ".hidden", "fields/u.h5", "a b", "\xc3\xa4/\xff", "-"})
        EXPECT_TRUE(check_file_name(name).ok()) << name;
    const std::string longest(max_file_component_bytes, 'x');
    EXPECT_TRUE(check_file_name(longest + "/" + longest).ok());
}

TEST(FileTableTest, NamesThatLeadElsewhereAreRefusedWithTheReason) {
    const std::vector<std::pair<std::string, std::string>> refused = {
        {"", "it is empty"},
        {"/", "it is absolute"},
        {"/etc/passwd", "it is absolute"},
        {"..", "component \"..\""},
        {"../a", "component \"..\""},
        {"a/../b", "component \"..\""},
        {"a/..", "component \"..\""},
        {".", "component \".\""},
        {"./a", "component \".\""},
        {"a/", "one \"/\" too many"},
        {"a//b", "one \"/\" too many"},
        {std::string("a\0b", 3), "a zero byte"},
        {std::string(max_file_component_bytes + 1, 'x'), "256 bytes"},
        {std::string(max_region_name_bytes - 4, 'x'), "4092 bytes"},
        {deep(65), "it has 65 directories, but 64 are possible"}};
    for (const auto& [name, why] : refused) {
        const Status status = check_file_name(name);
        EXPECT_EQ(status.code(), Code::invalid_argument) << name;
        EXPECT_THAT(status.message(), HasSubstr(why)) << name;
    }
}

TEST(FileTableTest, AFileIsNoDirectoryOfAnother) {
    FileNames names;
    EXPECT_TRUE(names.add("a/b/c").ok());
    EXPECT_TRUE(names.add("a/b.c").ok());
    EXPECT_TRUE(names.add("b").ok());
    EXPECT_EQ(names.add("b").code(), Code::already_exists);
    for (const char* name : {"a", "a/b", "a/b/c/d", "b/c", ".."}) {
        EXPECT_EQ(names.add(name).code(), Code::invalid_argument) << name;
        EXPECT_FALSE(names.contains(name)) << name;
    }
    EXPECT_TRUE(names.contains("a/b/c"));
}

TEST(FileTableTest, ATableComesBackAsItWas) {
    const std::vector<SavedFile> files = {{"a/b", 0644}, {"z", 0}, {"a/\xff", 0777}};
    const auto decoded = decode_file_table(encode_file_table(files));
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(*decoded, files);
    EXPECT_TRUE(decode_file_table(encode_file_table({}))->empty());
}

TEST(FileTableTest, AHostileTableIsCorrupt) {
    const std::vector<std::vector<SavedFile>> tables = {{{"../a", 0644}},
                                                        {{"/a", 0644}},
                                                        {{"", 0644}},
                                                        {{"a", 04755}},
                                                        {{"a", 0644}, {"a", 0644}},
                                                        {{"a", 0644}, {"a/b", 0644}}};
    for (const auto& table : tables)
        EXPECT_EQ(decode_file_table(table_of(1, table)).status().code(), Code::corrupt) << table.back().name;
    EXPECT_EQ(decode_file_table(table_of(2, {})).status().code(), Code::unsupported);
    ByteWriter absurd;
    absurd.put(uint32_t{1});
    absurd.put(UINT64_MAX);
    EXPECT_EQ(decode_file_table(absurd.bytes()).status().code(), Code::corrupt);
}

// Cut anywhere, lengthened, or with any byte changed, a table is refused or has possible names only.
TEST(FileTableTest, DamageIsFoundOrHarmless) {
    const auto whole = encode_file_table(std::vector<SavedFile>{{"a/b", 0644}, {"c", 0600}, {"d/e/f", 0755}});
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
        EXPECT_EQ(decode_file_table(std::span(whole).first(bytes)).status().code(), Code::corrupt) << bytes;
    for (size_t at = 0; at < whole.size(); ++at)
        for (int value = 0; value < 256; ++value) {
            auto changed = whole;
            changed[at] = static_cast<std::byte>(value);
            const auto decoded = decode_file_table(changed);
            if (!decoded.ok()) continue;
            for (const auto& file : *decoded) EXPECT_TRUE(check_file_name(file.name).ok()) << file.name;
        }
    auto longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_EQ(decode_file_table(longer).status().code(), Code::corrupt);
}

}  // namespace
}  // namespace tailrace::internal
