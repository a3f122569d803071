// One aggregator, and other nodes played by the test, which say what they like and when they like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "aggregate/aggregator.h"
#include "aggregate/faults_fixture.h"
#include "aggregate/messages.h"
#include "transport/in_process.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;

// Node `real` is an aggregator; the others, of `sizes` each, are the test. `other` is the one that speaks and
// hears.
class PlayedNodeTest : public AggregatorFaultsTest {
  protected:
    void make(int real, std::vector<uint64_t> sizes, const ClusterSettings& settings = small(2, 1)) {
        aggregator.reset();
        real_ = real;
        other = real == 0 ? 1 : 0;
        transports = make_in_process_transports(std::vector<std::string>(sizes.size(), "machine"));
        Cluster cluster(settings, local, memory);
        jobs = cluster.capture(key, sizes);
        auto options = settings.options;
        options.shared_dir = Cluster::shared_dir;
        auto made =
            Aggregator::create(options, cluster.topology(), real, *transports[static_cast<size_t>(real)],
                               *local, *memory, [this] { transports[static_cast<size_t>(real_)]->wake(); });
        ASSERT_TRUE(made.ok());
        aggregator = std::move(made).value();
    }
    void say(const AggregatorMessage& message) {
        ASSERT_TRUE(transports[static_cast<size_t>(other)]->post(real_, encode(message)).ok());
    }
    // Lets the node move until it has said something of type T, or nothing at all for long.
    template <class T>
    std::optional<T> hear(int most_turns = 10'000) {
        for (int turn = 0; turn < most_turns; ++turn) {
            Transport& mine = *transports[static_cast<size_t>(real_)];
            for (auto message = mine.poll(); message.ok() && message->has_value(); message = mine.poll())
                aggregator->handle((**message).source, (**message).bytes);
            aggregator->step();
            Transport& theirs = *transports[static_cast<size_t>(other)];
            for (auto heard = theirs.poll(); heard.ok() && heard->has_value(); heard = theirs.poll()) {
                auto message = decode_aggregator_message((**heard).bytes);
                if (const T* wanted = message.ok() ? std::get_if<T>(&*message) : nullptr) return *wanted;
            }
            mine.wait(std::chrono::milliseconds(1), true);
        }
        return std::nullopt;
    }
    OfferMessage offer_of_other() {
        const auto ranks = static_cast<uint32_t>(jobs.size());
        OfferMessage offer{key, Cluster::job, Cluster::run_uid, ranks, {other, {}}, Status()};
        for (const auto& stream : jobs[static_cast<size_t>(other)].streams)
            offer.offer.streams.push_back(stream.info);
        return offer;
    }

    const EpochKey key{1, 1};
    int real_ = 0;
    std::vector<FlushJob> jobs;
    int other = 1;
    std::vector<std::unique_ptr<Transport>> transports;
    std::unique_ptr<Aggregator> aggregator;
};

TEST_F(PlayedNodeTest, LeaderFailsItsSegmentWhenAFollowerEndsWithAReason) {
    make(0, {90'000, 50'000});
    aggregator->start(jobs[0]);
    say(offer_of_other());
    const auto credit = hear<CreditMessage>();
    ASSERT_TRUE(credit.has_value());
    say(EmptyMessage{key, credit->credit, Status(Code::io_error, "node 1: the part is gone")});
    // Credits that were open as well; then silence.
    for (int round = 0; round < 1000 && aggregator->moving(); ++round) {
        if (const auto next = hear<CreditMessage>(10))
            say(EmptyMessage{key, next->credit, Status(Code::io_error, "node 1: the part is gone")});
    }
    (void)hear<CreditMessage>(200);
    const auto results = aggregator->take_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].status.message(), "node 1: the part is gone");
    EXPECT_TRUE(directory_is_empty(*memory));
}

