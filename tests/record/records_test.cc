// What a record says, and when one is whole.
#include "record/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "record/record_book.h"

namespace tailrace::internal {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr EpochKey key{12, 3};

NodeRecord leader(int node) {
    NodeRecord record;
    record.node = node;
    record.statistics.leader = true;
    record.statistics.local_bytes = 700;
    record.statistics.received_bytes = 300;
    record.statistics.move_seconds = 2.5;
    record.statistics.chunk_wait_us = 1'500'000;
    record.statistics.writers = {{700, 0, 7, 0, 0.25, 1.5, 0, 0.75}, {0, 300, 0, 3, 0, 0, 1, 1.5}};
    return record;
}

NodeRecord follower(int node) {
    NodeRecord record;
    record.node = node;
    record.statistics.sent_bytes = 300;
    record.statistics.credit_wait_seconds = 0.5;
    return record;
}

EpochRecord end_of(EpochKey ended, std::string state) {
    EpochRecord record;
    record.key = ended;
    record.state = std::move(state);
    return record;
}

SessionRecord session() {
    SessionRecord session;
    session.job = "job";
    session.run = 3;
    session.run_uid = 0xABCDEF;
    session.shared_dir = "/a \"b\"\xff";
    session.settings = {{"files", "2"}};
    return session;
}

TEST(RecordsTest, AnEpochsLineHasPhasesLeadersAndThreads) {
    EpochRecord epoch = end_of(key, "committed");
    epoch.capture = capture_numbers(1000, 0.5, 0.125);
    epoch.capture.add(capture_numbers(500, 0.25, 0.25));
    epoch.nodes = {leader(0), follower(1)};
    const std::string line = to_json_line(epoch, session());
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const json parsed = json::parse(line);
    EXPECT_EQ(parsed["run_uid"], "0000000000abcdef");
    EXPECT_EQ(parsed["epoch"], 12);
    EXPECT_EQ(parsed["capture"]["ranks"], 2);
    EXPECT_EQ(parsed["capture"]["bytes"], 1500);
    EXPECT_EQ(parsed["capture"]["least_seconds"], 0.25);
    EXPECT_EQ(parsed["capture"]["mean_seconds"], 0.375);
    EXPECT_EQ(parsed["capture"]["most_seconds"], 0.5);
    EXPECT_EQ(parsed["capture"]["most_wait_seconds"], 0.25);
    EXPECT_EQ(parsed["capture"]["most_blocked_seconds"], 0.625) << "of one rank, not of two together";
    ASSERT_THAT(parsed["nodes"], SizeIs(2));
    const json& first = parsed["nodes"][0];
    EXPECT_EQ(first["role"], "leader");
    EXPECT_EQ(first["move_seconds"], 2.5);
    EXPECT_EQ(first["chunk_wait_seconds"], 1.5);
    ASSERT_THAT(first["threads"], SizeIs(2));
    EXPECT_EQ(first["threads"][0]["local_bytes"], 700);
    EXPECT_EQ(first["threads"][0]["read_seconds"], 0.25);
    EXPECT_EQ(first["threads"][1]["received_write_seconds"], 1.0);
    EXPECT_EQ(first["threads"][1]["idle_seconds"], 1.5);
    EXPECT_EQ(parsed["nodes"][1]["role"], "follower");
    EXPECT_EQ(parsed["nodes"][1]["sent_bytes"], 300);
    EXPECT_EQ(parsed["nodes"][1]["credit_wait_seconds"], 0.5);
}

ProtectionRecord protection(int node, bool done) {
    return {node, done, done ? "" : "no space", 0.25, 700, 800};
}

TEST(RecordsTest, AnEpochsLineSaysHowItWasProtectedIfItWasToBe) {
    EpochRecord epoch = end_of(key, "kept_local");
    EXPECT_FALSE(json::parse(to_json_line(epoch, session())).contains("protected"));
    epoch.protections = {protection(0, true), protection(1, false)};
    const json parsed = json::parse(to_json_line(epoch, session()));
    EXPECT_EQ(parsed["protected"], false);
    const json& nodes = parsed["protection"];
    ASSERT_THAT(nodes, SizeIs(2));
    EXPECT_EQ(nodes[0]["node"], 0);
    EXPECT_EQ(nodes[0]["protected"], true);
    EXPECT_EQ(nodes[0]["seconds"], 0.25);
    EXPECT_EQ(nodes[0]["sent_bytes"], 700);
    EXPECT_EQ(nodes[0]["kept_bytes"], 800);
    EXPECT_FALSE(nodes[0].contains("why"));
    EXPECT_EQ(nodes[1]["why"], "no space");
}

TEST(RecordsTest, ASessionsLineSurvivesAPathThatIsNoUtf8) {
    const json parsed = json::parse(to_json_line(session()));
    EXPECT_EQ(parsed["record"], "session");
    EXPECT_EQ(parsed["settings"]["files"], "2");
    EXPECT_THAT(parsed["shared_dir"].get<std::string>(), testing::StartsWith("/a \"b\""));
}

TEST(RecordsTest, ATraceIsAJsonArrayOfEvents) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin{std::chrono::microseconds(50)};
    const std::vector<FlushEvent> events = {
        {FlushEvent::Kind::write_local, 4, begin, begin + std::chrono::microseconds(7), 99, 5},
        {FlushEvent::Kind::receive, -1, begin, begin, 1, 6}};
    const json trace = json::parse(trace_head(session(), 2) + to_trace_lines(key, 2, events, 1000) +
                                   std::string(trace_tail));
    const json& event = trace[trace.size() - 2];
    EXPECT_EQ(event["ph"], "X");
    EXPECT_EQ(event["pid"], 2);
    EXPECT_EQ(event["ts"], 1050);
    EXPECT_EQ(event["dur"], 7);
    EXPECT_EQ(event["args"]["bytes"], 99);
    EXPECT_EQ(event["args"]["rank"], 5);
    EXPECT_EQ(event["args"]["epoch"], 12);
    EXPECT_NE(event["tid"], trace.back()["tid"]);
    // Without its end, as a killed program leaves it, every line but the first is still an object.
    EXPECT_EQ(trace.front()["ph"], "M");
}

