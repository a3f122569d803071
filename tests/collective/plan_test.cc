// Who aggregates for whom, what belongs to whom, and whether two layers pay.
#include "collective/plan.h"

#include <gmock/gmock.h>

#include <numeric>

#include "aggregate/seeds.h"

namespace tailrace::internal::collective {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// `nodes` nodes of `each` ranks, in blocks or dealt out in turn.
Topology nodes_of(int nodes, int each, bool in_turn = false) {
    std::vector<std::string> hosts;
    for (int rank = 0; rank < nodes * each; ++rank)
        hosts.push_back("node" + std::to_string(in_turn ? rank % nodes : rank / each));
    return make_topology(hosts, 0);
}

Layout any_layout(Random& random) {
    const Layout layouts[] = {Layout::contiguous, Layout::cyclic, Layout::group_cyclic};
    return layouts[below(random, 3)];
}

std::vector<RankSummary> ranks_with(size_t ranks, uint64_t requests, uint64_t bytes_each, bool interleaved) {
    std::vector<RankSummary> all(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
        all[rank].has_shared_list = true;
        const uint64_t bytes = requests * bytes_each;
        all[rank].list = {requests, bytes, interleaved ? rank * bytes_each : rank * bytes,
                          interleaved ? bytes * ranks : (rank + 1) * bytes, false};
    }
    return all;
}

}  // namespace

TEST(SpreadOutTest, ThePapersExample) {
    EXPECT_THAT(spread_out(8, 3), ElementsAre(0, 3, 6));
}

TEST(SpreadOutTest, GroupsDifferByOneRankAndTheLargerComeFirst) {
    for (int ranks = 1; ranks <= 40; ++ranks)
        for (int chosen = 1; chosen <= ranks; ++chosen) {
            std::vector<int> local = spread_out(ranks, chosen);
            ASSERT_EQ(local.size(), static_cast<size_t>(chosen));
            ASSERT_EQ(local.front(), 0);
            local.push_back(ranks);
            for (int i = 0; i < chosen; ++i) {
                const auto at = static_cast<size_t>(i);
                const int expected = ranks / chosen + (i < ranks % chosen ? 1 : 0);
                ASSERT_EQ(local[at + 1] - local[at], expected) << ranks << " ranks, " << chosen << " chosen";
            }
        }
}

TEST(GroupsTest, StayWithinTheirNodeAlsoWhenRanksAreDealtOutInTurn) {
    const Groups groups = make_groups(nodes_of(2, 4, true), 2, {true, true});
    EXPECT_THAT(groups.aggregators, ElementsAre(0, 1, 4, 5));
    EXPECT_THAT(groups.members(0), ElementsAre(0, 2));
    EXPECT_THAT(groups.members(5), ElementsAre(5, 7));
}

