// A directory of a test's own, removed with all that is in it when the test ends.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tailrace::internal::test {

class ScratchDirectory {
  public:
    // Under `base`, or where TMPDIR says, or in /tmp.
    explicit ScratchDirectory(std::string base = "") {
        const char* configured = getenv("TMPDIR");
        if (base.empty()) base = configured != nullptr && *configured != '\0' ? configured : "/tmp";
        std::string pattern = base + "/tailrace-test-XXXXXX";
        if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
        EXPECT_FALSE(path_.empty()) << "no scratch directory could be made in " << base;
    }
    ScratchDirectory(const ScratchDirectory&) = delete;
    ScratchDirectory& operator=(const ScratchDirectory&) = delete;
    ~ScratchDirectory() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

// The seed of a random test: TAILRACE_SEED replays one. It is printed when the test fails.
inline uint64_t test_seed() {
    if (const char* text = getenv("TAILRACE_SEED"); text != nullptr) return strtoull(text, nullptr, 10);
    return std::random_device{}();
}

// Runs `body` in a child process, which must return 0.
inline int in_child(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Bytes that differ from place to place and from salt to salt.
inline std::vector<std::byte> pattern(size_t bytes, uint64_t salt) {
    std::mt19937_64 random(salt);
    std::vector<std::byte> result(bytes);
    size_t at = 0;
    while (at < bytes) {
        uint64_t word = random();
        for (int i = 0; i < 8 && at < bytes; ++i, word >>= 8)
            result[at++] = static_cast<std::byte>(word & 0xff);
    }
    return result;
}

}  // namespace tailrace::internal::test

// Asserts on a Status or Result and shows its sentence.
#define TAILRACE_ASSERT_OK(expression)                                                       \
    do {                                                                                     \
        const ::tailrace::internal::Status assert_status =                                   \
            ::tailrace::internal::test::status_of(expression);                               \
        ASSERT_TRUE(assert_status.ok()) << #expression << ": " << assert_status.to_string(); \
    } while (false)
#define TAILRACE_EXPECT_OK(expression)                                                       \
    do {                                                                                     \
        const ::tailrace::internal::Status expect_status =                                   \
            ::tailrace::internal::test::status_of(expression);                               \
        EXPECT_TRUE(expect_status.ok()) << #expression << ": " << expect_status.to_string(); \
    } while (false)
// Expects a failure of that code whose sentence contains the text.
#define TAILRACE_EXPECT_FAILS(expression, expected_code, text)                                               \
    do {                                                                                                     \
        const ::tailrace::internal::Status fails_status = ::tailrace::internal::test::status_of(expression); \
        EXPECT_EQ(fails_status.code(), expected_code) << #expression << ": " << fails_status.to_string();    \
        EXPECT_NE(fails_status.message().find(text), std::string::npos) << fails_status.to_string();         \
    } while (false)

#include "base/status.h"

namespace tailrace::internal::test {
inline Status status_of(const Status& status) {
    return status;
}
template <class T>
Status status_of(const Result<T>& result) {
    return result.status();
}
}  // namespace tailrace::internal::test
