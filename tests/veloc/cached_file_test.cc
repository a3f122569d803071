// Files whose writes return before they have arrived.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <veloc/cache.hpp>

namespace {

using ::testing::HasSubstr;

class CachedFileTest : public testing::Test {
  protected:
    CachedFileTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "tailrace-cached-XXXXXX").string();
        top_ = ::mkdtemp(pattern.data());
        std::filesystem::create_directory(top_ + "/scratch");
    }
    ~CachedFileTest() override {
        veloc::cached_file_t::shutdown();
        std::filesystem::remove_all(top_);
    }
    std::string content(const std::string& name) const {
        std::ifstream in(top_ + "/" + name, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    bool open(veloc::cached_file_t& file, const std::string& name) const {
        return file.open(top_ + "/" + name, O_RDWR | O_CREAT, 0600);
    }
    template <class Work>
    static std::string said(Work work) {
        testing::internal::CaptureStderr();
        work();
        return testing::internal::GetCapturedStderr();
    }

    std::string top_;
};

TEST_F(CachedFileTest, WhatIsWrittenArrivesInItsPlaceAndLeavesNothingBehind) {
    const std::string large(3'000'000, 'l');  // larger than all that may be on its way
    {
        veloc::cached_file_t a(top_ + "/scratch"), b(top_ + "/scratch");
        ASSERT_TRUE(open(a, "a") && open(b, "b"));
        ASSERT_TRUE(a.pwrite("tail", 4, 0) && b.pwrite(large.data(), large.size(), 2) &&
                    a.pwrite("race", 4, 4));
        ASSERT_TRUE(a.pwrite("T", 1, 0));
        char back[8];
        ASSERT_TRUE(a.pread(back, 8, 0)) << "what has not arrived is waited for";
        EXPECT_EQ(std::string(back, 8), "Tailrace");
    }
    ASSERT_TRUE(veloc::cached_file_t::flush());
    EXPECT_EQ(content("a"), "Tailrace");
    EXPECT_EQ(content("b"), std::string(2, '\0') + large);
    EXPECT_TRUE(std::filesystem::is_empty(top_ + "/scratch"));
}

TEST_F(CachedFileTest, AFlushSaysWhetherAllHasArrived) {
    veloc::cached_file_t full(top_ + "/scratch");
    ASSERT_TRUE(full.open("/dev/full", O_RDWR, 0));
    EXPECT_THAT(said([&] {
                    EXPECT_TRUE(full.pwrite("x", 1, 0));
                    EXPECT_FALSE(veloc::cached_file_t::flush());
                }),
                HasSubstr("writing /dev/full: No space left"));
    EXPECT_TRUE(veloc::cached_file_t::flush()) << "nothing has failed since";
}

TEST_F(CachedFileTest, WhatCannotBeDoneIsSaid) {
    veloc::cached_file_t file(top_ + "/scratch"), nowhere(top_ + "/none");
    char byte = 0;
    EXPECT_THAT(said([&] { EXPECT_FALSE(file.pwrite("x", 1, 0)); }), HasSubstr("no file is open"));
    EXPECT_THAT(said([&] { EXPECT_FALSE(open(file, "no/such")); }), HasSubstr("no/such: No such file"));
    EXPECT_THAT(said([&] { EXPECT_FALSE(open(nowhere, "a")); }), HasSubstr("/none: No such file"));
    ASSERT_TRUE(open(file, "a"));
    EXPECT_THAT(said([&] { EXPECT_FALSE(open(file, "b")); }), HasSubstr("is still open"));
    EXPECT_THAT(said([&] { EXPECT_FALSE(file.pread(&byte, 1, 0)); }), HasSubstr("reading"))
        << "behind the end";
}

TEST_F(CachedFileTest, ThreadsMayUseFilesOfTheirOwnAndItGoesOnAfterAShutdown) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            veloc::cached_file_t file(top_ + "/scratch");
            ASSERT_TRUE(open(file, std::to_string(t)));
            for (int i = 0; i < 200; ++i) {
                ASSERT_TRUE(
                    file.pwrite(std::string(1000, static_cast<char>('a' + t)).data(), 1000, 1000 * i));
                if (i % 50 == 0) veloc::cached_file_t::shutdown();
            }
        });
    for (auto& thread : threads) thread.join();
    ASSERT_TRUE(veloc::cached_file_t::flush());
    for (int t = 0; t < 4; ++t)
        EXPECT_EQ(content(std::to_string(t)), std::string(200'000, static_cast<char>('a' + t)));
}

}  // namespace
