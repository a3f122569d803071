// The names of directories with original files, and the mark that lists what they hold.
#include "format/original_files.h"

#include <gtest/gtest.h>

namespace tailrace::internal {
namespace {

FileList sample() {
    return {"job",
            {12, 3},
            {{"a b", 0644, 5, 0x0123abcd}, {"new\nline\\n", 0400, 0, 0}, {"d/\xff", 0755, 1ull << 40, {}}}};
}

TEST(OriginalFilesTest, AListIsWhatItWas) {
    for (const FileList& list : {sample(), FileList{"job", {1, 1}, {}}}) {
        const auto decoded = decode_file_list(encode_file_list(list));
        ASSERT_TRUE(decoded.ok()) << decoded.status().message();
        EXPECT_EQ(*decoded, list);
    }
    EXPECT_EQ(encode_file_list(sample()).substr(0, 73),
              "tailrace files 1\njob job\nepoch 12\nrun 3\nfiles 3\nfile 0123abcd 0644 5 a b\n");
}

TEST(OriginalFilesTest, AListThatIsCutOffOrChangedIsCorrupt) {
    const auto whole = encode_file_list(sample());
    for (size_t bytes = 0; bytes < whole.size(); ++bytes)
        EXPECT_EQ(decode_file_list(whole.substr(0, bytes)).status().code(), Code::corrupt) << bytes;
    for (size_t at = 0; at < whole.size(); ++at) {
        auto changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ 1);
        EXPECT_EQ(decode_file_list(changed).status().code(), Code::corrupt) << at;
    }
    EXPECT_EQ(decode_file_list(whole + "x").status().code(), Code::corrupt);
}

TEST(OriginalFilesTest, AListLeadsNowhereElse) {
    for (const char* name : {"../a", "/a", "a//b", ""}) {
        FileList list{"job", {1, 1}, {{name, 0644, 0, {}}}};
        EXPECT_EQ(decode_file_list(encode_file_list(list)).status().code(), Code::corrupt) << name;
    }
    FileList twice{"job", {1, 1}, {{"a", 0644, 0, {}}, {"a", 0644, 0, {}}}};
    EXPECT_EQ(decode_file_list(encode_file_list(twice)).status().code(), Code::corrupt);
    FileList rights{"job", {1, 1}, {{"a", 04755, 0, {}}}};
    EXPECT_EQ(decode_file_list(encode_file_list(rights)).status().code(), Code::corrupt);
}

TEST(OriginalFilesTest, NamesAreFoundAgain) {
    EXPECT_EQ(parse_original_files_name("e000000012"), 12u);
    EXPECT_EQ(parse_original_files_name(original_files_name(1ull << 40)), 1ull << 40);
    for (const char* name : {"e12", "e", "e0000000012", "f000000012", "e000000012.r0003.unfinished"})
        EXPECT_FALSE(parse_original_files_name(name)) << name;
    EXPECT_EQ(parse_unfinished_files_name(unfinished_files_name({12, 3})), (EpochKey{12, 3}));
    EXPECT_EQ(unfinished_files_name({12, 3}), "e000000012.r0003.unfinished");
    for (const char* name :
         {"e000000012", "e12.r3.unfinished", "e000000012.r0003.finished", "notes.unfinished"})
        EXPECT_FALSE(parse_unfinished_files_name(name)) << name;
}

}  // namespace
}  // namespace tailrace::internal
