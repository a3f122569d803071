// Every session call with wrong arguments: an error and a sentence, and nothing is harmed.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "c_api/fixture.h"

namespace {

using MisuseTest = CApiTest;

TEST_F(MisuseTest, EveryCallRefusesASessionThatIsNone) {
    tailrace_session* closed = open();
    ASSERT_TRUE(ok(tailrace_close(closed)));
    const uint64_t one = 1, zero = 0;
    const tailrace_array array = array_of(TAILRACE_INT8, 1, &one, &zero, &one);
    char byte = 0;
    const char* names[] = {"a"};
    tailrace_epoch_info info;
    tailrace_epoch_info* list = nullptr;
    size_t count = 0;
    int yes = 0;
    const char* why = nullptr;
    tailrace_reader* reader = nullptr;
    for (auto [session, code] :
         {std::pair(closed, TAILRACE_FAILED_STATE),
          std::pair(static_cast<tailrace_session*>(nullptr), TAILRACE_INVALID_ARGUMENT)}) {
        EXPECT_TRUE(fails(code, tailrace_register(session, "a", &byte, 1), "session"));
        EXPECT_TRUE(fails(code, tailrace_register_array(session, "a", &byte, &array), "session"));
        EXPECT_TRUE(fails(code, tailrace_update(session, "a", &byte, 1), "session"));
        EXPECT_TRUE(fails(code, tailrace_update_array(session, "a", &byte, &array), "session"));
        EXPECT_TRUE(fails(code, tailrace_unregister(session, "a"), "session"));
        EXPECT_TRUE(fails(code, tailrace_save(session, 1), "session"));
        EXPECT_TRUE(fails(code, tailrace_epoch_state(session, 1, &info), "session"));
        EXPECT_TRUE(fails(code, tailrace_wait(session, 1, -1), "session"));
        EXPECT_TRUE(fails(code, tailrace_wait_all(session, -1), "session"));
        EXPECT_TRUE(fails(code, tailrace_should_save(session, &yes), "session"));
        EXPECT_TRUE(fails(code, tailrace_should_stop(session, &why), "session"));
        EXPECT_TRUE(fails(code, tailrace_list(session, &list, &count), "session"));
        EXPECT_TRUE(fails(code, tailrace_restore(session, 1, nullptr), "session"));
        EXPECT_TRUE(fails(code, tailrace_restore_some(session, 1, names, 1, nullptr), "session"));
        EXPECT_TRUE(fails(code, tailrace_reader_open(session, 1, 1, 0, &reader), "session"));
        EXPECT_EQ(tailrace_rank(session), -1);
        EXPECT_EQ(tailrace_rank_count(session), 0);
        EXPECT_EQ(tailrace_setting(session, "files"), nullptr);
    }
    EXPECT_TRUE(fails(TAILRACE_FAILED_STATE, tailrace_close(closed), "session"));
    EXPECT_TRUE(ok(tailrace_close(nullptr)));
    EXPECT_EQ(list, nullptr);
    tailrace_list_free(nullptr);
}

TEST_F(MisuseTest, AForkedChildIsRefusedAtOnceAndItsParentGoesOn) {
    tailrace_session* session = open();
    std::vector<char> state(100'000, 'a');
    ASSERT_TRUE(ok(tailrace_register(session, "state", state.data(), state.size())));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session, 1, TAILRACE_NEWEST, 0, &reader)));
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);  // a call that waits for what is only in the parent would never come back
        size_t count = 0;
        const bool refused =
            fails(TAILRACE_FAILED_STATE, tailrace_save(session, 2), "child") &&
            fails(TAILRACE_FAILED_STATE, tailrace_wait_all(session, -1), "child") &&
            fails(TAILRACE_FAILED_STATE, tailrace_close(session), "child") &&
            fails(TAILRACE_FAILED_STATE, tailrace_reader_region_count(reader, 0, &count), "child");
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    tailrace_reader_close(reader);
    EXPECT_TRUE(ok(tailrace_save(session, 3)));
    EXPECT_TRUE(ok(tailrace_close(session)));
}

