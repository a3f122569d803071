#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>

#include "base/log.h"
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

// From now on the kernel refuses io_uring to this process, as many a container does. For good: call it in a
// child.
bool forbid_io_uring() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof program / sizeof program[0], program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(SystemStorageTest, AutomaticWorksWhereIoUringIsForbiddenAndSaysSo) {
    constexpr int no_filter = 99;
    const int result = in_child([] {
        if (!forbid_io_uring()) return no_filter;
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
