// The plan's decisions: groups, election, and the places of extents.
#include "flush/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "aggregate/seeds.h"
#include "base/crc32c.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/units.h"
#include "flush/recorded_plan.h"

namespace tailrace::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

NodeOffer offer_of(int node, std::vector<uint64_t> stream_bytes, uint32_t first_rank) {
    NodeOffer offer;
    offer.node = node;
    for (uint64_t bytes : stream_bytes) offer.streams.push_back({first_rank++, bytes, 0, 7});
    return offer;
}

// ---- groups ------------------------------------------------------------------------------------------

TEST(GroupTest, EveryNodeAndEveryFileIsInExactlyOneGroupForAllSmallNumbers) {
    for (int nodes = 1; nodes <= 24; ++nodes) {
        for (uint32_t files = 1; files <= 50; ++files) {
            SCOPED_TRACE(testing::Message() << nodes << " nodes, " << files << " files");
            int next_node = 0, index = 0;
            uint32_t next_file = 0;
            int smallest = nodes, largest = 0;
            while (next_node < nodes) {
                const Group group = group_of_node(next_node, nodes, files);
                ASSERT_EQ(group.index, index++);
                ASSERT_EQ(group.first_node, next_node);
                ASSERT_EQ(group.first_file, next_file);
                ASSERT_GT(group.last_node, group.first_node);
                ASSERT_GT(group.last_file, group.first_file);
                for (int node = group.first_node; node < group.last_node; ++node)
                    ASSERT_EQ(group_of_node(node, nodes, files), group);
                if (group.file_count() > 1) {
                    ASSERT_EQ(group.node_count(), 1);
                }
                smallest = std::min(smallest, group.node_count());
                largest = std::max(largest, group.node_count());
                next_node = group.last_node;
                next_file = group.last_file;
            }
            ASSERT_EQ(next_node, nodes);
            ASSERT_EQ(next_file, files);
            ASSERT_EQ(index, std::min<int>(nodes, static_cast<int>(files)));
            ASSERT_LE(largest - smallest, 1);
        }
    }
}

TEST(GroupTest, LargestNumbersDoNotOverflow) {
    const int nodes = static_cast<int>(max_ranks);
    const Group last = group_of_node(nodes - 1, nodes, max_files);
    EXPECT_EQ(last.last_node, nodes);
    EXPECT_EQ(last.last_file, max_files);
}

// ---- election ----------------------------------------------------------------------------------------

TEST(ElectionTest, MostBytesLeadsAndTiesGoToTheLowestNode) {
    const std::vector<NodeOffer> offers = {offer_of(4, {10}, 0), offer_of(5, {20, 10}, 1),
                                           offer_of(6, {30}, 3), offer_of(7, {}, 4)};
    EXPECT_THAT(elect_leaders(offers, 1), ElementsAre(5));
    EXPECT_THAT(elect_leaders(offers, 3), ElementsAre(5, 6, 4));
    EXPECT_THAT(elect_leaders(offers, 9), ElementsAre(5, 6, 4, 7));
}

TEST(ElectionTest, GroupOfEmptyNodesIsLedByItsLowest) {
    EXPECT_THAT(elect_leaders({offer_of(2, {}, 0), offer_of(3, {0}, 0)}, 1), ElementsAre(2));
}

// ---- plans -------------------------------------------------------------------------------------------

Group one_group(int nodes) {
    return group_of_node(0, nodes, 1);
}

