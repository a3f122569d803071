// The writers' threads and their bandwidth cap.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "aggregate/writer_pool.h"
#include "threads/throttle.h"

namespace tailrace::internal {
namespace {

TEST(ThrottleBookTest, EveryBookingWaitsForTheBytesBeforeIt) {
    ThrottleBook book(1'000'000);  // a byte per microsecond
    EXPECT_EQ(book.book(5'000, 100), 5'000u);
    EXPECT_EQ(book.book(5'000, 200), 105'000u);
    EXPECT_EQ(book.book(6'000, 1), 305'000u);
}

TEST(ThrottleBookTest, PauseIsNotSavedUp) {
    ThrottleBook book(1'000'000);
    book.book(0, 100);
    EXPECT_EQ(book.book(900'000'000, 100), 900'000'000u);
    EXPECT_EQ(book.book(900'000'000, 100), 900'100'000u);
}

TEST(ThrottleBookTest, NoCapNeverWaits) {
    ThrottleBook book(0);
    EXPECT_EQ(book.book(7, UINT64_MAX), 7u);
    EXPECT_EQ(book.book(7, 1), 7u);
}

TEST(ThrottleTest, CloseEndsASleepAndRefusesLaterOnes) {
    Throttle throttle(1);  // a byte per second
    EXPECT_TRUE(throttle.pass(1'000'000));
    auto sleeper = std::async(std::launch::async, [&] { return throttle.pass(1); });
    throttle.close();
    EXPECT_FALSE(sleeper.get());
    EXPECT_FALSE(throttle.pass(1));
}

TEST(ThrottleTest, UnderOneCapALaterThrottleWaitsForTheBytesOfAnEarlierOne) {
    const auto cap = std::make_shared<BandwidthCap>(1);
    EXPECT_TRUE(Throttle(cap).pass(1'000'000));
    Throttle later(cap);
    auto sleeper = std::async(std::launch::async, [&] { return later.pass(1); });
    EXPECT_EQ(sleeper.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    later.close();
    EXPECT_FALSE(sleeper.get());
}

TEST(WriterPoolTest, UrgentTasksGoFirstAndThenRunsInTheOwnersThread) {
    std::promise<void> gate, busy;
    std::atomic<int> woken = 0;
    WriterPool pool(1, {}, [&] { ++woken; });
    const auto owner = std::this_thread::get_id();
    std::vector<int> order;  // of work; one writer
    int thens = 0;
    pool.submit(
        Urgency::urgent,
        [&] {
            busy.set_value();
            gate.get_future().wait();
            return Status();
        },
        [&](const Status&) { ++thens; });
    busy.get_future().wait();
    for (int i = 0; i < 3; ++i)
        pool.submit(
            Urgency::relaxed,
            [&, i] {
                order.push_back(i);
                return Status();
            },
            [&](const Status&) { ++thens; });
    for (int i = 10; i < 12; ++i) {
        pool.submit(
            Urgency::urgent,
            [&, i] {
                order.push_back(i);
                return Status();
            },
            [&](const Status&) {
                EXPECT_EQ(std::this_thread::get_id(), owner);
                ++thens;
            });
    }
    gate.set_value();
    while (thens < 6) {
        if (!pool.run_finished()) std::this_thread::yield();
    }
    pool.stop();
    EXPECT_EQ(order, (std::vector<int>{10, 11, 0, 1, 2}));
    EXPECT_EQ(woken, 6);
}

TEST(WriterPoolTest, WhatWorkThrowsIsItsOutcome) {
    std::promise<void> woken;
    WriterPool pool(1, {}, [&] { woken.set_value(); });
    Status outcome;
    pool.submit(
        Urgency::urgent, []() -> Status { throw std::bad_alloc(); },
        [&](const Status& told) { outcome = told; });
    woken.get_future().wait();
    EXPECT_TRUE(pool.run_finished());
    EXPECT_EQ(outcome.code(), Code::out_of_memory);
}

TEST(WriterPoolTest, StopDropsWaitingTasksWithWhatTheyHold) {
    std::promise<void> gate, busy;
    auto pool = std::make_unique<WriterPool>(1, Priority{}, [] {});
    auto held = std::make_shared<int>(1);
    bool ran = false;
    pool->submit(
        Urgency::urgent,
        [&] {
            busy.set_value();
            gate.get_future().wait();
            return Status();
        },
        [](const Status&) {});
    busy.get_future().wait();
    pool->submit(
        Urgency::urgent,
        [&ran, held] {
            ran = true;
            return Status();
        },
        [&ran, held](const Status&) { ran = true; });
    EXPECT_EQ(held.use_count(), 3);
    auto stopped = std::async(std::launch::async, [&] { pool->stop(); });
    // Whether stop() is seen before or after the gate opens, the second task must not be lost track of.
    gate.set_value();
    stopped.get();
    const bool ran_before_stop = ran;
    EXPECT_FALSE(pool->run_finished());
    EXPECT_EQ(held.use_count(), 1);
    pool->submit(
        Urgency::urgent,
        [&ran] {
            ran = true;
            return Status();
        },
        [](const Status&) {});
    pool.reset();
    EXPECT_EQ(ran, ran_before_stop);
}

}  // namespace
}  // namespace tailrace::internal