TEST(GroupsTest, WithoutSharedMemoryEveryRankIsItsOwn) {
    const Groups groups = make_groups(nodes_of(2, 3), 1, {false, true});
    EXPECT_THAT(groups.aggregators, ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(groups.aggregator_of_rank, ElementsAre(0, 1, 2, 3, 3, 3));
    EXPECT_EQ(make_groups(nodes_of(2, 3), 0, {true, true}).aggregators.size(), 6u);
}

TEST(GlobalAggregatorsTest, AreSpreadOutOverNodesAndThenOverRanks) {
    EXPECT_THAT(choose_global_aggregators(nodes_of(6, 8), 3), ElementsAre(0, 16, 32));
    EXPECT_THAT(choose_global_aggregators(nodes_of(3, 8), 0), ElementsAre(0, 8, 16));
    EXPECT_THAT(choose_global_aggregators(nodes_of(2, 4), 3), ElementsAre(0, 2, 4));
    EXPECT_THAT(choose_global_aggregators(nodes_of(2, 2), 9), ElementsAre(0, 1, 2, 3));
}

TEST(DomainsTest, EveryByteLiesInOneWindowOfAlignedBorders) {
    for (const uint64_t seed : seeds(1, 400)) {
        Random random(seed);
        DomainSettings settings;
        settings.layout = any_layout(random);
        settings.stripes = static_cast<int>(below(random, 4));
        settings.align_bytes = uint64_t{1} << below(random, 6);
        settings.window_bytes = settings.align_bytes * (1 + below(random, 8));
        const uint64_t begin = below(random, 1000);
        const FileWindow range{begin, begin + 1 + below(random, 3000)};
        const int owners = static_cast<int>(1 + below(random, 7));
        const Domains domains(range, owners, settings);
        uint64_t covered = 0;
        for (uint64_t id = 0; id < domains.rounds() * static_cast<uint64_t>(owners); ++id) {
            const FileWindow window = domains.window(id);
            EXPECT_LE(window.bytes(), settings.window_bytes);
            EXPECT_LE(window.bytes(), domains.window_bytes());
            covered += window.bytes();
            if (window.bytes() == 0) continue;
            EXPECT_EQ(domains.window_of(window.begin), id) << "seed " << seed;
            EXPECT_EQ(domains.window_of(window.end - 1), id) << "seed " << seed;
            EXPECT_TRUE(domains.may_touch({window.begin, window.begin + 1}, domains.owner(id)));
            for (const uint64_t border : {window.begin, window.end})
                EXPECT_TRUE(border == range.begin || border == range.end ||
                            border % settings.align_bytes == 0)
                    << "seed " << seed;
        }
        EXPECT_EQ(covered, range.bytes()) << "seed " << seed;
    }
}

TEST(DomainsTest, PartsThatAreGivenAreKeptButForTheirAlignment) {
    for (const uint64_t seed : seeds(1, 400)) {
        Random random(seed);
        DomainSettings settings;
        settings.align_bytes = uint64_t{1} << below(random, 5);
        settings.window_bytes = settings.align_bytes * (1 + below(random, 8));
        const uint64_t begin = below(random, 1000), bytes = 1 + below(random, 3000);
        const FileWindow range{begin, begin + bytes};
        const uint64_t owners = 1 + below(random, 6);
        std::vector<uint64_t> begins;
        for (uint64_t owner = 1; owner < owners; ++owner) begins.push_back(begin + below(random, bytes));
        std::sort(begins.begin(), begins.end());
        const Domains domains(range, static_cast<int>(owners), settings, begins);
        uint64_t covered = 0;
        for (uint64_t id = 0; id < domains.rounds() * owners; ++id) {
            const FileWindow window = domains.window(id);
            EXPECT_LE(window.bytes(), domains.window_bytes());
            covered += window.bytes();
            if (window.bytes() == 0) continue;
            const auto owner = static_cast<size_t>(domains.owner(id));
            EXPECT_TRUE(owner == 0 || window.end > begins[owner - 1]) << "seed " << seed;
            EXPECT_TRUE(owner + 1 == owners || window.begin < begins[owner]) << "seed " << seed;
            EXPECT_TRUE(domains.may_touch({window.begin, window.begin + 1}, domains.owner(id)));
            for (const uint64_t at : {window.begin, window.end - 1})
                EXPECT_EQ(domains.window_of(at), id) << "seed " << seed;
            for (const uint64_t border : {window.begin, window.end})
                EXPECT_TRUE(border == range.begin || border == range.end ||
                            border % settings.align_bytes == 0)
                    << "seed " << seed;
        }
        EXPECT_EQ(covered, range.bytes()) << "seed " << seed;
    }
}

TEST(DomainsTest, ALargePartIsCutIntoRoundsThatOverlap) {
    constexpr uint64_t mib = uint64_t{1} << 20;
    DomainSettings settings;  // windows of at most 16 MiB
    for (const Layout layout : {Layout::contiguous, Layout::cyclic}) {
        settings.layout = layout;
        const auto rounds = [&](uint64_t bytes) { return Domains({0, bytes}, 4, settings).rounds(); };
        EXPECT_EQ(rounds(4 * 2 * mib), 1u);  // 2 MiB of each owner: not worth more
        EXPECT_EQ(rounds(4 * 4 * mib), 2u);
        EXPECT_EQ(rounds(4 * 32 * mib), 4u);
        EXPECT_EQ(rounds(4 * 160 * mib), 10u);
    }
    settings.align_bytes = 3 * mib;  // stripes stay whole
    settings.window_bytes = 15 * mib;
    EXPECT_EQ(Domains({0, 4 * 12 * mib}, 4, settings).window_bytes(), 3 * mib);
}

TEST(DomainsTest, AStripeBelongsToOneOwnerOfItsGroupInEveryCall) {
    constexpr uint64_t stripe = 1 << 16;
    DomainSettings settings;
    settings.layout = Layout::group_cyclic;
    settings.align_bytes = stripe;
    settings.stripes = 3;
    for (const uint64_t seed : seeds(1, 50)) {
        Random random(seed);
        const uint64_t begin = below(random, 100 * stripe);
        const FileWindow range{begin, begin + 1 + below(random, 200 * stripe)};
        const Domains domains(range, 6, settings);
        std::set<int> owners;
        int last_group = 0;
        for (uint64_t at = begin; at < range.end; at = (at / stripe + 1) * stripe) {
            const uint64_t id = domains.window_of(at);
            const int owner = domains.owner(id);
            EXPECT_EQ(static_cast<uint64_t>(owner % 3), at / stripe % 3) << "seed " << seed;
            EXPECT_EQ(domains.window(id).begin, at) << "seed " << seed;
            EXPECT_GE(owner / 3, last_group) << "seed " << seed;  // the second group behind the first
            last_group = owner / 3;
            owners.insert(owner);
        }
        if (range.bytes() > 20 * stripe) {
            EXPECT_EQ(owners.size(), 6u) << "seed " << seed;
        }
    }
    EXPECT_THAT(choose_global_aggregators(nodes_of(4, 2), 5, 2), ElementsAre(0, 2, 4, 6));
    EXPECT_THAT(choose_global_aggregators(nodes_of(4, 2), 0, 3), ElementsAre(0, 2, 4));
    EXPECT_EQ(choose_global_aggregators(nodes_of(4, 2), 2, 8).size(), 2u);
}

TEST(DomainsTest, AnOwnerThatIsRuledOutHasNothing) {
    for (const uint64_t seed : seeds(1, 300)) {
        Random random(seed);
        DomainSettings settings;
        settings.layout = any_layout(random);
        settings.stripes = static_cast<int>(below(random, 6));
        settings.align_bytes = 4;
        settings.window_bytes = 16;
        const Domains domains({0, 500}, 5, settings);
        const uint64_t begin = below(random, 450);
        const FileWindow range{begin, begin + 1 + below(random, 50)};
        for (uint64_t at = range.begin; at < range.end; ++at)
            EXPECT_TRUE(domains.may_touch(range, domains.owner(domains.window_of(at)))) << "seed " << seed;
    }
}

TEST(WindowsOfTest, NamesEveryWindowWithARequestAndNoOther) {
    for (const uint64_t seed : seeds(1, 300)) {
        Random random(seed);
        DomainSettings settings;
        settings.layout = any_layout(random);
        settings.align_bytes = 8;
        settings.window_bytes = 8 * (1 + below(random, 4));
        const Domains domains({0, 2000}, static_cast<int>(1 + below(random, 5)), settings);
        const bool overlapping = below(random, 2) == 0;
        std::vector<Request> all;
        std::set<uint64_t> expected;
        for (uint64_t at = below(random, 50); at < 1900;) {
            const uint64_t bytes = 1 + below(random, 100);
            all.push_back({at, bytes});
            for (uint64_t byte = at; byte < at + bytes; ++byte) expected.insert(domains.window_of(byte));
            at += overlapping ? below(random, 60) : bytes + below(random, 200);
        }
        EXPECT_THAT(windows_of(RequestList(all, overlapping), domains), testing::ElementsAreArray(expected))
            << "seed " << seed;
    }
}

TEST(DecideTest, ManySmallRequestsGoThroughTwoLayers) {
    const Decision decision = decide(nodes_of(2, 4), ranks_with(8, 10000, 400, true), {});
    EXPECT_EQ(decision.way, Way::two_layer);
    EXPECT_EQ(decision.local_aggregators_per_node, 1);
    EXPECT_THAT(decision.reason, HasSubstr("many and small"));
}

TEST(DecideTest, LargeNodesGetSeveralLocalAggregators) {
    EXPECT_EQ(decide(nodes_of(1, 100), ranks_with(100, 10000, 400, true), {}).local_aggregators_per_node, 4);
}

TEST(DecideTest, FewLargeRequestsSkipTheFirstLayer) {
    const Decision decision = decide(nodes_of(2, 4), ranks_with(8, 10, 100000, true), {});
    EXPECT_EQ(decision.way, Way::two_phase);
    EXPECT_THAT(decision.reason, HasSubstr("few and large"));
}

TEST(DecideTest, RanksInPartsOfTheirOwnNeedNoExchange) {
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 4, 1 << 20, false), {}).way, Way::direct);
    Settings always;
    always.exchange = Exchange::always;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 4, 1 << 20, false), always).way, Way::two_phase);
}

