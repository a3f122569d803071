// What the background costs in memory: its buffers and a small constant, however large the checkpoint is.
// Measured, as the kernel counts it: anonymous memory of the process while a flush is under way.
#include <algorithm>
#include <fstream>

#include "c_api/fixture.h"

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

uint64_t anonymous_bytes() {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("RssAnon:", 0) == 0) return std::stoull(line.substr(8)) * 1024;
    return 0;
}

class MemoryTest : public CApiTest {};

TEST_F(MemoryTest, AFlushTakesItsBuffersAndASmallConstant) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's memory cannot be told from the library's";
#endif
    constexpr uint64_t state_bytes = 256 * mib, buffers = 4, buffer_bytes = 2 * mib;
    std::vector<char> state(state_bytes, 'x');
    tailrace_session* session = open({{"buffers", std::to_string(buffers)},
                                      {"buffer_bytes", std::to_string(buffer_bytes)},
                                      {"writers", "16"}});
    ASSERT_TRUE(ok(tailrace_register(session, "state", state.data(), state.size())));
    const uint64_t before = anonymous_bytes();
    ASSERT_GT(before, state_bytes);

    uint64_t most = before;
    size_t looks = 0;
    for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
        ASSERT_TRUE(ok(tailrace_save(session, epoch)));
        tailrace_code code = TAILRACE_TIMEOUT;
        while (code == TAILRACE_TIMEOUT) {
            most = std::max(most, anonymous_bytes());
            ++looks;
            code = tailrace_wait(session, epoch, 0.002);
        }
        ASSERT_TRUE(ok(code));
    }
    EXPECT_GT(looks, 4u) << "too few to have seen the flush at work";
    // The index: about 100 bytes for each chunk; threads' stacks, rings and messages.
    EXPECT_LT(most - before, buffers * buffer_bytes + 8 * mib);
    EXPECT_TRUE(ok(tailrace_close(session)));
}

}  // namespace