TEST(PlanTest, ChunksAreSmallerThanBuffersWhereNodesHaveLittle) {
    PlanSettings settings;
    settings.chunk_bytes = 64 * MiB;
    const auto chunk = [&](std::vector<uint64_t> bytes_of_nodes) {
        std::vector<NodeOffer> offers;
        for (uint64_t bytes : bytes_of_nodes)
            offers.push_back(
                offer_of(static_cast<int>(offers.size()), {bytes}, static_cast<uint32_t>(offers.size())));
        return fitting_chunk_bytes(offers, settings);
    };
    EXPECT_EQ(chunk({512 * MiB}), 64 * MiB);
    EXPECT_EQ(chunk({512 * MiB - 1}), 32 * MiB);
    EXPECT_EQ(chunk({128 * MiB, 0, 128 * MiB, 0}), 16 * MiB);  // empty nodes do not count
    EXPECT_EQ(chunk({200 * MiB, 56 * MiB}), 16 * MiB);
    EXPECT_EQ(chunk({100}), 4 * MiB);
    EXPECT_EQ(chunk({0, 0}), 4 * MiB);
    settings.chunk_bytes = 20 * MiB;  // as far as halves are whole blocks and of use to the checksums
    EXPECT_EQ(chunk({100}), 5 * MiB);
    settings.block_bytes = 4 * MiB;
    EXPECT_EQ(chunk({100}), 20 * MiB);
    settings.block_bytes = 4096;
    settings.chunk_bytes = 2 * MiB;
    EXPECT_EQ(chunk({100}), 2 * MiB);
    settings.chunk_bytes = 8 * MiB + 256 * KiB;
    EXPECT_EQ(chunk({100}), 8 * MiB + 256 * KiB);
}

TEST(PlanTest, RankOfferedTwiceIsRefused) {
    auto plan =
        make_plan("job", {1, 1}, 5, 4, one_group(2), {offer_of(0, {8, 8}, 0), offer_of(1, {8}, 1)}, {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), Code::invalid_argument);
    EXPECT_THAT(plan.status().message(), HasSubstr("rank 1 is offered twice"));
}

TEST(PlanTest, MissingForeignOrImpossibleOffersAreRefused) {
    const auto refused = [](std::vector<NodeOffer> offers) {
        return make_plan("job", {1, 1}, 5, 4, one_group(2), std::move(offers), {}).status().message();
    };
    EXPECT_THAT(refused({offer_of(0, {8}, 0)}), HasSubstr("the offers of 1 nodes, but the group has 2"));
    EXPECT_THAT(refused({offer_of(0, {8}, 0), offer_of(2, {8}, 1)}), HasSubstr("offer 1 is that of node 2"));
    EXPECT_THAT(refused({offer_of(0, {8}, 0), offer_of(1, {8}, 4)}), HasSubstr("rank 4 of 4"));
    EXPECT_THAT(refused({offer_of(0, {UINT64_MAX}, 0), offer_of(1, {UINT64_MAX}, 1)}),
                HasSubstr("stream of"));
    NodeOffer long_manifest = offer_of(1, {8}, 1);
    long_manifest.streams[0].manifest_bytes = 9;
    EXPECT_THAT(refused({offer_of(0, {8}, 0), long_manifest}), HasSubstr("manifest of 9"));
}

TEST(PlanTest, ChunksThatAreNoWholeBlocksAreRefused) {
    PlanSettings settings;
    settings.chunk_bytes = 4096 + 512;
    EXPECT_FALSE(make_plan("job", {1, 1}, 5, 1, one_group(1), {offer_of(0, {8}, 0)}, settings).ok());
    settings.chunk_bytes = 3 * 1024;
    settings.block_bytes = 1536;
    EXPECT_FALSE(make_plan("job", {1, 1}, 5, 1, one_group(1), {offer_of(0, {8}, 0)}, settings).ok());
}

TEST(PlanTest, LeadersAreNoMoreThanNodesAndOneWhereTheGroupHasSeveralFiles) {
    PlanSettings settings;
    settings.leaders_per_file = 5;
    auto plan =
        make_plan("job", {1, 1}, 5, 2, one_group(2), {offer_of(0, {8}, 0), offer_of(1, {9}, 1)}, settings);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_THAT(plan->leaders, ElementsAre(1, 0));
    EXPECT_EQ(plan->leader_index(1), 0);
    EXPECT_EQ(plan->header(0).leader_count, 2u);

    settings.file_count = 3;
    plan = make_plan("job", {1, 1}, 5, 1, group_of_node(0, 1, 3), {offer_of(0, {8}, 0)}, settings);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->group.file_count(), 3u);
    EXPECT_EQ(plan->leaders.size(), 1u);
    EXPECT_EQ(plan->leader_index(1), -1);
    EXPECT_EQ(plan->header(2).file_index, 2u);
    EXPECT_EQ(plan->header(2).stripe_bytes, 0u);
}

