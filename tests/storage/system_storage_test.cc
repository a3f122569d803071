#include <sys/syscall.h>

#include <cerrno>

#include "base/log.h"
#include "storage/forbidden_call.h"
#include "storage/scratch.h"
#include "storage/storage.h"

namespace tailrace::internal::test {
namespace {

TEST(JoinPathTest, PutsOneSlashBetween) {
    EXPECT_EQ(join_path("a", "b"), "a/b");
    EXPECT_EQ(join_path("a/", "b"), "a/b");
    EXPECT_EQ(join_path("/", "b"), "/b");
    EXPECT_EQ(join_path("", "b"), "b");
}

TEST(SystemStorageTest, PosixIsAlwaysThere) {
    auto storage = make_system_storage({IoEngine::posix, 32, 1 << 20});
    TAILRACE_ASSERT_OK(storage);
    EXPECT_EQ((*storage)->name(), "posix");
}

TEST(SystemStorageTest, AutomaticWorksWhereIoUringIsForbiddenAndSaysSo) {
    constexpr int no_filter = 99;
    const int result = in_child([] {
        if (!forbid_call(__NR_io_uring_setup, EPERM)) return no_filter;
        std::vector<std::string> messages;
        set_log_level(LogLevel::info);
        set_log_callback([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
        auto automatic = make_system_storage({IoEngine::automatic, 32, 1 << 20});
        auto strict = make_system_storage({IoEngine::io_uring, 32, 1 << 20});
        set_log_callback({});
        if (!automatic.ok() || (*automatic)->name() != "posix") return 1;
        if (strict.status().code() != Code::unsupported) return 2;
#if TAILRACE_HAVE_IO_URING
        if (messages.size() != 1 || messages[0].find("plain system calls") == std::string::npos) return 3;
#endif
        return 0;
    });
    if (result == no_filter) GTEST_SKIP() << "the kernel lets a process set no seccomp filter";
    EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace tailrace::internal::test
