// A region of more than 4 GiB: sizes and offsets beyond 32 bits all the way through the node-local tier.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "c_api/fixture.h"

namespace {

constexpr uint64_t gib = uint64_t{1} << 30;
constexpr uint64_t array_bytes = 4 * gib + 100 * 1024 * 1024;

// Memory that this machine has to spare, in bytes.
uint64_t available_memory() {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    for (uint64_t kib; file >> name >> kib; std::getline(file, unit)) {
        if (name == "MemAvailable:") return kib * 1024;
    }
    return 0;
}

class LargeRegionTest : public CApiTest {
  protected:
    LargeRegionTest() {
        char pattern[] = "/dev/shm/tailrace large XXXXXX";
        const char* made = ::mkdtemp(pattern);
        memory_directory_ = made == nullptr ? "" : made;
    }
    ~LargeRegionTest() override {
        if (!memory_directory_.empty()) std::filesystem::remove_all(memory_directory_);
    }
    std::string memory_directory_;
};

TEST_F(LargeRegionTest, MoreThan4GiBComeBack) {
    std::error_code error;
    const auto space = std::filesystem::space("/dev/shm", error);
    if (memory_directory_.empty() || error || space.available < 6 * gib || available_memory() < 8 * gib)
        GTEST_SKIP() << "less than 6 GiB of /dev/shm or 8 GiB of memory are free";

    // Pages that are only read are all the same page of zeros, so the source costs next to nothing.
    void* mapping = ::mmap(nullptr, array_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(mapping, MAP_FAILED);
    auto* bytes = static_cast<char*>(mapping);
    const std::vector<uint64_t> marks = {0, 4 * gib - 7, 4 * gib + 9, array_bytes - 16};
    for (uint64_t mark : marks) std::memcpy(bytes + mark, "marks the place", 15);

    const uint64_t shape[] = {array_bytes}, zero[] = {0};
    const tailrace_array array = array_of(TAILRACE_UINT8, 1, shape, zero, shape);
    // Every second save stays in the node-local tier; that one is a file of more than 4 GiB.
    tailrace_session* session =
        open({{"local_dir", memory_directory_}, {"shared_every", "2"}, {"flush_at_close", "no"}});
    ASSERT_TRUE(ok(tailrace_save(session, 1)));
    ASSERT_TRUE(ok(tailrace_register_array(session, "large", bytes, &array)));
    tailrace_epoch_info info = {};
    const uint64_t epoch = 2;
    ASSERT_TRUE(ok(tailrace_save(session, epoch)));
    ASSERT_TRUE(ok(tailrace_wait(session, epoch, -1)));
    ASSERT_TRUE(ok(tailrace_epoch_state(session, epoch, &info)));
    EXPECT_EQ(info.state, TAILRACE_STATE_KEPT_LOCAL);
    EXPECT_GE(info.captured_bytes, array_bytes);

    tailrace_reader* reader = nullptr;
    ASSERT_TRUE(ok(tailrace_reader_open(session, epoch, TAILRACE_NEWEST, 0, &reader)));
    tailrace_region_info region;
    ASSERT_TRUE(ok(tailrace_reader_region(reader, 0, "large", &region)));
    EXPECT_EQ(region.bytes, array_bytes);
    for (uint64_t mark : marks) {
        char box[16] = {};
        const uint64_t count[] = {15};
        ASSERT_TRUE(ok(tailrace_reader_read_box(reader, "large", 1, &mark, count, box, 15)));
        EXPECT_STREQ(box, "marks the place") << "at byte " << mark;
    }
    // Something large that crosses 4 GiB, against what was saved.
    std::vector<char> across(64 << 20, 'x');
    const uint64_t offset[] = {4 * gib - (32 << 20)}, count[] = {across.size()};
    ASSERT_TRUE(
        ok(tailrace_reader_read_box(reader, "large", 1, offset, count, across.data(), across.size())));
    EXPECT_TRUE(std::equal(across.begin(), across.end(), bytes + offset[0]));
    tailrace_reader_close(reader);
    EXPECT_TRUE(ok(tailrace_close(session)));
    ::munmap(mapping, array_bytes);
}

}  // namespace