FlushPlan plan_of_nodes(const std::vector<uint64_t>& node_bytes, uint32_t leaders_per_file) {
    PlanSettings settings;
    settings.leaders_per_file = leaders_per_file;
    const auto nodes = static_cast<int>(node_bytes.size());
    std::vector<NodeOffer> offers;
    for (int node = 0; node < nodes; ++node)
        offers.push_back(
            offer_of(node, {node_bytes[static_cast<size_t>(node)]}, static_cast<uint32_t>(node)));
    auto plan = make_plan("job", {1, 1}, 5, static_cast<uint32_t>(nodes), one_group(nodes), std::move(offers),
                          settings);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
}

TEST(PlanTest, UnlessToldEveryNodeLeadsWhereBytesPayForItEightAtMost) {
    EXPECT_EQ(plan_of_nodes({200 * MiB}, 0).leaders.size(), 1u);
    EXPECT_THAT(plan_of_nodes({40 * MiB, 50 * MiB, 60 * MiB}, 0).leaders, ElementsAre(2, 1, 0));
    EXPECT_EQ(plan_of_nodes({16 * MiB, 15 * MiB}, 0).leaders.size(), 1u);
    EXPECT_EQ(plan_of_nodes({16 * MiB, 16 * MiB}, 0).leaders.size(), 2u);
    EXPECT_EQ(plan_of_nodes({0, 0}, 0).leaders.size(), 1u);
    EXPECT_EQ(plan_of_nodes({512 * MiB, MiB, MiB, MiB, MiB, MiB, MiB, MiB}, 0).leaders.size(), 1u);
    EXPECT_THAT(plan_of_nodes({90 * MiB, 2 * MiB, 90 * MiB, 2 * MiB}, 0).leaders, ElementsAre(0, 2, 1));
    EXPECT_EQ(plan_of_nodes(std::vector<uint64_t>(20, 64 * MiB), 0).leaders.size(), 8u);
    EXPECT_EQ(plan_of_nodes(std::vector<uint64_t>(20, 64 * MiB), 9).leaders.size(), 9u);
}

TEST(PlanTest, StripesAreOf64MiBOrMoreAndFilledAsFarAsCanBeKnown) {
    EXPECT_EQ(plan_of_nodes({GiB, GiB}, 2).header(0).stripe_bytes, 64 * MiB);
    EXPECT_EQ(plan_of_nodes({65 * MiB, 65 * MiB}, 2).header(0).stripe_bytes, 72 * MiB)
        << "whole chunks, here of 8 MiB";
    EXPECT_EQ(plan_of_nodes({20 * MiB, 20 * MiB}, 2).header(0).stripe_bytes, 20 * MiB);
    EXPECT_EQ(plan_of_nodes({30 * MiB, MiB, MiB}, 3).header(0).stripe_bytes, 32 * MiB);
    EXPECT_EQ(plan_of_nodes({100, 200}, 2).header(0).stripe_bytes, 4 * MiB) << "a chunk at least";
    EXPECT_EQ(plan_of_nodes({GiB, GiB}, 1).header(0).stripe_bytes, 0u);
}

