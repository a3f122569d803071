#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mutex>

#include "base/log.h"
#include "storage/scratch.h"
#include "storage/storage.h"

namespace tailrace::test {
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

TEST(SystemStorageTest, AutomaticWorksWithoutARingAndSaysSo) {
    std::vector<std::string> messages;
    set_log_level(LogLevel::info);
    set_log_callback([&](LogLevel, std::string_view message) { messages.emplace_back(message); });
    // No descriptor can be had, hence no ring.
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
    close(next);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    auto automatic = make_system_storage({IoEngine::automatic, 32, 1 << 20});
    auto strict = make_system_storage({IoEngine::io_uring, 32, 1 << 20});
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    set_log_callback({});
    set_log_level(LogLevel::warning);
    TAILRACE_ASSERT_OK(automatic);
    EXPECT_EQ((*automatic)->name(), "posix");
    EXPECT_EQ(strict.status().code(), Code::unsupported);
#if TAILRACE_HAVE_IO_URING
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_NE(messages[0].find("plain system calls"), std::string::npos) << messages[0];
#endif
}

}  // namespace
}  // namespace tailrace::test
