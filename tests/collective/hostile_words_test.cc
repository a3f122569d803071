// What a peer says is checked before memory is addressed by it: words with offsets, slots and counts beyond
// what there is are refused, in every part of a call that takes words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "aggregate/plan.h"
#include "collective/global_part.h"
#include "collective/member_part.h"
#include "transport/in_process.h"

namespace tailrace::collective {
namespace {

using ::testing::HasSubstr;

constexpr FileWindow range{0, 4096};

// Rank 0 of two on one node, each its own local aggregator and rank 0 the global one; rank 1 is played.
class HostileWordsTest : public ::testing::Test {
  protected:
    HostileWordsTest() {
        for (RankSummary& rank : ranks_) rank.list = {1, 100, 0, 4096, false};
        groups_.aggregator_of_rank = {0, 1};
        groups_.aggregators = {0, 1};
        EXPECT_TRUE(make_images(memory_, domains_.window_bytes()).ok());
    }

    CallContext context(bool writes) {
        return {*transports_[0], topology_, ranks_,      groups_, globals_,   domains_,
                memory_,         nullptr,   statistics_, writes,  local_slots};
    }
    // The first word of a group: what it offers for window 0.
    static Word offer(std::vector<Request> runs, uint64_t bytes) {
        Word word;
        word.kind = Word::Kind::offer;
        word.ids = {0};
        word.count = runs.size();
        word.bytes = bytes;
        word.runs = std::move(runs);
        return word;
    }
    void expect_refused(const Status& status, const std::string& part) {
        EXPECT_EQ(status.code(), Code::transport);
        EXPECT_THAT(status.message(), HasSubstr(part));
    }
    Status offered(const Word& word, bool writes = true) {
        CallContext call = context(writes);
        GlobalPart global(call, nullptr);
        return global.handle(1, word);
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

TEST_F(HostileWordsTest, RunsOutsideTheWindowAreRefused) {
    EXPECT_TRUE(offered(offer({{0, 100}}, 100)).ok());
    expect_refused(offered(offer({{4000, 100}}, 100)), "4000");
    expect_refused(offered(offer({{uint64_t{1} << 40, 100}}, 100)), "window");
    expect_refused(offered(offer({{100, UINT64_MAX - 50}}, 100)), "window");
    expect_refused(offered(offer({{0, 100}, {50, 100}}, 200)), "behind others");
    expect_refused(offered(offer({{0, 100}}, 200)), "announces 200 bytes");
}

TEST_F(HostileWordsTest, MoreRunsThanAWindowCanHoldAreRefused) {
    Word word = offer({}, 100);
    word.count = uint64_t{1} << 50;
    expect_refused(offered(word), "runs");
    word.count = 1;
    word.bytes = uint64_t{1} << 40;
    expect_refused(offered(word), "runs");
}

TEST_F(HostileWordsTest, WindowsOfOthersAndWordsOutOfOrderAreRefused) {
    Word word = offer({{0, 100}}, 100);
    word.ids = {uint64_t{1} << 50};
    expect_refused(offered(word), "does not own");
    CallContext call = context(true);
    GlobalPart global(call, nullptr);
    ASSERT_TRUE(global.handle(1, offer({{0, 100}}, 100)).ok());
    word = offer({{0, 100}}, 100);
    word.ids.clear();
    expect_refused(global.handle(1, word), "out of order");
    word.kind = Word::Kind::grant;
    expect_refused(global.handle(1, word), "out of order");
}

TEST_F(HostileWordsTest, SharedMemoryIsReadOnlyAsFarAsItGoes) {
    auto packed = SharedMemory::create(4096), runs = SharedMemory::create(4096);
    ASSERT_TRUE(packed.ok() && runs.ok());
    const Request run{0, 100};
    std::memcpy(runs->memory().data(), &run, sizeof run);
    Word word = offer({}, 100);
    word.count = 1;
    word.shared = true;
    word.list = runs->name();
    word.data = packed->name();
    EXPECT_TRUE(offered(word).ok());
    Word wrong = word;
    wrong.slot = 1;  // at one window, which is all there is
    expect_refused(offered(wrong), "slot 1");
    wrong.slot = UINT32_MAX;
    expect_refused(offered(wrong), "slot");
    wrong = word;
    wrong.count = wrong.bytes = 300;
    expect_refused(offered(wrong), "300 requests");
    const Request outside{4090, 100};
    std::memcpy(runs->memory().data(), &outside, sizeof outside);
    expect_refused(offered(word), "4090");
}

TEST_F(HostileWordsTest, AMemberCopiesOnlyWhereItsAggregatorHasPlaceForIt) {
    auto packed = SharedMemory::create(4096), runs = SharedMemory::create(4096);
    ASSERT_TRUE(packed.ok() && runs.ok());
    groups_.aggregator_of_rank = {1, 1};
    const std::array<Request, 1> requests = {Request{10, 100}};
    const RequestList list(requests, false);
    std::vector<std::byte> bytes(100, std::byte{9});
    const MemoryList memory({std::span<std::byte>(bytes)});
    Word word;
    word.kind = Word::Kind::place;
    word.count = 1;
    word.bytes = 110;
    word.shared = true;
    word.list = runs->name();
    word.data = packed->name();
    const auto told = [&](const Word& said, const Request& run) {
        std::memcpy(runs->memory().data(), &run, sizeof run);
        CallContext call = context(true);
        MemberPart member(call, list, memory);
        return member.handle(1, said);
    };
    EXPECT_TRUE(told(word, {0, 110}).ok());
    EXPECT_EQ(packed->memory()[10], std::byte{9});
    expect_refused(told(word, {0, 50}), "no place");      // part of it
    expect_refused(told(word, {2000, 110}), "no place");  // behind it
    expect_refused(told(word, {0, 5}), "no place");       // before it
    Word wrong = word;
    wrong.bytes = 60;  // of packed data, though the run has 110
    expect_refused(told(wrong, {0, 110}), "no place");
    wrong = word;
    wrong.slot = 7;
    expect_refused(told(wrong, {0, 110}), "slot");
    wrong = word;
    wrong.count = 5000;
    expect_refused(told(wrong, {0, 110}), "5000 requests");
}

}  // namespace
}  // namespace tailrace::collective
