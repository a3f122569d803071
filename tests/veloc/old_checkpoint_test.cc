// Checkpoints that VELOC itself has written: which are whole, and what is in them.
#include "old_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "client.h"

namespace veloc_on_tailrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(VelocOldCheckpointTest, AVersionCountsIfExactlyTheRanksAreThere) {
    const std::vector<std::string> files = {"heat-0-10.dat",
                                            "heat-1-10.dat",  // whole
                                            "heat-0-20.dat",  // a rank is missing
                                            "heat-0-30.dat",
                                            "heat-1-30.dat",
                                            "heat-2-30.dat",  // a rank too many
                                            "heat-1-40.dat",
                                            "heat-2-40.dat",    // the first is missing
                                            "heat-agg-50.dat",  // may be whole
                                            "heat-0-60.dat.chksum",
                                            "heat-1-60.dat.chksum",
                                            "heat-ec-60.0.redset",  // no regions
                                            "heat-x-7.dat",
                                            "heat--7.dat",
                                            "heat-0-.dat",
                                            "heat-0-7x.dat",
                                            "heat-0-99999999999.dat",
                                            ".dat",
                                            "a-heat-0-8.dat",
                                            "heat-2d-0-8.dat"};
    EXPECT_THAT(versions_of(files, "heat", {0, 2}), ElementsAre(50, 10));
    EXPECT_THAT(versions_of(files, "heat", {0, 3}), ElementsAre(50, 30));
    EXPECT_THAT(versions_of(files, "heat", {2, 1, true}), ElementsAre(40, 30))
        << "a process alone has its own files";
    EXPECT_THAT(versions_of(files, "heat-2d", {0, 1}), ElementsAre(8)) << "names have hyphens";
    EXPECT_THAT(versions_of(files, "none", {0, 1}), IsEmpty());
    EXPECT_THAT(versions_in("/nowhere", "heat", {0, 1}), IsEmpty());
}

class VelocImportTest : public testing::Test {
  protected:
    VelocImportTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace veloc XXXXXX").string();
        top_ = ::mkdtemp(pattern.data());
    }
    ~VelocImportTest() override { std::filesystem::remove_all(top_); }

    static std::string bytes_of(uint64_t number, size_t count) {
        std::string bytes;
        for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
        return bytes;
    }
    // The regions of a rank, as VELOC writes them.
    static std::string part(const std::map<int, std::string>& regions) {
        std::string table = bytes_of(regions.size(), 8), all;
        for (const auto& [id, text] : regions) {
            table += bytes_of(static_cast<uint32_t>(id), 4) + bytes_of(text.size(), 8);
            all += text;
        }
        return table + all;
    }
    void write(const std::string& name, const std::string& bytes) {
        std::ofstream(top_ + "/" + name, std::ios::binary) << bytes;
    }
    std::map<int, std::string> read(int version, const Owner& owner) {
        const OldCheckpoint old(top_, "n", version, owner);
        std::map<int, std::string> regions;
        for (const auto& piece : old.pieces())
            regions[piece.id] = {reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size()};
        return regions;
    }
    std::string refusal(int version, const Owner& owner) {
        try {
            read(version, owner);
        } catch (const NoMemoryFile& error) {
            return error.what();
        }
        return "it was not refused";
    }
    std::unique_ptr<Client> client(unsigned int id, const std::string& import = "") {
        write("veloc.cfg", "scratch = " + top_ + "/scratch\npersistent = " + top_ + "\nmode = async\n" +
                               (import.empty() ? import : "tailrace_import = " + import) +
                               "\ntailrace_buffer_bytes = 1MiB\ntailrace_record = no\n");
        return Client::open(on_tailrace::single_process(id), top_ + "/veloc.cfg");
    }

    std::string top_;
};

const std::map<int, std::string> first = {{-2, "of rank 0"}, {7, std::string(70000, 'a')}};
const std::map<int, std::string> second = {{0, ""}, {3, "of rank 1"}};

TEST_F(VelocImportTest, ARankFindsItsRegionsInItsFileAndInTheFileOfAll) {
    write("n-0-5.dat", part(first));
    write("n-1-5.dat", part(second));
    write("n-agg-6.dat", part(first) + part(second));
    for (const int version : {5, 6}) {
        EXPECT_EQ(read(version, {0, 2}), first);
        EXPECT_EQ(read(version, {1, 2}), second);
    }
    EXPECT_EQ(read(5, {1, 1, true}), second);
    EXPECT_THAT(refusal(6, {0, 1}), HasSubstr("more than the regions of 1 ranks"));
    EXPECT_THAT(refusal(6, {0, 3}), HasSubstr("no room for the table"));
    EXPECT_THAT(refusal(7, {0, 2}), HasSubstr("cannot be opened"));
    write("n-agg-8.dat", part(first) + part(second) + "rest of a longer one");
    EXPECT_THAT(refusal(8, {1, 2}), HasSubstr("more than"));
    write("n-0-9.dat", part({}));
    EXPECT_THAT(refusal(9, {0, 1}), HasSubstr("no region of this rank"));
}

TEST_F(VelocImportTest, AProgramGoesOnFromTheNewestVersionThatIsWhole) {
    write("n-4-3.dat", part({{1, "three"}}));
    write("n-4-5.dat", part({{1, "five!"}}));
    write("n-4-8.dat", part({{1, "eight"}}).substr(0, 22));
    std::string text(5, '-');
    {
        testing::internal::CaptureStderr();
        EXPECT_EQ(client(4, "none")->restart_test("n", 0, -1), -1);
        EXPECT_EQ(client(4, top_ + "/elsewhere")->restart_test("n", 0, -1), -1);
        testing::internal::GetCapturedStderr();
        const auto old = client(4);
        testing::internal::CaptureStderr();
        EXPECT_EQ(old->restart_test("n", 0, -1), 5);
        EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("n-4-8.dat"));
        ASSERT_TRUE(old->mem_protect(1, text.data(), text.size(), 1, default_group));
        ASSERT_TRUE(old->restart("n", 5, -1));
        EXPECT_EQ(text, "five!");
        text = "seven";
        ASSERT_TRUE(old->checkpoint("n", 7) && old->checkpoint_wait());
    }
    std::filesystem::remove(top_ + "/n-4-5.dat");
    const auto later = client(4);
    EXPECT_EQ(later->restart_test("n", 0, -1), 7)
        << "VELOC's versions are looked at if there is none of tailrace's";
    EXPECT_EQ(later->restart_test("n", 6, -1), 5) << "what was taken over is one of tailrace's";
    EXPECT_EQ(later->restart_test("m", 0, -1), -1);
    EXPECT_EQ(client(5)->restart_test("n", 0, -1), -1) << "another process has other files";
    testing::internal::CaptureStderr();
    EXPECT_EQ(client(4)->restart_test("n", 4, -1), -1) << "3 was not taken over";
    testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace veloc_on_tailrace
