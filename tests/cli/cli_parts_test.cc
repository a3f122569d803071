// The command's small parts: boxes and ages as text, .npy heads, safe printing, output files; and prune on a
// storage that dies.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "box_text.h"
#include "command.h"
#include "doubles/faulty_storage.h"
#include "doubles/memory_storage.h"
#include "npy.h"
#include "output_file.h"
#include "read/epoch_builder.h"
#include "shared/inventory.h"
#include "text.h"

namespace tailrace::internal::tool {

// Stands for the program's own, which is beside its main().
Exit report(const Status&) {
    return exit_failed;
}

namespace {

const std::vector<uint64_t> shape{10, 20, 5};

TEST(BoxTextTest, RangesEndsAndSingleIndicesAreTaken) {
    EXPECT_EQ(*parse_box("0:10,5:20,1:2", shape), (Box{{0, 5, 1}, {10, 15, 1}}));
    EXPECT_EQ(*parse_box(" 3: , :7 , 4", shape), (Box{{3, 0, 4}, {7, 7, 1}}));
    EXPECT_EQ(*parse_box(":,:,5:5", shape), (Box{{0, 0, 5}, {10, 20, 0}}));
}

TEST(BoxTextTest, WhatIsNoBoxIsRefused) {
    for (const char* text : {"", "0:10", "0:10,0:20", "0:10,0:20,0:5,0:1",
                             "0:11,:,:", "5:4,:,:", "-1:3,:,:", "a,:,:", "1:2:3,:,:", ",,",
                             "10,:,:", "18446744073709551615,:,:", "18446744073709551616:,:,:"})
        EXPECT_EQ(parse_box(text, shape).status().code(), Code::invalid_argument) << text;
}

TEST(AgeTest, UnitsAreTakenAndAnythingElseRefused) {
    EXPECT_EQ(*parse_age("90s"), 90u);
    EXPECT_EQ(*parse_age("15min"), 900u);
    EXPECT_EQ(*parse_age("12h"), 43200u);
    EXPECT_EQ(*parse_age("7d"), 604800u);
    EXPECT_EQ(*parse_age("2w"), 1209600u);
    for (const char* text : {"", "7", "d", "-1d", "7 d", "1.5h", "7y", "99999999999d"})
        EXPECT_EQ(parse_age(text).status().code(), Code::invalid_argument) << text;
}

TEST(NpyTest, HeaderIsAlignedAndSaysTypeAndShape) {
    for (const auto& extents :
         std::vector<std::vector<uint64_t>>{{}, {7}, {3, 4}, std::vector<uint64_t>(16, 1 << 20)}) {
        const std::string header = npy_header(ElementType::float64, extents);
        EXPECT_EQ(header.size() % 64, 0u);
        EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
        const size_t length =
            static_cast<unsigned char>(header[8]) + 256u * static_cast<unsigned char>(header[9]);
        EXPECT_EQ(length + 10, header.size());
        EXPECT_EQ(header.back(), '\n');
        EXPECT_NE(header.find("'descr': '<f8', 'fortran_order': False"), std::string::npos);
    }
    EXPECT_NE(npy_header(ElementType::int8, std::vector<uint64_t>{7}).find("'shape': (7, )"),
              std::string::npos);
    EXPECT_NE(npy_header(ElementType::int8, std::vector<uint64_t>{3, 4}).find("'shape': (3, 4)"),
              std::string::npos);
}

TEST(NpyTest, EveryTypeHasItsSize) {
    for (uint8_t t = 0; t < element_type_count; ++t) {
        const auto type = static_cast<ElementType>(t);
        EXPECT_EQ(std::stoull(std::string(npy_type(type).substr(2))), element_bytes(type))
            << element_type_name(type);
    }
}

TEST(PrintableTest, ControlCharactersAndBrokenUtf8AreEscaped) {
    EXPECT_EQ(printable("plain Größe ∑ 😀"), "plain Größe ∑ 😀");
    EXPECT_EQ(printable("a\x1b[31m\n\x7f"), "a\\x1b[31m\\x0a\\x7f");
    EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
    EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // a C1 control
    EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");           // longer than needed
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

TEST(TableTest, ColumnsLineUpWhateverTheAlphabet) {
    Table table({"NAME", "BYTES"}, {1});
    table.add({"Größe", "7"});
    table.add({"x", "123456"});
    table.note("  why");
    EXPECT_EQ(table.text(), "NAME    BYTES\nGröße       7\nx      123456\n  why\n");
}

TEST(CountedTest, OneIsSingular) {
    EXPECT_EQ(counted(0, "rank"), "0 ranks");
    EXPECT_EQ(counted(1, "rank"), "1 rank");
    EXPECT_EQ(counted(2, "rank"), "2 ranks");
}

TEST(TimeTest, AnyTimeHasAText) {
    EXPECT_EQ(time_text(1700000000000), "2023-11-14T22:13:20Z");
    EXPECT_EQ(time_text(UINT64_MAX), "after the year 9999");
}

class OutputFileTest : public testing::Test {
  protected:
    OutputFileTest() {
        const char* base = std::getenv("TMPDIR");
        std::string name = std::string(base != nullptr ? base : "/tmp") + "/tailrace-output-XXXXXX";
        EXPECT_NE(mkdtemp(name.data()), nullptr);
        directory_ = name;
    }
    ~OutputFileTest() override { std::filesystem::remove_all(directory_); }
    std::string directory_;
};

TEST_F(OutputFileTest, AppearsWithCommitAndNotBefore) {
    const std::string path = directory_ + "/out";
    {
        auto file = OutputFile::create(path, 3, false);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        std::memcpy((*file)->memory().data(), "abc", 3);
        EXPECT_FALSE(std::filesystem::exists(path));
        ASSERT_TRUE((*file)->commit().ok());
    }
    std::ifstream stream(path);
    std::string text;
    stream >> text;
    EXPECT_EQ(text, "abc");
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST_F(OutputFileTest, LeavesNothingWithoutCommit) {
    { ASSERT_TRUE(OutputFile::create(directory_ + "/out", 100, false).ok()); }
    EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(OutputFileTest, KeepsWhatIsThereUnlessToldToReplaceIt) {
    const std::string path = directory_ + "/out";
    std::ofstream(path) << "old";
    EXPECT_EQ(OutputFile::create(path, 1, false).status().code(), Code::already_exists);
    EXPECT_TRUE(OutputFile::create(path, 1, true).ok());
    EXPECT_EQ(std::filesystem::file_size(path), 3u);
}

TEST_F(OutputFileTest, EmptyFilesAndMissingDirectories) {
    auto empty = OutputFile::create(directory_ + "/empty", 0, false);
    ASSERT_TRUE(empty.ok());
    EXPECT_TRUE((*empty)->commit().ok());
    EXPECT_EQ(std::filesystem::file_size(directory_ + "/empty"), 0u);
    EXPECT_EQ(OutputFile::create(directory_ + "/none/out", 1, false).status().code(), Code::io_error);
}

TEST(PruneTest, WhatARemovalThatIsCutShortLeavesIsRemovedByTheNextSession) {
    bool removed_all = false;
    for (uint64_t die_after = 1; die_after < 100 && !removed_all; ++die_after) {
        auto memory = std::make_shared<MemoryStorage>();
        testing_support::BuiltEpoch epoch;
        epoch.file_count = 3;
        epoch.ranks = {{{"u", testing_support::pattern(1, 1000), {}}}};
        for (const uint64_t number : {1, 2}) {
            epoch.key = {number, 1};
            ASSERT_TRUE(testing_support::write_shared_files(*memory, "/s", epoch).ok());
        }
        FaultPlan plan;
        plan.die_at_operation = die_after;
        FaultyStorage faulty(memory, die_after, plan);
        CLI::App program;
        const Command prune = add_prune(program);
        program.parse("prune /s --keep 1 --yes --json");
        removed_all = prune(faulty) == exit_ok && !faulty.dead();
        ASSERT_TRUE(clean_shared(*memory, "/s", "built").ok());
        // Epoch 1 as a whole, or nothing of it.
        const auto left = list_shared(*memory, "/s", "built");
        ASSERT_TRUE(left.ok());
        size_t files = 0;
        for (const auto& found : *left) files += found.key.epoch == 1 ? found.files.size() : 0;
        EXPECT_TRUE(files == 0 || (files == 3 && !removed_all))
            << files << " files are left after a death at operation " << die_after;
    }
    EXPECT_TRUE(removed_all);
}

}  // namespace
}  // namespace tailrace::internal::tool