// Unwinding through the interface would end the program.
// Statics of a program may close sessions, after its main thread's own variables have gone.
TEST_F(MisuseTest, ACallInAnExitHandlerMayFail) {
    const auto call_at_exit = [] {
        for (int i = 0; i < 3; ++i)
            if (tailrace_save(nullptr, 1) == TAILRACE_OK || std::strlen(tailrace_last_error()) < 20) _exit(3);
    };
    EXPECT_EXIT(
        {
            (void)tailrace_save(nullptr, 1);
            std::atexit(call_at_exit);
            std::exit(0);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(MisuseTest, ACancelledThreadEndsItsCallFirst) {
    tailrace_session* session = open();
    static char memory[1 << 20];
    ASSERT_TRUE(ok(tailrace_register(session, "a", memory, sizeof memory)));
    struct Work {
        tailrace_session* session;
        std::atomic<uint64_t> saved{0};
    } work{session};
    pthread_t thread{};
    ASSERT_EQ(pthread_create(
                  &thread, nullptr,
                  [](void* argument) -> void* {
                      auto& own = *static_cast<Work*>(argument);
                      for (;; pthread_testcancel()) {
                          tailrace_save(own.session, own.saved + 1);
                          tailrace_wait(own.session, own.saved + 1, -1);
                          ++own.saved;
                      }
                  },
                  &work),
              0);
    while (work.saved < 3) usleep(100);
    ASSERT_EQ(pthread_cancel(thread), 0);
    void* ended = nullptr;
    ASSERT_EQ(pthread_join(thread, &ended), 0);
    EXPECT_EQ(ended, PTHREAD_CANCELED);
    EXPECT_TRUE(ok(tailrace_save(session, work.saved + 2)));
    EXPECT_TRUE(ok(tailrace_close(session)));
}

TEST_F(MisuseTest, BadRegionsAreRefusedAndTheOthersStay) {
    tailrace_session* session = open();
    int value = 42;
    ASSERT_TRUE(ok(tailrace_register(session, "value", &value, sizeof value)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_register(session, nullptr, &value, 4), "name"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_register(session, "", &value, 4)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_register(session, std::string(4097, 'n').c_str(), &value, 4)));
    EXPECT_TRUE(ok(tailrace_register(session, std::string(4096, 'n').c_str(), &value, 4)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_register(session, "x", nullptr, 4), "\"x\""));
    EXPECT_TRUE(fails(TAILRACE_ALREADY_EXISTS, tailrace_register(session, "value", &value, 4), "value"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_update(session, "valeu", &value, 4), "valeu"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_update(session, "value", nullptr, 4), "value"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_update(session, nullptr, &value, 4), "name"));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_unregister(session, "valeu"), "valeu"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_unregister(session, nullptr), "name"));
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    value = 0;
    ASSERT_TRUE(ok(tailrace_restore(session, 1, nullptr)));
    EXPECT_EQ(value, 42);
    EXPECT_TRUE(ok(tailrace_unregister(session, "value")));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_unregister(session, "value")));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

// What a C program may do, but a C++ program may not say.
void set_type(tailrace_array& array, int number) {
    static_assert(sizeof array.type == sizeof number);
    std::memcpy(&array.type, &number, sizeof number);
}