TEST(DecideTest, FewSmallRequestsInPartsOfTheirOwnNeedNoExchange) {
    std::vector<RankSummary> ranks = ranks_with(8, few_requests, 64, false);
    EXPECT_EQ(decide(nodes_of(2, 4), ranks, {}).way, Way::direct);
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, few_requests, 64, true), {}).way, Way::two_layer);
    ++ranks[5].list.requests;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks, {}).way, Way::two_layer) << "one rank has more";
    Settings remote;
    remote.local_file_system = false;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 1, 64, false), remote).way, Way::two_layer);
}

// Beyond a network one writer of a node is quicker than many, until each has much to write.
TEST(DecideTest, RanksInPartsOfTheirOwnShareTheirNodesWriterBeyondANetwork) {
    constexpr uint64_t kib = 1 << 10, mib = 1 << 20;
    Settings settings;
    settings.local_file_system = false;
    const Decision decision = decide(nodes_of(2, 4), ranks_with(8, 1, 2 * mib, false), settings);
    EXPECT_EQ(decision.way, Way::two_phase);
    EXPECT_THAT(decision.begins, ElementsAre(8 * mib));
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 1, 4 * mib, false), settings).way, Way::direct);
    // Where that would be a detour every rank goes by itself: nodes interleave, or have one rank each.
    EXPECT_EQ(decide(nodes_of(2, 4, true), ranks_with(8, 1, 256 * kib, false), settings).way, Way::direct);
    EXPECT_EQ(decide(nodes_of(8, 1), ranks_with(8, 1, 256 * kib, false), settings).way, Way::direct);
}