TEST_F(PlayedNodeTest, ChunkThatWasNeverOfferedFailsTheEpochAndIsReceivedAllTheSame) {
    make(0, {90'000, 3'000});
    aggregator->start(jobs[0]);
    say(offer_of_other());
    const auto credit = hear<CreditMessage>();
    ASSERT_TRUE(credit.has_value());
    const std::vector<std::byte> data(4'096);
    auto transfer = transports[1]->start_send(0, data_tag(credit->credit), data);
    ASSERT_TRUE(transfer.ok());
    say(ChunkMessage{key, credit->credit, 1, 0, 4'096});  // the stream has 3000 bytes
    const auto result = hear<ResultMessage>();
    ASSERT_TRUE(result.has_value());
    EXPECT_THAT(result->status.message(), HasSubstr("not a chunk of what it offered"));
    EXPECT_TRUE((*transfer)->test()->has_value());
    EXPECT_TRUE(directory_is_empty(*memory));
}

TEST_F(PlayedNodeTest, FateThatComesBeforeTheStartEndsTheJobAtOnce) {
    make(1, {10'000, 50'000});
    say(ResultMessage{key, Status(Code::no_space, "node 0: no room")});
    EXPECT_FALSE(hear<OfferMessage>(10).has_value());
    aggregator->start(jobs[1]);
    const auto results = aggregator->take_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].status.code(), Code::no_space);
    EXPECT_TRUE(aggregator->idle());
}

TEST_F(PlayedNodeTest, CreditsThatOvertakeThePlanAreAnsweredWhenItHasCome) {
    make(1, {90'000, 3'000});
    aggregator->start(jobs[1]);
    const auto offer = hear<OfferMessage>();
    ASSERT_TRUE(offer.has_value());
    say(CreditMessage{key, 5});
    PlanSettings settings = small(2, 1).options.plan;
    auto plan = make_plan(Cluster::job, key, Cluster::run_uid, 2, group_of_node(0, 2, 1),
                          {offer_of_other().offer, offer->offer}, settings);
    ASSERT_TRUE(plan.ok());
    say(PlanMessage{*plan});
    const auto chunk = hear<ChunkMessage>();
    ASSERT_TRUE(chunk.has_value());
    EXPECT_EQ(chunk->credit, 5u);
    EXPECT_EQ(chunk->bytes, 3'000u);
    std::vector<std::byte> data(4'096), expected(3'000);
    auto transfer = transports[0]->start_receive(1, data_tag(5), data);
    ASSERT_TRUE(transfer.ok());
    EXPECT_EQ(**(*transfer)->test(), 3'000u);
    fill_stream(key, 1, 0, expected);
    data.resize(3'000);
    EXPECT_EQ(data, expected);
    say(CreditMessage{key, 6});
    const auto empty = hear<EmptyMessage>();
    ASSERT_TRUE(empty.has_value());
    EXPECT_EQ(empty->credit, 6u);
    EXPECT_TRUE(empty->why.ok());
}

// Node 1 neither writes nor sends anything by such a plan, and node 0 need not wait for it.
TEST_F(PlayedNodeTest, APlanThatMisfitsFailsTheEpochOnTheNodeThatGetsIt) {
    ClusterSettings settings = small(2, 1);
    settings.options.plan.leaders_per_file = 2;
    settings.options.plan.placement = Placement::contiguous;
    using Change = std::function<void(FlushPlan&)>;
    const auto expect_refused = [&](const char* reason, const Change& change) {
        make(1, {90'000, 30'000}, settings);
        aggregator->start(jobs[1]);
        const auto offer = hear<OfferMessage>();
        ASSERT_TRUE(offer.has_value());
        say(CreditMessage{key, 5});
        auto plan = make_plan(Cluster::job, key, Cluster::run_uid, 2, group_of_node(0, 2, 1),
                              {offer_of_other().offer, offer->offer}, settings.options.plan);
        ASSERT_TRUE(plan.ok());
        ASSERT_EQ(plan->leaders.size(), 2u);
        change(*plan);
        ASSERT_TRUE(check_plan(*plan).ok()) << "it would be damaged";
        say(PlanMessage{*plan});
        const auto failed = hear<FailedMessage>();
        ASSERT_TRUE(failed.has_value());
        EXPECT_THAT(failed->why.message(), HasSubstr(reason));
        EXPECT_THAT(failed->why.message(), HasSubstr("node 1: the plan of epoch 1 of run 1 has other"));
        const auto segment = hear<SegmentMessage>();
        ASSERT_TRUE(segment.has_value());
        EXPECT_FALSE(segment->status.ok());
        const auto empty = hear<EmptyMessage>();
        ASSERT_TRUE(empty.has_value());
        EXPECT_EQ(empty->credit, 5u);
        EXPECT_FALSE(empty->why.ok());
        EXPECT_TRUE(aggregator->take_plans().empty());
        say(ResultMessage{key, failed->why});
        (void)hear<OfferMessage>(10);
        EXPECT_EQ(aggregator->take_results().size(), 1u);
        EXPECT_TRUE(aggregator->idle());
        EXPECT_TRUE(directory_is_empty(*memory));
    };
    const char* const streams = "other streams of node 1 than it has captured";
    expect_refused(streams, [](FlushPlan& plan) { plan.offers[1].streams.clear(); });
    expect_refused(streams, [](FlushPlan& plan) { plan.offers[1].streams[0].stream_bytes -= 1; });
    const char* const configuration = "other nodes, files or buffers than this node's configuration";
    expect_refused(configuration, [](FlushPlan& plan) { plan.placement = Placement::append; });
    expect_refused(configuration, [](FlushPlan& plan) { plan.leaders = {1}; });
    expect_refused(configuration, [](FlushPlan& plan) { plan.chunk_bytes *= 2; });
    expect_refused(configuration, [](FlushPlan& plan) { plan.run_uid += 1; });
    expect_refused(configuration, [](FlushPlan& plan) { plan.job = "other"; });
    expect_refused(configuration, [](FlushPlan& plan) {
        plan.file_count = 2;
        plan.group.last_file = 2;
        plan.leaders = {1};
    });
}

TEST_F(PlayedNodeTest, LeaderAsksForAsManyChunksAsItHasShownToWriteWhereFollowersHaveAChoice) {
    ClusterSettings settings = small(3, 1);
    settings.options.plan.leaders_per_file = 2;  // nodes 0 and 1
    settings.options.buffers = 16;
    make(0, {90'000, 80'000, 60'000}, settings);
    aggregator->start(jobs[0]);
    say(offer_of_other());
    other = 2;  // the follower
    say(offer_of_other());
    std::vector<uint32_t> credits;
    const auto all_credits = [&] {
        while (const auto credit = hear<CreditMessage>(200)) credits.push_back(credit->credit);
        return credits.size();
    };
    ASSERT_EQ(all_credits(), 2u) << "of 16 buffers";
    std::vector<std::byte> chunk(4'096);
    for (size_t sent = 0; sent < 2; ++sent) {
        fill_stream(key, 2, sent * chunk.size(), chunk);
        auto transfer = transports[2]->start_send(0, data_tag(credits[sent]), chunk);
        ASSERT_TRUE(transfer.ok());
        say(ChunkMessage{key, credits[sent], 2, sent * chunk.size(), chunk.size()});
        // The one that was sent makes room for one, and having written it for one more.
        ASSERT_EQ(all_credits(), 4 + 2 * sent);
        ASSERT_TRUE((*transfer)->test()->has_value());
    }
    for (size_t open = 2; open < credits.size(); ++open)
        say(EmptyMessage{key, credits[open], Status(Code::io_error, "node 2: the part is gone")});
    other = 1;
    say(SegmentMessage{key, Status(Code::io_error, "node 2: the part is gone"), {}});
    ASSERT_TRUE(hear<ResultMessage>().has_value());
}

}  // namespace
}  // namespace tailrace::internal