TEST(RecordBookTest, ACommittedEpochIsWholeWithItsLastNode) {
    RecordBook book(2);
    book.captured(key, capture_numbers(10, 1, 0));
    book.captured(key, capture_numbers(20, 2, 0));
    book.flushed(key, follower(1));
    book.ended(end_of(key, "committed"));
    EXPECT_THAT(book.take_whole(), IsEmpty());
    EXPECT_TRUE(book.waiting());
    book.flushed(key, leader(0));
    const auto whole = book.take_whole();
    ASSERT_THAT(whole, SizeIs(1));
    EXPECT_EQ(whole[0].capture.bytes, 30u);
    ASSERT_THAT(whole[0].nodes, SizeIs(2));
    EXPECT_EQ(whole[0].nodes[0].node, 0);
    EXPECT_FALSE(book.waiting());
    book.flushed(key, leader(0));  // late news open nothing
    book.ended(end_of(key, "failed"));
    EXPECT_THAT(book.take_rest(), IsEmpty());
}

TEST(RecordBookTest, FailedAndLocalEpochsWaitForNobody) {
    RecordBook book(2);
    book.flushed(key, leader(0));
    book.ended(end_of(key, "failed"));
    book.ended(end_of({13, 3}, "kept_local"));
    EXPECT_THAT(book.take_whole(), SizeIs(2));
}

TEST(RecordBookTest, AnEpochThatIsToBeProtectedWaitsForEveryNodesWordUnlessItFails) {
    RecordBook book(2);
    for (const uint64_t epoch : {1, 2, 3}) book.captured({epoch, 1}, capture_numbers(10, 1, 0), true);
    book.node_protected({1, 1}, protection(1, true));
    book.ended(end_of({1, 1}, "kept_local"));
    book.ended(end_of({2, 1}, "failed"));
    auto whole = book.take_whole();
    ASSERT_THAT(whole, SizeIs(1));
    EXPECT_EQ(whole[0].key.epoch, 2u);
    book.node_protected({1, 1}, protection(0, true));
    whole = book.take_whole();
    ASSERT_THAT(whole, SizeIs(1));
    EXPECT_TRUE(whole[0].is_protected);
    EXPECT_THAT(whole[0].protections, ElementsAre(protection(0, true), protection(1, true)));
    for (const int node : {0, 1}) book.node_protected({3, 1}, protection(node, node == 0));
    book.ended(end_of({3, 1}, "kept_local"));
    whole = book.take_whole();
    ASSERT_THAT(whole, SizeIs(1));
    EXPECT_FALSE(whole[0].is_protected);
}

TEST(RecordBookTest, WhatMissesANodeIsGivenOutAtTheEndAndOthersAreNot) {
    RecordBook book(2);
    book.ended(end_of(key, "committed"));
    book.captured({13, 3}, capture_numbers(10, 1, 0));  // has not ended
    const auto rest = book.take_rest();
    ASSERT_THAT(rest, SizeIs(1));
    EXPECT_EQ(rest[0].key, key);
}

TEST(RecordBookTest, IsBounded) {
    RecordBook book(2);
    for (uint64_t epoch = 1; epoch <= RecordBook::max_open + 3; ++epoch)
        book.ended(end_of({epoch, 1}, "committed"));
    EXPECT_THAT(book.take_whole(), SizeIs(3));
    EXPECT_THAT(book.take_rest(), SizeIs(RecordBook::max_open));
}

}  // namespace
}  // namespace tailrace::internal