TEST(PlanTest, AlignedStripesLeaveAsFewHolesAsTheirAlignmentAllows) {
    const auto stripe = [](uint64_t bytes, uint64_t align) {
        FlushPlan plan = plan_of_nodes({bytes, bytes}, 2);
        plan.stripe_align = align;
        EXPECT_TRUE(check_plan(plan).ok());
        return plan.header(0).stripe_bytes;
    };
    EXPECT_EQ(stripe(GiB, 64 * MiB), 64 * MiB);
    EXPECT_EQ(stripe(32 * MiB, 64 * MiB), 64 * MiB) << "one piece each, half of it empty";
    EXPECT_EQ(stripe(77 * MiB, 64 * MiB), 128 * MiB) << "two pieces in a row take as much as in turn";
    EXPECT_EQ(stripe(150 * MiB, 64 * MiB), 64 * MiB) << "three of 64 MiB, not two of 128";
    EXPECT_EQ(stripe(150 * MiB, MiB), 75 * MiB);
    EXPECT_EQ(stripe(20 * MiB + 1, MiB), 21 * MiB);
    EXPECT_EQ(stripe(0, MiB), MiB);

    FlushPlan plan = plan_of_nodes({GiB, GiB, GiB}, 3);
    const uint64_t areas = plan.header(0).index_area_bytes;
    plan.stripe_align = 64 * MiB;
    EXPECT_GE(plan.header(0).index_area_bytes, areas);
    EXPECT_LE(data_offset(plan.header(0)), 64 * MiB);
    EXPECT_GT(data_offset(plan.header(0)), 64 * MiB - 3 * plan.block_bytes)
        << "the head has a piece of its own";

    for (uint64_t seed : seeds(1, 200)) {
        SCOPED_TRACE(seed);
        Random random(seed);
        const uint64_t align = (1 + below(random, 256)) * 4096 << below(random, 8);
        EXPECT_EQ(stripe(below(random, GiB), align) % align, 0u);
    }
}

TEST(PlanTest, HolesAreBoundedWhenNobodySaysHowManyLead) {
    for (uint64_t seed : seeds(1, 200)) {
        SCOPED_TRACE(seed);
        Random random(seed);
        std::vector<uint64_t> nodes(1 + below(random, 12));
        uint64_t data = 0;
        for (uint64_t& bytes : nodes) {
            bytes = below(random, 4) == 0 ? below(random, 4096) : below(random, 300 * MiB);
            data += bytes;
        }
        const FlushPlan plan = plan_of_nodes(nodes, 0);
        uint64_t end = 0;
        for (uint32_t leader = 0; leader < plan.leaders.size(); ++leader) {
            ExtentAllocator allocator(plan, leader);
            const auto node = static_cast<uint32_t>(plan.leaders[leader]);
            if (nodes[node] > 0) allocator.allocate(node, 0, nodes[node]);
            end = std::max(end, allocator.file_end(0));
        }
        // Up to a chunk a stripe by rounding, two stripes a leader below 192 MiB and no more above than it
        // has.
        const uint64_t rounding = plan.leaders.size() * plan.chunk_bytes * 5;
        EXPECT_LE(end, data_offset(plan.header(0)) + data * 3 / 2 + rounding);
    }
}

FlushPlan random_plan(Random& random) {
    PlanSettings settings;
    const auto nodes = static_cast<int>(1 + below(random, 9));
    settings.file_count = static_cast<uint32_t>(1 + below(random, 2 * static_cast<uint64_t>(nodes)));
    settings.leaders_per_file = static_cast<uint32_t>(below(random, 5));
    settings.block_bytes = uint64_t{512} << below(random, 4);
    settings.chunk_bytes = settings.block_bytes * (1 + below(random, 6));
    if (below(random, 2) == 0) settings.stripe_align = settings.block_bytes * (1 + below(random, 9));
    settings.placement = below(random, 2) == 0 ? Placement::append : Placement::contiguous;
    const Group group = group_of_node(static_cast<int>(below(random, static_cast<uint64_t>(nodes))), nodes,
                                      settings.file_count);
    std::vector<NodeOffer> offers;
    uint32_t rank = 0;
    for (int node = group.first_node; node < group.last_node; ++node) {
        std::vector<uint64_t> sizes(below(random, 4));
        for (uint64_t& size : sizes)
            size = below(random, 3) == 0 ? 0 : below(random, 30 * settings.chunk_bytes);
        offers.push_back(offer_of(node, sizes, rank));
        rank += static_cast<uint32_t>(sizes.size());
    }
    auto plan = make_plan("job", {3, 2}, 99, rank + 1, group, offers, settings);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
}