TEST(DecideTest, NodesInPartsOfTheirOwnKeepThem) {
    // Three nodes of two ranks; the second has nothing, the others unequal parts.
    std::vector<RankSummary> ranks = ranks_with(6, 10, 100, false);
    ranks[2].list = ranks[3].list = {};
    ranks[5].list.end += 500;
    EXPECT_THAT(decide(nodes_of(3, 2), ranks, {}).begins, testing::IsEmpty()) << "one has most";
    ranks[2].list = {1, 1500, 2000, 3500, false};
    EXPECT_THAT(decide(nodes_of(3, 2), ranks, {}).begins, ElementsAre(2000, 4000));
    ranks[3].list = {1, 1, 4000, 4001, false};
    EXPECT_THAT(decide(nodes_of(3, 2), ranks, {}).begins, testing::IsEmpty()) << "they interleave";
    ranks[3].list = {};
    Settings settings;
    settings.global_aggregators = 2;
    EXPECT_THAT(decide(nodes_of(3, 2), ranks, settings).begins, testing::IsEmpty()) << "not one per node";
    settings.global_aggregators = 0;
    settings.domains.layout = Layout::cyclic;
    EXPECT_THAT(decide(nodes_of(3, 2), ranks, settings).begins, testing::IsEmpty()) << "not their parts";
}

TEST(DecideTest, ASmallWriteIsOneMessagePerNode) {
    std::vector<RankSummary> ranks = ranks_with(8, 2, 100000, true);
    EXPECT_EQ(decide(nodes_of(2, 4), ranks, {}).way, Way::two_phase) << "a read";
    for (size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].shares_bytes = rank % 4 > 0;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks, {}).way, Way::two_layer);
    ranks[0].list.bytes = small_write_bytes + 1;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks, {}).way, Way::two_phase) << "not all are small";
}

TEST(DecideTest, WhatIsAskedForIsDone) {
    Settings settings;
    settings.local_aggregators_per_node = 2;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 4, 1 << 20, false), settings).way, Way::two_layer);
    settings.local_aggregators_per_node = -1;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 10000, 40, true), settings).way, Way::two_phase);
    settings.exchange = Exchange::never;
    EXPECT_EQ(decide(nodes_of(2, 4), ranks_with(8, 10000, 40, true), settings).way, Way::direct);
}

TEST(DecideTest, ReasonsNotToShare) {
    EXPECT_EQ(decide(nodes_of(4, 1), ranks_with(4, 1000, 40, true), {}).way, Way::two_phase);
    std::vector<RankSummary> ranks = ranks_with(4, 1000, 40, true);
    ranks[2].has_shared_list = false;
    EXPECT_THAT(decide(nodes_of(2, 2), ranks, {}).reason, HasSubstr("no memory in which to share"));
    EXPECT_EQ(decide(nodes_of(2, 2), std::vector<RankSummary>(4), {}).way, Way::nothing);
}

}  // namespace tailrace::internal::collective
