#include "storage/io_uring_storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "storage/conformance.h"
#include "storage/posix_storage.h"
#include "storage/scratch.h"
#include "storage/system_cases.h"

namespace tailrace::internal::test {
namespace {

// Small requests and a shallow queue, so that every transfer of some size needs several rounds. Where the
// kernel has no io_uring the cases run on what `automatic` falls back to.
std::shared_ptr<Storage> small_ring_storage() {
    auto storage = make_system_storage({IoEngine::automatic, 3, 8192});
    EXPECT_TRUE(storage.ok());
    return *storage;
}

INSTANTIATE_TEST_SUITE_P(IoUring, StorageConformance,
                         testing::ValuesIn(system_cases("io_uring",
                                                        [](const auto&) { return small_ring_storage(); })),
                         case_name);

class IoUringStorageTest : public testing::Test {
  protected:
    void SetUp() override {
        auto storage = make_io_uring_storage(4, 65'536);
        if (!storage.ok()) GTEST_SKIP() << storage.status().to_string();
        storage_ = *storage;
    }
    ScratchDirectory scratch_;
    std::shared_ptr<Storage> storage_;
};

TEST_F(IoUringStorageTest, SaysItsName) {
    EXPECT_EQ(storage_->name(), "io_uring");
}

TEST_F(IoUringStorageTest, AReadAcrossTheEndOfTheFileCountsWhatIsThere) {
    for (const size_t bytes :
         {size_t{0}, size_t{1}, size_t{65'536}, size_t{65'537}, size_t{300'000}, size_t{524'288}}) {
        for (const DirectIo direct : {DirectIo::off, DirectIo::automatic}) {
            const auto content = pattern(bytes, bytes);
            auto file = storage_->open(scratch_ / "a", {Access::write, direct});
            TAILRACE_ASSERT_OK(file);
            TAILRACE_ASSERT_OK((*file)->truncate(0));
            TAILRACE_ASSERT_OK((*file)->write_at(content, 0));
            std::vector<std::byte> target(1 << 20);
            auto count = (*file)->read_at(target, 0);
            TAILRACE_ASSERT_OK(count);
            EXPECT_EQ(*count, bytes);
            target.resize(*count);
            EXPECT_EQ(target, content);
        }
    }
}

TEST_F(IoUringStorageTest, AnErrorInTheMiddleIsReportedWithPathAndOffset) {
    auto writable = storage_->open(scratch_ / "a", {Access::write, DirectIo::off});
    auto file = storage_->open(scratch_ / "a", {Access::read, DirectIo::off});
    TAILRACE_ASSERT_OK(file);
    TAILRACE_EXPECT_FAILS((*file)->write_at(std::vector<std::byte>(1 << 20), 12), Code::io_error,
                          "writing 1048576 bytes at offset 12 to '" + (scratch_ / "a"));
}

TEST_F(IoUringStorageTest, ManyThreadsMoveDataAtOnce) {
    constexpr size_t threads = 12, bytes = 1 << 20;
    auto file = storage_->open(scratch_ / "a", {Access::write, DirectIo::automatic});
    TAILRACE_ASSERT_OK(file);
    std::vector<std::jthread> workers;
    for (size_t thread = 0; thread < threads; ++thread) {
        workers.emplace_back([&, thread] {
            const auto content = pattern(bytes, thread);
            std::vector<std::byte> found(bytes);
            for (int round = 0; round < 3; ++round) {
                TAILRACE_EXPECT_OK((*file)->write_at(content, thread * bytes));
                auto count = (*file)->read_at(found, thread * bytes);
                EXPECT_TRUE(count.ok() && *count == bytes && found == content);
            }
        });
    }
}

// Buffers that this process has registered with rings, as the kernel tells; -1 where it does not.
int registered_buffers() {
    int count = -1;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
        std::ifstream info(entry.path());
        bool in_list = false;
        for (std::string line; std::getline(info, line);) {
            if (line.starts_with("UserBufs:")) {
                in_list = true;
                count = std::max(count, 0);
            } else if (in_list && line.find(": 0x") != std::string::npos) {
                ++count;
            } else {
                in_list = in_list && line.find("<none>") != std::string::npos;
            }
        }
    }
    return count;
}

TEST_F(IoUringStorageTest, OnlyMemoryThatIsWrittenFromIsRegistered) {
    constexpr size_t bytes = 64 << 20, used = 5 << 20;
    void* mapping =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(mapping, MAP_FAILED);
    std::span<std::byte> memory(static_cast<std::byte*>(mapping), bytes);
    auto file = storage_->open(scratch_ / "a", {Access::write, DirectIo::automatic});
    TAILRACE_ASSERT_OK(file);
    std::fill_n(memory.begin(), used, std::byte{3});
    storage_->use_memory(memory);
    TAILRACE_ASSERT_OK((*file)->write_at(memory.first(used), 0));
    if (const int count = registered_buffers(); count >= 0) {
        EXPECT_EQ(count, 2) << "5 MiB in pieces of 4";
    }
    std::vector<unsigned char> resident(bytes / 4096);
    ASSERT_EQ(mincore(mapping, bytes, resident.data()), 0);
    EXPECT_TRUE(std::none_of(resident.begin() + (16 << 20) / 4096, resident.end(),
                             [](unsigned char page) { return (page & 1) != 0; }));
    storage_->forget_memory();
    if (const int count = registered_buffers(); count >= 0) {
        EXPECT_EQ(count, 0);
    }
    munmap(mapping, bytes);
}

TEST_F(IoUringStorageTest, FilesMayOutliveTheirStorage) {
    auto file = storage_->open(scratch_ / "a", {Access::write, DirectIo::off});
    storage_.reset();
    const auto content = pattern(1 << 20, 1);
    std::vector<std::byte> found(content.size());
    TAILRACE_EXPECT_OK((*file)->write_at(content, 0));
    EXPECT_EQ(*(*file)->read_at(found, 0), found.size());
    EXPECT_EQ(found, content);
}

}  // namespace
}  // namespace tailrace::internal::test