TEST(PlanTest, AssignedLeadersServeThemselvesAndContiguousServesEveryNodeOnce) {
    for (uint64_t seed : seeds(1, 200)) {
        SCOPED_TRACE(seed);
        Random random(seed);
        const FlushPlan plan = random_plan(random);
        const std::vector<int> assigned = assigned_leaders(plan);
        ASSERT_EQ(assigned.size(), plan.offers.size());
        for (size_t place = 0; place < assigned.size(); ++place) {
            const int leader = plan.leader_index(plan.offers[place].node);
            if (leader >= 0) {
                ASSERT_EQ(assigned[place], leader);
            } else if (plan.placement == Placement::append) {
                ASSERT_EQ(assigned[place], any_leader);
            } else {
                ASSERT_GE(assigned[place], 0);
                ASSERT_LT(static_cast<size_t>(assigned[place]), plan.leaders.size());
            }
        }
    }
}

// Every chunk of the group goes to a leader that may write it, in random order, as the writers would have it.
TEST(PlanTest, ExtentsNeverOverlapAreAlignedStayInOwnStripesAndFitTheIndexArea) {
    for (uint64_t seed : seeds(1, 400)) {
        SCOPED_TRACE(seed);
        Random random(seed);
        const FlushPlan plan = random_plan(random);
        const std::vector<int> assigned = assigned_leaders(plan);
        struct Piece {
            int leader;
            uint32_t rank;
            uint64_t offset, bytes;
        };
        std::vector<Piece> pieces;
        const bool all_to_one = below(random, 2) == 0;  // the worst that can happen to one index
        for (size_t place = 0; place < plan.offers.size(); ++place) {
            for (const StreamInfo& stream : plan.offers[place].streams) {
                for (uint64_t at = 0; at < stream.stream_bytes; at += plan.chunk_bytes) {
                    int leader = assigned[place];
                    if (leader == any_leader)
                        leader = all_to_one ? 0 : static_cast<int>(below(random, plan.leaders.size()));
                    pieces.push_back(
                        {leader, stream.rank, at, std::min(plan.chunk_bytes, stream.stream_bytes - at)});
                }
            }
        }
        std::shuffle(pieces.begin(), pieces.end(), random);

        std::vector<ExtentAllocator> allocators;
        for (uint32_t leader = 0; leader < plan.leaders.size(); ++leader)
            allocators.emplace_back(plan, leader);
        std::map<std::pair<uint32_t, uint32_t>, SegmentIndex> indexes;  // file, leader
        std::map<uint32_t, std::map<uint64_t, uint64_t>> taken;         // file -> start -> padded end
        std::map<uint32_t, uint64_t> covered;                           // rank -> bytes
        for (const Piece& piece : pieces) {
            const auto leader = static_cast<uint32_t>(piece.leader);
            uint64_t at = piece.offset;
            for (const auto& placed : allocators[leader].allocate(piece.rank, piece.offset, piece.bytes)) {
                const Extent& extent = placed.extent;
                ASSERT_LT(placed.file, plan.group.file_count());
                ASSERT_EQ(extent.rank, piece.rank);
                ASSERT_EQ(extent.stream_offset, at);
                ASSERT_EQ(extent.file_offset % plan.block_bytes, 0u);
                at += extent.bytes;
                covered[piece.rank] += extent.bytes;
                auto [entry, is_new] = taken[placed.file].emplace(
                    extent.file_offset, extent.file_offset + align_up(extent.bytes, plan.block_bytes));
                ASSERT_TRUE(is_new);
                indexes[{placed.file, leader}].extents.push_back(extent);
            }
            ASSERT_EQ(at, piece.offset + piece.bytes);
        }
        for (const auto& [file, ranges] : taken) {
            uint64_t end = data_offset(plan.header(plan.group.first_file + file));
            for (const auto& [start, stop] : ranges) {
                ASSERT_GE(start, end);
                end = stop;
            }
            if (plan.placement == Placement::contiguous) {
                ASSERT_EQ(expected_file_bytes(plan, plan.group.first_file + file), end);
            }
            if (plan.leaders.size() == 1) {
                ASSERT_EQ(allocators[0].file_end(file), end);
                if (plan.group.file_count() == 1) {
                    ASSERT_EQ(expected_file_bytes(plan, plan.group.first_file), end);
                }
            }
        }
        for (const NodeOffer& offer : plan.offers)
            for (const StreamInfo& stream : offer.streams)
                ASSERT_EQ(covered[stream.rank], stream.stream_bytes);

        for (auto& [where, index] : indexes) {
            const SharedHeader header = plan.header(plan.group.first_file + where.first);
            index.streams = plan.streams();
            std::sort(index.extents.begin(), index.extents.end(),
                      [](const Extent& a, const Extent& b) { return a.file_offset < b.file_offset; });
            ASSERT_LE(encode(index).size(), header.index_area_bytes);
            // The format's own decoder agrees that extents lie in the leader's stripes and do not overlap.
            auto encoded = encode(index);
            LeaderSlot slot;
            slot.leader = where.second;
            slot.index_bytes = encoded.size();
            slot.index_crc = crc32c(encoded);
            for (const Extent& extent : index.extents) slot.data_bytes += extent.bytes;
            slot.run_uid = header.run_uid;
            slot.key = header.key;
            auto decoded = decode_segment_index(encoded, header, slot, taken[where.first].rbegin()->second);
            ASSERT_TRUE(decoded.ok()) << decoded.status().message();
        }
    }
}

