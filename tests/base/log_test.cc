#include "base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace tailrace::internal::test {
namespace {

class LogTest : public testing::Test {
  protected:
    ~LogTest() override {
        set_log_callback({});
        set_log_level(LogLevel::warning);
    }
};

TEST_F(LogTest, MessagesReachTheCallbackFromTheLevelOn) {
    std::vector<std::string> seen;
    set_log_callback([&](LogLevel level, std::string_view message) {
        seen.push_back(std::to_string(static_cast<int>(level)) + std::string(message));
    });
    set_log_level(LogLevel::info);
    log(LogLevel::debug, "too {}", "quiet");
    log(LogLevel::info, "n = {}", 3);
    log(LogLevel::error, "bad");
    EXPECT_EQ(seen, (std::vector<std::string>{"1n = 3", "3bad"}));
}

// In a process of its own: the environment is read once.
TEST_F(LogTest, TheEnvironmentSetsTheLevelAtStart) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto with_level = [](const char* level) {
        ::setenv("TAILRACE_LOG", level, 1);
        log(LogLevel::debug, "a detail");
        std::exit(0);
    };
    EXPECT_EXIT(with_level("debug"), testing::ExitedWithCode(0), "tailrace: debug: a detail");
    EXPECT_EXIT(with_level("loud"), testing::ExitedWithCode(0), "TAILRACE_LOG=\"loud\" is not a level");
}

TEST_F(LogTest, OffSilencesErrorsToo) {
    int seen = 0;
    set_log_callback([&](LogLevel, std::string_view) { ++seen; });
    set_log_level(LogLevel::off);
    log(LogLevel::error, "bad");
    log_message(LogLevel::off, "no level of a message");
    EXPECT_EQ(seen, 0);
}

TEST_F(LogTest, WithoutACallbackWarningsGoToStderrWithALineEnd) {
    testing::internal::CaptureStderr();
    log(LogLevel::info, "hidden");
    log(LogLevel::warning, "shown {}", 1);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "tailrace: warning: shown 1\n");
}

TEST_F(LogTest, TheCallbackMayBeReplacedWhileOthersLog) {
    std::atomic<int> seen{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 3; ++t) {
            threads.emplace_back([] {
                for (int i = 0; i < 200; ++i) log(LogLevel::debug, "{}", i);
            });
        }
        for (int i = 0; i < 100; ++i) {
            set_log_callback([&seen](LogLevel, std::string_view) { ++seen; });
            set_log_level(LogLevel::debug);
        }
    }
    log(LogLevel::debug, "last");
    EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace tailrace::internal::test
