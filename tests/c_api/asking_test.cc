// When to save and when to stop, in a program of one rank: settings, a signal, the end of the job.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "c_api/fixture.h"

using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

class AskingCTest : public CApiTest {
  protected:
    // The reason to stop, asked for until there is one, for ten seconds at most.
    static std::string reason(tailrace_session* session) {
        const char* why = nullptr;
        for (int call = 0; call < 10'000 && why == nullptr; ++call) {
            if (!ok(tailrace_should_stop(session, &why))) return "it failed";
            ::usleep(1000);
        }
        return why == nullptr ? "" : why;
    }
    static int64_t now() {
        return std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
            .count();
    }
};

TEST_F(AskingCTest, WithoutSettingsThereIsNoReason) {
    tailrace_session* session = open();
    for (int call = 0; call < 100; ++call) {
        int yes = 7;
        const char* why = "";
        ASSERT_TRUE(ok(tailrace_should_save(session, &yes)));
        ASSERT_TRUE(ok(tailrace_should_stop(session, &why)));
        EXPECT_EQ(yes, 0);
        EXPECT_EQ(why, nullptr);
    }
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(AskingCTest, ASignalIsAReasonThatStaysAndNoLongerEndsTheProgram) {
    tailrace_session* session = open({{"stop_signals", "TERM USR2"}});
    const char *why = nullptr, *again = nullptr;
    ASSERT_TRUE(ok(tailrace_should_stop(session, &why)));
    EXPECT_EQ(why, nullptr);
    ::raise(SIGTERM);
    EXPECT_EQ(reason(session), "signal TERM at rank 0");
    ASSERT_TRUE(ok(tailrace_should_stop(session, &why)));
    ASSERT_TRUE(ok(tailrace_should_stop(session, &again)));
    EXPECT_EQ(why, again) << "the program may keep it";
    ASSERT_TRUE(ok(tailrace_close(session)));
    struct sigaction current {};
    ASSERT_EQ(::sigaction(SIGTERM, nullptr, &current), 0);
    EXPECT_EQ(current.sa_handler, SIG_DFL);

    session = open({{"stop_signals", "TERM"}});
    ASSERT_TRUE(ok(tailrace_should_stop(session, &why)));
    EXPECT_EQ(why, nullptr) << "that signal came before this session";
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(AskingCTest, WithoutTheSettingNoSignalIsCaught) {
    tailrace_session* session = open();
    struct sigaction current {};
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
        ASSERT_EQ(::sigaction(number, nullptr, &current), 0);
        EXPECT_EQ(current.sa_handler, SIG_DFL);
    }
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(AskingCTest, SlurmsEndOfTheJobIsAReason) {
    ::setenv("SLURM_JOB_END_TIME", std::to_string(now() + 30).c_str(), 1);
    tailrace_session* session = open();
    ::unsetenv("SLURM_JOB_END_TIME");
    EXPECT_THAT(reason(session), StartsWith("the job ends in "));
    ASSERT_TRUE(ok(tailrace_close(session)));
    session = open({{"job_end", std::to_string(now() + 30)}, {"stop_before", "5s"}});
    const char* why = nullptr;
    ASSERT_TRUE(ok(tailrace_should_stop(session, &why)));
    EXPECT_EQ(why, nullptr) << "it is early enough in 25 s";
    ASSERT_TRUE(ok(tailrace_close(session)));
    session = open({{"job_minutes", "1"}});
    EXPECT_THAT(reason(session), StartsWith("the job ends in "));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(AskingCTest, SavesComeByCallsAndByTime) {
    tailrace_session* session = open({{"save_every", "3"}});
    int yes = 0;
    for (int call = 1; call <= 12; ++call) {
        ASSERT_TRUE(ok(tailrace_should_save(session, &yes)));
        EXPECT_EQ(yes, call % 3 == 0) << call;
    }
    ASSERT_TRUE(ok(tailrace_close(session)));
    session = open({{"save_interval", "50ms"}});
    ASSERT_TRUE(ok(tailrace_should_save(session, &yes)));
    ::usleep(60'000);
    ASSERT_TRUE(ok(tailrace_should_save(session, &yes)));
    EXPECT_EQ(yes, 1);
    ASSERT_TRUE(ok(tailrace_should_save(session, &yes)));
    EXPECT_EQ(yes, 0) << "it has been said";
    ASSERT_TRUE(ok(tailrace_close(session)));
    session = open({{"mtbf", "1s"}});
    ::usleep(150'000);
    ASSERT_TRUE(ok(tailrace_should_save(session, &yes)));
    EXPECT_EQ(yes, 1) << "the first one comes soon";
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(AskingCTest, MisuseIsAnError) {
    tailrace_session* session = open();
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_should_save(session, nullptr), "\"yes\" is NULL"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_should_stop(session, nullptr), "\"why\" is NULL"));
    int yes = 0;
    const char* why = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_should_save(nullptr, &yes), "NULL"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_should_stop(nullptr, &why), "NULL"));
    ASSERT_TRUE(ok(tailrace_close(session)));
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_should_save(session, &yes), "closed"));
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_should_stop(session, &why), "closed"));
    tailrace_options* made = tailrace_options_new();
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_options_set(made, "stop_signals", "KILL"),
                      "not a signal that asks a program to stop"));
    tailrace_options_free(made);
}

}  // namespace
