#include "when/stop_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/log.h"

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::atomic<int> theirs{0};
struct sigaction replaced {};

void count(int) {
    ++theirs;
}
void count_and_chain(int number, siginfo_t* info, void* context) {
    ++theirs;
    if ((replaced.sa_flags & SA_SIGINFO) != 0) replaced.sa_sigaction(number, info, context);
}

// Puts the handlers back that were there.
class StopSignalsTest : public testing::Test {
  protected:
    StopSignalsTest() {
        theirs = 0;
        ::sigaction(SIGUSR2, nullptr, &before_);
    }
    ~StopSignalsTest() override { ::sigaction(SIGUSR2, &before_, nullptr); }
    static struct sigaction current() {
        struct sigaction found {};
        ::sigaction(SIGUSR2, nullptr, &found);
        return found;
    }
    struct sigaction before_ {};
};

TEST_F(StopSignalsTest, ASignalIsCountedInsteadOfEndingTheProcess) {
    auto signals = StopSignals::watch({SIGUSR2}).value();
    EXPECT_FALSE(signals.got());
    ::raise(SIGUSR2);
    EXPECT_EQ(signals.got(), SIGUSR2);
    auto later = StopSignals::watch({SIGUSR2}).value();
    EXPECT_FALSE(later.got()) << "it came before";
}

TEST_F(StopSignalsTest, TheHandlerBeforeIsCalledAndPutBack) {
    ::signal(SIGUSR2, count);
    {
        auto signals = StopSignals::watch({SIGUSR2}).value();
        auto second = StopSignals::watch({SIGUSR2}).value();
        ::raise(SIGUSR2);
        EXPECT_EQ(theirs, 1);
        EXPECT_TRUE(signals.got() && second.got());
    }
    EXPECT_EQ(current().sa_handler, count);
    ::raise(SIGUSR2);
    EXPECT_EQ(theirs, 2);
}

TEST_F(StopSignalsTest, AHandlerInstalledLaterStaysAndNothingCallsItselfForEver) {
    struct sigaction theirs_now {};
    theirs_now.sa_sigaction = count_and_chain;
    theirs_now.sa_flags = SA_SIGINFO;
    {
        auto signals = StopSignals::watch({SIGUSR2}).value();
        ::sigaction(SIGUSR2, &theirs_now, &replaced);
        ::raise(SIGUSR2);
        EXPECT_TRUE(signals.got()) << "theirs calls ours";
    }
    EXPECT_EQ(current().sa_sigaction, count_and_chain);
    auto again = StopSignals::watch({SIGUSR2}).value();
    ::raise(SIGUSR2);
    EXPECT_EQ(theirs, 2);
    EXPECT_TRUE(again.got());
    ::sigaction(SIGUSR2, &replaced, nullptr);  // as they found it
}

// A process that has replaced our handler before, and now has none that could call it.
TEST_F(StopSignalsTest, ASignalWhoseLaterHandlerIsGoneIsCaughtAgain) {
    for (const auto none : {SIG_DFL, SIG_IGN}) {
        {
            auto signals = StopSignals::watch({SIGUSR2}).value();
            ::signal(SIGUSR2, count);
        }
        ::signal(SIGUSR2, none);
        {
            auto again = StopSignals::watch({SIGUSR2}).value();
            EXPECT_NE(current().sa_handler, none);
            if (current().sa_handler != SIG_DFL) ::raise(SIGUSR2);
            EXPECT_EQ(again.got(), SIGUSR2);
        }
        EXPECT_EQ(current().sa_handler, none) << "as it was before the second";
    }
    EXPECT_EQ(theirs, 0);
}

TEST_F(StopSignalsTest, AHandlerThatMayNotCallOursIsWarnedOfOnce) {
    // A signal of its own: once in a process is meant.
    const auto before = ::signal(SIGUSR1, SIG_DFL);
    std::vector<std::string> said;
    set_log_callback([&](LogLevel, std::string_view message) { said.emplace_back(message); });
    {
        auto signals = StopSignals::watch({SIGUSR1}).value();
        ::signal(SIGUSR1, count);
    }
    EXPECT_THAT(said, IsEmpty());
    for (int session = 0; session < 3; ++session) (void)StopSignals::watch({SIGUSR1}).value();
    set_log_callback({});
    ::signal(SIGUSR1, before);
    EXPECT_THAT(said, ElementsAre(HasSubstr("only if the new one calls the handler before it")));
}

TEST_F(StopSignalsTest, WhatCannotBeCaughtIsRefused) {
    EXPECT_FALSE(StopSignals::watch({SIGUSR2, SIGKILL}).ok());
    EXPECT_EQ(current().sa_handler, before_.sa_handler) << "the other is not caught either";
    EXPECT_FALSE(StopSignals::watch({0}).ok());
    EXPECT_FALSE(StopSignals::watch({1000}).ok());
}

}  // namespace
}  // namespace tailrace::internal