TEST_F(MisuseTest, BadArraysAreRefused) {
    tailrace_session* session = open();
    std::vector<double> memory(10);
    const uint64_t ten[] = {10}, zero[] = {0}, six[] = {6}, five[] = {5}, huge[] = {UINT64_MAX};
    const auto refused = [&](tailrace_array array, const char* part) {
        EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                          tailrace_register_array(session, "a", memory.data(), &array), part));
    };
    const tailrace_array good = array_of(TAILRACE_FLOAT64, 1, ten, zero, ten);
    tailrace_array bad = good;
    bad.dimensions = 0, refused(bad, "dimensions");
    bad.dimensions = -3, refused(bad, "dimensions");
    bad.dimensions = 17, refused(bad, "dimensions");
    bad = good, set_type(bad, 16), refused(bad, "type");
    set_type(bad, -1), refused(bad, "type");
    set_type(bad, 256 + TAILRACE_FLOAT64), refused(bad, "type");
    bad = good, bad.global_shape = nullptr, refused(bad, "global_shape");
    bad = good, bad.offset = nullptr, refused(bad, "offset");
    bad = good, bad.local_shape = nullptr, refused(bad, "local_shape");
    bad = good, bad.offset = five, bad.local_shape = six, refused(bad, "");
    bad = good, bad.flags = TAILRACE_ARRAY_GAPS | 4u, refused(bad, "array.flags is 0x5");
    bad.flags = uint64_t{1} << 63, refused(bad, "array.flags");
    const uint64_t sixteen[] = {16};
    bad = good, bad.memory_shape = ten, bad.memory_offset = five, refused(bad, "dimension 0");
    bad = good, bad.memory_offset = five, refused(bad, "memory's shape");
    bad = good, bad.memory_shape = ten, bad.memory_bytes = 79, refused(bad, "has 79 bytes");
    bad = good, bad.memory_stride_bytes = five, refused(bad, "share memory");
    bad = good, bad.memory_stride_bytes = sixteen, bad.memory_bytes = 80, refused(bad, "needs 152");
    bad = good, bad.memory_shape = huge, refused(bad, "exceeds the address space");
    for (size_t i = 0; i < std::size(good.reserved); ++i)
        bad = good, bad.reserved[i] = 1, refused(bad, "tailrace_array array = {0}");
    bad = good, bad.global_shape = huge, bad.offset = zero, bad.local_shape = huge, refused(bad, "");
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      tailrace_register_array(session, "a", memory.data(), nullptr), "array"));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_register_array(session, "a", nullptr, &good), "\"a\""));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_register_array(session, nullptr, memory.data(), &good)));
    EXPECT_TRUE(fails(TAILRACE_NOT_FOUND, tailrace_update_array(session, "a", memory.data(), &good), "a"));
    EXPECT_TRUE(ok(tailrace_register_array(session, "a", memory.data(), &good)));
    EXPECT_TRUE(fails(TAILRACE_ALREADY_EXISTS, tailrace_register_array(session, "a", memory.data(), &good)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_update_array(session, "a", nullptr, &good)));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_update_array(session, "a", memory.data(), nullptr)));
    ASSERT_TRUE(ok(tailrace_close(session)));
}

TEST_F(MisuseTest, NullResultsAreRefused) {
    tailrace_session* session = open();
    size_t count = 0;
    tailrace_epoch_info* list = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_epoch_state(session, 1, nullptr), "info"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_list(session, nullptr, &count), "epochs"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_list(session, &list, nullptr), "count"));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore_some(session, 1, nullptr, 1, nullptr), "names"));
    const char* names[] = {"a", nullptr};
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore_some(session, 1, names, 2, nullptr), "names[1]"));
    EXPECT_TRUE(
        fails(TAILRACE_INVALID_ARGUMENT, tailrace_restore_some(session, 1, names, 0, nullptr), "no names"));
    EXPECT_EQ(tailrace_setting(session, nullptr), nullptr);
    ASSERT_TRUE(ok(tailrace_close(session)));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, tailrace_open(nullptr, nullptr), "session"));
}

TEST_F(MisuseTest, BadCombinationsAreRefusedByOpen) {
    tailrace_session* session = nullptr;
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, try_open({{"files", "65"}}, &session), "64"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT,
                      try_open({{"buffer_bytes", "1MiB"}, {"block_bytes", "2MiB"}}, &session), "multiple"));
    EXPECT_TRUE(fails(TAILRACE_INVALID_ARGUMENT, try_open({{"buffer_bytes", "100000"}}, &session), "256KiB"));
    EXPECT_EQ(session, nullptr);
    EXPECT_FALSE(std::filesystem::exists(shared_)) << "nothing is made for a session that makes no sense";
}

}  // namespace
