// What a peer says is checked before memory is addressed by it: messages with offsets, slots and counts
// beyond what there is are refused, in every part of a call that takes messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "collective/global_aggregator.h"
#include "collective/member.h"
#include "flush/plan.h"
#include "transport/in_process.h"

namespace tailrace::internal::collective {
namespace {

using ::testing::HasSubstr;

constexpr FileWindow range{0, 4096};

// Rank 0 of two on one node, each its own local aggregator and rank 0 the global one; rank 1 is played.
class HostileMessagesTest : public ::testing::Test {
  protected:
    HostileMessagesTest() {
        for (RankSummary& rank : ranks_) rank.list = {1, 100, 0, 4096, false};
        groups_.aggregator_of_rank = {0, 1};
        groups_.aggregators = {0, 1};
        EXPECT_TRUE(make_images(memory_, domains_.window_bytes()).ok());
    }

    CallContext context(bool writes) {
        return {*transports_[0], topology_, ranks_,      groups_, globals_,   domains_,
                memory_,         nullptr,   statistics_, writes,  local_slots};
    }
    // The first message of a group: what it offers for window 0.
    static CallMessage offer(std::vector<Request> runs, uint64_t bytes) {
        CallMessage message;
        message.kind = CallMessage::Kind::offer;
        message.ids = {0};
        message.count = runs.size();
        message.bytes = bytes;
        message.runs = std::move(runs);
        return message;
    }
    void expect_refused(const Status& status, const std::string& part) {
        EXPECT_EQ(status.code(), Code::transport);
        EXPECT_THAT(status.message(), HasSubstr(part));
    }
    Status offered(const CallMessage& message, bool writes = true) {
        CallContext call = context(writes);
        GlobalAggregator global(call, nullptr);
        return global.handle(1, message);
    }

    std::vector<std::unique_ptr<Transport>> transports_ = make_in_process_transports({"machine", "machine"});
    const Topology topology_ = make_topology({"machine", "machine"}, 0);
    std::vector<RankSummary> ranks_ = std::vector<RankSummary>(2);
    Groups groups_;
    const std::vector<int> globals_ = {0};
    const Domains domains_ = Domains(range, 1, DomainSettings());
    CallMemory memory_;
    Statistics statistics_;
};

TEST_F(HostileMessagesTest, RunsOutsideTheWindowAreRefused) {
    EXPECT_TRUE(offered(offer({{0, 100}}, 100)).ok());
    expect_refused(offered(offer({{4000, 100}}, 100)), "4000");
    expect_refused(offered(offer({{uint64_t{1} << 40, 100}}, 100)), "window");
    expect_refused(offered(offer({{100, UINT64_MAX - 50}}, 100)), "window");
    expect_refused(offered(offer({{0, 100}, {50, 100}}, 200)), "behind others");
    expect_refused(offered(offer({{0, 100}}, 200)), "announces 200 bytes");
}

TEST_F(HostileMessagesTest, MoreRunsThanAWindowCanHoldAreRefused) {
    CallMessage message = offer({}, 100);
    message.count = uint64_t{1} << 50;
    expect_refused(offered(message), "runs");
    message.count = 1;
    message.bytes = uint64_t{1} << 40;
    expect_refused(offered(message), "runs");
}

TEST_F(HostileMessagesTest, WindowsOfOthersAndWordsOutOfOrderAreRefused) {
    CallMessage message = offer({{0, 100}}, 100);
    message.ids = {uint64_t{1} << 50};
    expect_refused(offered(message), "does not belong to");
    CallContext call = context(true);
    GlobalAggregator global(call, nullptr);
    ASSERT_TRUE(global.handle(1, offer({{0, 100}}, 100)).ok());
    message = offer({{0, 100}}, 100);
    message.ids.clear();
    expect_refused(global.handle(1, message), "out of order");
    message.kind = CallMessage::Kind::grant;
    expect_refused(global.handle(1, message), "out of order");
}

TEST_F(HostileMessagesTest, SharedMemoryIsReadOnlyAsFarAsItGoes) {
    auto packed = SharedMemory::create(4096), runs = SharedMemory::create(4096);
    ASSERT_TRUE(packed.ok() && runs.ok());
    const Request run{0, 100};
    std::memcpy(runs->memory().data(), &run, sizeof run);
    CallMessage message = offer({}, 100);
    message.count = 1;
    message.shared = true;
    message.list = runs->name();
    message.data = packed->name();
    EXPECT_TRUE(offered(message).ok());
    CallMessage wrong = message;
    wrong.slot = 1;  // at one window, which is all there is
    expect_refused(offered(wrong), "slot 1");
    wrong.slot = UINT32_MAX;
    expect_refused(offered(wrong), "slot");
    wrong = message;
    wrong.count = wrong.bytes = 300;
    expect_refused(offered(wrong), "300 requests");
    const Request outside{4090, 100};
    std::memcpy(runs->memory().data(), &outside, sizeof outside);
    expect_refused(offered(message), "4090");
}

TEST_F(HostileMessagesTest, AMemberCopiesOnlyWhereItsAggregatorHasPlaceForIt) {
    auto packed = SharedMemory::create(4096), runs = SharedMemory::create(4096);
    ASSERT_TRUE(packed.ok() && runs.ok());
    groups_.aggregator_of_rank = {1, 1};
    const std::array<Request, 1> requests = {Request{10, 100}};
    const RequestList list(requests, false);
    std::vector<std::byte> bytes(100, std::byte{9});
    const MemoryList memory({std::span<std::byte>(bytes)});
    CallMessage message;
    message.kind = CallMessage::Kind::place;
    message.count = 1;
    message.bytes = 110;
    message.shared = true;
    message.list = runs->name();
    message.data = packed->name();
    const auto told = [&](const CallMessage& said, const Request& run) {
        std::memcpy(runs->memory().data(), &run, sizeof run);
        CallContext call = context(true);
        Member member(call, list, memory);
        return member.handle(1, said);
    };
    EXPECT_TRUE(told(message, {0, 110}).ok());
    EXPECT_EQ(packed->memory()[10], std::byte{9});
    expect_refused(told(message, {0, 50}), "no room for");      // part of it
    expect_refused(told(message, {2000, 110}), "no room for");  // behind it
    expect_refused(told(message, {0, 5}), "no room for");       // before it
    CallMessage wrong = message;
    wrong.bytes = 60;  // of packed data, though the run has 110
    expect_refused(told(wrong, {0, 110}), "no room for");
    wrong = message;
    wrong.slot = 7;
    expect_refused(told(wrong, {0, 110}), "slot");
    wrong = message;
    wrong.count = 5000;
    expect_refused(told(wrong, {0, 110}), "5000 requests");
}

}  // namespace
}  // namespace tailrace::internal::collective
