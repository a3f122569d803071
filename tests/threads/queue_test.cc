#include "threads/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace tailrace::internal::test {
namespace {

TEST(BoundedQueueTest, IsFirstInFirstOut) {
    BoundedQueue<int> queue(3);
    EXPECT_TRUE(queue.push(1));
    EXPECT_TRUE(queue.push(2));
    EXPECT_EQ(queue.size(), 2u);
    EXPECT_EQ(queue.try_pop(), 1);
    EXPECT_EQ(queue.pop(), 2);
    EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueueTest, PushWaitsForRoom) {
    BoundedQueue<int> queue(1);
    std::atomic<bool> pushed{false};
    queue.push(1);
    std::jthread thread([&] {
        queue.push(2);
        pushed = true;
    });
    EXPECT_EQ(queue.size(), 1u);
    EXPECT_FALSE(pushed);
    EXPECT_EQ(queue.pop(), 1);
    EXPECT_EQ(queue.pop(), 2);
}

TEST(BoundedQueueTest, CloseRefusesNewItemsAndKeepsOld) {
    BoundedQueue<std::unique_ptr<int>> queue(2);
    EXPECT_TRUE(queue.push(std::make_unique<int>(1)));
    queue.close();
    EXPECT_FALSE(queue.push(std::make_unique<int>(2)));
    EXPECT_EQ(**queue.pop(), 1);
    EXPECT_EQ(queue.pop(), std::nullopt);
    queue.close();
}

TEST(BoundedQueueTest, CloseWakesWhoeverWaits) {
    BoundedQueue<int> empty(1), full(1);
    full.push(1);
    bool popped = true, pushed = true;
    {
        std::jthread popper([&] { popped = empty.pop().has_value(); });
        std::jthread pusher([&] { pushed = full.push(2); });
        std::this_thread::sleep_for(std::chrono::milliseconds(30));  // so that both wait, in all likelihood
        empty.close();
        full.close();
    }
    EXPECT_FALSE(popped);
    EXPECT_FALSE(pushed);
}

TEST(BoundedQueueTest, NothingIsLostOrDoubledBetweenThreads) {
    constexpr int producers = 3, each = 2000;
    BoundedQueue<int> queue(4);
    std::vector<int> seen[2];
    {
        std::vector<std::jthread> consumers, threads;
        for (auto& mine : seen) {
            consumers.emplace_back([&queue, &mine] {
                while (auto item = queue.pop()) mine.push_back(*item);
            });
        }
        for (int p = 0; p < producers; ++p) {
            threads.emplace_back([&queue, p] {
                for (int i = 0; i < each; ++i) EXPECT_TRUE(queue.push(p * each + i));
            });
        }
        threads.clear();
        queue.close();
    }
    std::vector<int> all = seen[0];
    all.insert(all.end(), seen[1].begin(), seen[1].end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), size_t{producers} * each);
    for (int i = 0; i < producers * each; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace tailrace::internal::test
