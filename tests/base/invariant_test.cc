#include "base/invariant.h"

#include <gtest/gtest.h>

#include <string>

#include "base/caught.h"
#include "base/log.h"

namespace tailrace::internal::test {
namespace {

std::string told;

TEST(InvariantTest, ABrokenOneIsThrownWithItsPlaceAndTheLastSteps) {
    std::string logged;
    set_log_callback([&](LogLevel, std::string_view message) { logged += message; });
    for (uint64_t i = 0; i < 100; ++i) note_step("step of the test", i);
    const Status failed = catching([]() -> Status {
        INVARIANT(1 + 1 == 3);
        return {};
    });
    set_log_callback({});
    EXPECT_EQ(failed.code(), Code::failed_state);
    EXPECT_NE(failed.message().find("`1 + 1 == 3` does not hold"), std::string::npos) << failed.message();
    EXPECT_NE(failed.message().find("invariant_test.cc:"), std::string::npos) << failed.message();
    EXPECT_NE(logged.find("step of the test 99"), std::string::npos) << logged;
    EXPECT_EQ(logged.find("step of the test 67 "), std::string::npos) << "more than the last 32";
}

TEST(InvariantTest, OneThatHoldsDoesNothing) {
    int looked = 0;
    INVARIANT(++looked == 1);
    EXPECT_EQ(looked, 1);
}

TEST(InvariantTest, AHandlerHearsOfItFirst) {
    set_log_level(LogLevel::off);
    on_broken_invariant([](const std::string& sentence) { told = sentence; });
    EXPECT_THROW(INVARIANT(false), BrokenInvariant);
    on_broken_invariant(nullptr);
    set_log_level(LogLevel::warning);
    EXPECT_NE(told.find("`false` does not hold"), std::string::npos);
}

}  // namespace
}  // namespace tailrace::internal::test
