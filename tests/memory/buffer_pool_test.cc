#include "memory/buffer_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "base/invariant.h"
#include "base/log.h"

namespace tailrace::internal::test {
namespace {

TEST(BufferPoolTest, TheProcessKnowsWhatAllPoolsHave) {
    const auto before = BufferPool::usage();
    {
        auto one = BufferPool::create(3, 8192, 4096), other = BufferPool::create(1, 4096, 4096);
        ASSERT_TRUE(one.ok() && other.ok());
        const Buffer first = (*one)->try_take();
        {
            const Buffer second = (*one)->try_take(), third = (*other)->try_take();
            EXPECT_EQ(BufferPool::usage().taken_bytes - before.taken_bytes, 2 * 8192 + 4096u);
        }
        EXPECT_EQ(BufferPool::usage().pool_bytes - before.pool_bytes, 3 * 8192 + 4096u);
        EXPECT_EQ(BufferPool::usage().taken_bytes - before.taken_bytes, 8192u);
    }
    EXPECT_EQ(BufferPool::usage().pool_bytes, before.pool_bytes);
    EXPECT_EQ(BufferPool::usage().taken_bytes, before.taken_bytes);
}

TEST(BufferPoolTest, GivesOutEachBufferOnceAndNoMore) {
    auto pool = BufferPool::create(3, 8192, 4096);
    ASSERT_TRUE(pool.ok()) << pool.status().to_string();
    EXPECT_EQ((*pool)->count(), 3u);
    EXPECT_EQ((*pool)->region().size(), 3u * 8192);
    std::set<std::byte*> seen;
    std::vector<Buffer> out;
    for (int i = 0; i < 3; ++i) {
        out.push_back((*pool)->try_take());
        ASSERT_TRUE(out.back().valid());
        const std::span<std::byte> memory = out.back().memory();
        EXPECT_EQ(memory.size(), 8192u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0u);
        EXPECT_GE(memory.data(), (*pool)->region().data());
        EXPECT_LE(memory.data() + memory.size(), (*pool)->region().data() + (*pool)->region().size());
        memory.front() = memory.back() = std::byte{1};
        seen.insert(memory.data());
    }
    EXPECT_EQ(seen.size(), 3u);
    EXPECT_FALSE((*pool)->try_take().valid());
    EXPECT_EQ((*pool)->free_count(), 0u);
    out.pop_back();
    EXPECT_TRUE((*pool)->try_take().valid());
    EXPECT_EQ((*pool)->most_taken(), 3u);
}

TEST(BufferPoolTest, MovingABufferKeepsOneOwner) {
    auto pool = BufferPool::create(2, 4096, 4096);
    ASSERT_TRUE(pool.ok());
    Buffer a = (*pool)->try_take();
    Buffer b = std::move(a);
    EXPECT_FALSE(a.valid());  // NOLINT: what a moved-from handle is like is the claim
    EXPECT_TRUE(b.valid());
    EXPECT_EQ((*pool)->free_count(), 1u);
    b = (*pool)->try_take();  // gives the first back
    EXPECT_EQ((*pool)->free_count(), 1u);
    b = Buffer();
    EXPECT_EQ((*pool)->free_count(), 2u);
}

TEST(BufferPoolTest, TheWarmestBufferGoesOutAgainFirst) {
    auto pool = BufferPool::create(4, 4096, 4096);
    ASSERT_TRUE(pool.ok());
    std::byte* first = (*pool)->try_take().memory().data();
    EXPECT_EQ((*pool)->try_take().memory().data(), first);
    EXPECT_EQ((*pool)->most_taken(), 1u);
}

TEST(BufferPoolTest, SizesThatMakeNoSenseAreRefused) {
    EXPECT_EQ(BufferPool::create(0, 4096, 4096).status().code(), Code::invalid_argument);
    EXPECT_EQ(BufferPool::create(1, 0, 4096).status().code(), Code::invalid_argument);
    EXPECT_EQ(BufferPool::create(1, 4096, 3000).status().code(), Code::invalid_argument);
    EXPECT_EQ(BufferPool::create(1, 4096, 8192).status().code(), Code::invalid_argument);
    EXPECT_EQ(BufferPool::create(1, 512, 512).status().code(), Code::invalid_argument);
    EXPECT_EQ(BufferPool::create(SIZE_MAX / 4096, 8192, 4096).status().code(), Code::invalid_argument);
    EXPECT_EQ(BufferPool::create(1 << 20, size_t{1} << 40, 4096).status().code(), Code::out_of_memory);
}

TEST(BufferPoolTest, OneThatGoesBeforeItsBuffersBreaksAnInvariant) {
    static std::string told;
    set_log_level(LogLevel::off);
    on_broken_invariant([](const std::string& sentence) { told = sentence; });
    auto pool = BufferPool::create(2, 4096, 4096);
    ASSERT_TRUE(pool.ok());
    static auto& kept = *new Buffer((*pool)->try_take());  // for ever, because its pool is gone
    pool->reset();
    on_broken_invariant(nullptr);
    set_log_level(LogLevel::warning);
    EXPECT_NE(told.find("free_.size() == count_"), std::string::npos) << told;
    kept.memory().front() = std::byte{1};  // is still memory
}

TEST(BufferPoolTest, ThreadsNeverShareABuffer) {
    auto pool = BufferPool::create(3, 4096, 4096);
    ASSERT_TRUE(pool.ok());
    std::atomic<int> clashes{0}, takes{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 1; t <= 6; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 2000; ++i) {
                    Buffer buffer = (*pool)->try_take();
                    if (!buffer.valid()) continue;
                    ++takes;
                    buffer.memory()[0] = static_cast<std::byte>(t);
                    if (i % 64 == 0) std::this_thread::yield();
                    if (buffer.memory()[0] != static_cast<std::byte>(t)) ++clashes;
                }
            });
        }
    }
    EXPECT_EQ(clashes, 0);
    EXPECT_GT(takes, 0);
    EXPECT_LE((*pool)->most_taken(), 3u);
    EXPECT_EQ((*pool)->free_count(), 3u);
}

}  // namespace
}  // namespace tailrace::internal::test