TEST(PlanTest, ContiguousStreamOfSoleLeaderIsOneExtent) {
    PlanSettings settings;
    settings.chunk_bytes = 8192;
    settings.placement = Placement::contiguous;
    const uint64_t bytes = 5 * 8192 + 100;
    auto plan = make_plan("job", {1, 1}, 5, 2, one_group(2),
                          {offer_of(0, {bytes}, 0), offer_of(1, {bytes}, 1)}, settings);
    ASSERT_TRUE(plan.ok());
    ExtentAllocator allocator(*plan, 0);
    std::vector<Extent> extents;
    for (uint64_t at = 0; at < bytes; at += 8192) {
        for (uint32_t rank : {1u, 0u}) {
            for (const auto& placed : allocator.allocate(rank, at, std::min<uint64_t>(8192, bytes - at)))
                extents.push_back(placed.extent);
        }
    }
    normalize(extents);
    ASSERT_EQ(extents.size(), 2u);
    EXPECT_EQ(extents[0], (Extent{0, 0, bytes, data_offset(plan->header(0))}));
    EXPECT_EQ(extents[1].rank, 1u);
    EXPECT_EQ(extents[1].bytes, bytes);
}

TEST(PlanTest, SeveralFilesOfOneNodeShareItsBytes) {
    for (Placement placement : {Placement::append, Placement::contiguous}) {
        PlanSettings settings;
        settings.file_count = 4;
        settings.chunk_bytes = 4096;
        settings.placement = placement;
        auto plan =
            make_plan("job", {1, 1}, 5, 1, group_of_node(0, 1, 4), {offer_of(0, {16 * 4096}, 0)}, settings);
        ASSERT_TRUE(plan.ok());
        ExtentAllocator allocator(*plan, 0);
        std::map<uint32_t, uint64_t> bytes;
        for (uint64_t at = 0; at < 16 * 4096; at += 4096)
            for (const auto& placed : allocator.allocate(0, at, 4096))
                bytes[placed.file] += placed.extent.bytes;
        EXPECT_THAT(bytes, ElementsAre(testing::Pair(0u, 4u * 4096), testing::Pair(1u, 4u * 4096),
                                       testing::Pair(2u, 4u * 4096), testing::Pair(3u, 4u * 4096)));
    }
}

