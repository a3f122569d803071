// Opening files by what the system answers.
#include "storage/system_path.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "storage/file_size_signal.h"
#include "storage/forbidden_call.h"
#include "storage/scratch.h"

namespace tailrace::internal::test {
namespace {

// A network file system: what two clients that make one file at the same time are told.
TEST(OpenOrCreateTest, WhoComesSecondOpensTheFile) {
    ScratchDirectory scratch;
    const std::string path = scratch.path() + "/file";
    std::vector<int> answers, asked;  // errno values, 0 for the real call
    const auto open = [&](const std::string& name, int flags) {
        asked.push_back(flags & O_CREAT);
        const int answer = answers.empty() ? 0 : answers.front();
        if (!answers.empty()) answers.erase(answers.begin());
        if (answer == 0) return open_descriptor(name, flags);
        errno = answer;
        return Descriptor();
    };
    const auto opened = [&](std::vector<int> told) {
        answers = std::move(told);
        asked.clear();
        const bool valid = open_or_create(path, O_RDWR, open, std::chrono::milliseconds(0)).valid();
        if (!valid) asked.push_back(errno);
        return valid;
    };
    EXPECT_TRUE(opened({}));
    EXPECT_EQ(asked, std::vector{O_CREAT});
    EXPECT_TRUE(opened({EEXIST}));
    EXPECT_EQ(asked, (std::vector{O_CREAT, 0}));
    EXPECT_TRUE(opened({EEXIST, ENOENT}));
    EXPECT_EQ(asked, (std::vector{O_CREAT, 0, O_CREAT}));
    EXPECT_FALSE(opened({EACCES}));
    EXPECT_EQ(asked, (std::vector{O_CREAT, EACCES}));
    EXPECT_FALSE(opened({EEXIST, EACCES}));
    EXPECT_EQ(asked, (std::vector{O_CREAT, 0, EACCES}));
    std::vector<int> contradictions;
    for (int i = 0; i < 50; ++i) contradictions.insert(contradictions.end(), {EEXIST, ENOENT});
    EXPECT_FALSE(opened(contradictions)) << "it must give up some time";
    EXPECT_GT(asked.size(), 20u) << "with all pauses two seconds: so long some clients remember";
}

// Space is reserved in pieces. Here the second one is refused. Other ranks may have written behind the
// file's old end meanwhile.
TEST(ReserveSpaceTest, AFileWhoseSpaceIsRefusedIsNotCut) {
    const ScratchDirectory scratch;
    const FileSizeSignalBlocked blocked;
    const Descriptor file = open_descriptor(scratch / "file", O_RDWR | O_CREAT);
    ASSERT_TRUE(file.valid());
    ASSERT_EQ(write(file.get(), "bytes", 5), 5);
    constexpr uint64_t mebibyte = 1 << 20;
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit least = before;
    least.rlim_cur = 100 * mebibyte;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &least), 0);
    const int refused = reserve_space(file.get(), 0, 128 * mebibyte);
    const auto length = std::filesystem::file_size(scratch / "file");
    const int reserved = reserve_space(file.get(), 0, 100 * mebibyte);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    if (refused == EOPNOTSUPP) GTEST_SKIP() << "this file system reserves nothing";
    EXPECT_EQ(refused, EFBIG);
    EXPECT_EQ(length, 64 * mebibyte);
    EXPECT_EQ(reserved, 0);
    EXPECT_EQ(std::filesystem::file_size(scratch / "file"), 100 * mebibyte);
}

// POSIX lets file systems answer EINVAL, too. None of these is at hand, so the kernel answers for them.
TEST(ReserveSpaceTest, WhereAFileSystemCannotReserveZerosAreWrittenWhateverItAnswers) {
    constexpr int no_filter = 99;
    constexpr uint64_t bytes = 200'000;
    for (const int answer : {EOPNOTSUPP, EINVAL, ENOSYS}) {
        const ScratchDirectory scratch;
        const Descriptor file = open_descriptor(scratch / "file", O_RDWR | O_CREAT);
        ASSERT_TRUE(file.valid());
        const int result = in_child([&] {
            if (!forbid_call(__NR_fallocate, answer)) return no_filter;
            if (reserve_space(file.get(), 0, bytes) != EOPNOTSUPP) return 1;
            return reserve_or_fill(file.get(), bytes) == 0 ? 0 : 2;
        });
        if (result == no_filter) GTEST_SKIP() << "the kernel lets a process set no seccomp filter";
        EXPECT_EQ(result, 0) << answer;
        struct stat info {};
        ASSERT_EQ(fstat(file.get(), &info), 0);
        EXPECT_EQ(static_cast<uint64_t>(info.st_size), bytes) << answer;
        EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, bytes) << answer << ": there are holes";
    }
}

}  // namespace
}  // namespace tailrace::internal::test