// ---- recorded plans ------------------------------------------------------------------------------------

PlanRecord sample_record(int node, int node_count, uint32_t files, std::vector<NodeOffer> offers) {
    const Group group = group_of_node(node, node_count, files);
    PlanSettings settings;
    settings.file_count = files;
    settings.chunk_bytes = 4 * MiB;
    const auto plan = make_solo_plan("job", {5, 2}, 77, 100, group, std::move(offers), settings);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    NodePlace place{node, {}, "/shared", 2};
    for (int i = 0; i < node_count; ++i) place.hosts.push_back("host" + std::to_string(i));
    const auto record = record_plan(*plan, settings.chunk_bytes, place);
    const auto again = recorded_plan(record);
    EXPECT_TRUE(again.ok()) << again.status().to_string();
    if (again.ok()) {
        EXPECT_EQ(*again, *plan);
    }
    return record;
}

TEST(RecordedPlanTest, APlanComesBackFromItsRecord) {
    const auto two = sample_record(3, 4, 2, {{2, {{20, 9000, 4096, 1}}}, {3, {{30, 90000, 8192, 2}}}});
    EXPECT_EQ(two.first_node, 2u);
    EXPECT_EQ(two.own().host, "host3");
    EXPECT_EQ(two.own().leader, 0u) << "it has the most bytes";
    EXPECT_EQ(two.nodes[0].leader, 1u);
    EXPECT_GT(two.stripe_bytes, 0u);
    const auto many_files = sample_record(1, 2, 6, {{1, {{30, 90000, 8192, 2}, {10, 4096, 4096, 3}}}});
    EXPECT_EQ(many_files.stripe_bytes, 0u) << "one node writes several files";
    sample_record(0, 1, 1, {{0, {}}});
}

TEST(RecordedPlanTest, ARecordThatPlacesBytesElsewhereIsNotUsed) {
    const auto good = sample_record(3, 4, 2, {{2, {{20, 9000, 4096, 1}}}, {3, {{30, 90000, 8192, 2}}}});
    for (int what = 0; what < 5; ++what) {
        auto record = good;
        if (what == 0) record.index_area_bytes += 4096;
        if (what == 1) record.stripe_bytes *= 2;
        if (what == 2) std::swap(record.nodes[0].leader, record.nodes[1].leader);
        if (what == 3) record.node_count = 5;  // other groups
        if (what == 4) record.block_bytes = 0;
        const auto plan = recorded_plan(record);
        ASSERT_FALSE(plan.ok()) << what;
        EXPECT_EQ(plan.status().code(), Code::unsupported) << plan.status().to_string();
    }
}

TEST(RecordedPlanTest, AGroupMayBeTooLargeForNodesToLeadAlone) {
    std::vector<NodeOffer> offers;
    for (int node = 0; node < 1025; ++node) offers.push_back({node, {}});
    const auto plan = make_solo_plan("job", {5, 2}, 77, 2000, group_of_node(0, 1025, 1), offers, {});
    EXPECT_EQ(plan.status().code(), Code::unsupported) << plan.status().to_string();
}

TEST(PlanInvariantsTest, WhatNoPlanHasIsNotComputedWith) {
    set_log_level(LogLevel::off);
    auto plan = make_plan("job", {1, 1}, 5, 1, one_group(1), {offer_of(0, {4096}, 0)}, PlanSettings());
    ASSERT_TRUE(plan.ok());
    EXPECT_THROW((void)ExtentAllocator(*plan, 0).file_end(1), BrokenInvariant) << "it has one file";
    plan->leaders = {7};
    EXPECT_THROW((void)assigned_leaders(*plan), BrokenInvariant) << "node 7 is none of the group's";
    set_log_level(LogLevel::warning);
}

}  // namespace
}  // namespace tailrace::internal
