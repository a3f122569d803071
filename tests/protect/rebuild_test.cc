// Protection in collective calls, and rebuilding: over whole jobs in memory.
#include "protect/rebuild.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/crc32c.h"
#include "base/log.h"
#include "format/hostile.h"
#include "format/manifest.h"
#include "protect/protect_object.h"
#include "protect/world.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;
using testing_support::domains_of;
using testing_support::job_of;
using testing_support::job_on_hosts;
using testing_support::JobShape;
using testing_support::World;

constexpr EpochKey key{12, 3};
constexpr uint64_t uid = 77;

Redundancy scheme(const std::string& text) {
    return *parse_redundancy(text);
}

uint32_t rank_count(const JobShape& job) {
    return static_cast<uint32_t>(job.hosts.size());
}

// Sizes like 0, a few bytes, several check blocks.
std::vector<uint64_t> random_sizes(Random& random, size_t ranks) {
    std::vector<uint64_t> sizes;
    for (size_t i = 0; i < ranks; ++i) {
        const uint64_t limits[] = {1, 100, 30000, 700000};
        sizes.push_back(below(random, limits[below(random, 4)]));
    }
    return sizes;
}

TEST(RebuildTest, EachSubsetOfNodesComesBackIfTheLevelAllowsIt) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (const size_t nodes : {2u, 3u, 5u})
        for (const auto* level : {"partner", "xor", "rs:2"}) {
            SCOPED_TRACE(std::to_string(nodes) + " nodes, " + level);
            std::vector<int> ranks(nodes, 2);
            ranks[0] = 1;
            const auto job = job_of(ranks);
            const auto sets = make_sets(domains_of(job), scheme(level), 8);
            ASSERT_EQ(sets.sets.size(), 1u);
            const auto& set = sets.sets.front();
            for (uint32_t subset = 1; subset + 1 < (1u << nodes); ++subset) {
                World world;
                auto sizes = random_sizes(random, job.hosts.size());
                sizes[0] = 0;              // one node has next to nothing,
                sizes.back() = 1'000'000;  // one far more than the others
                world.capture(job, key, uid, sizes, random);
                const auto is_protected = world.protect(job, sets, key, uid);
                ASSERT_TRUE(is_protected.ok()) << is_protected.to_string();
                std::set<uint32_t> lost;
                for (uint32_t node = 0; node < nodes; ++node)
                    if ((subset >> node & 1) != 0) {
                        world.lose("m" + std::to_string(node));
                        lost.insert(sets.position_of(static_cast<int>(node)));
                    }
                bool allowed = lost.size() <= set.redundancy.losses;
                if (set.redundancy.scheme == Scheme::partner)  // not both of a pair
                    allowed = std::none_of(lost.begin(), lost.end(), [&](uint32_t position) {
                        return lost.contains(set.keeper[position]);
                    });
                const auto rebuilt = world.rebuild(job);
                const auto wrong = world.check(rebuilt, job, key, uid, rank_count(job));
                ASSERT_EQ(wrong.empty(), allowed) << "subset " << subset << ": " << wrong;
                if (!allowed) {
                    EXPECT_TRUE(rebuilt.added.empty());
                    continue;
                }
                for (const auto& part : rebuilt.added)  // where its rank is
                    EXPECT_EQ(part.node, job.topology.node_of_rank[part.header.stream.rank]);
            }
        }
}

TEST(RebuildTest, NothingLostMeansNothingWritten) {
    Random random(1);
    World world;
    const auto job = job_of({2, 2, 2});
    world.capture(job, key, uid, random_sizes(random, 6), random);
    ASSERT_TRUE(world.protect(job, make_sets(domains_of(job), scheme("xor"), 8), key, uid).ok());
    EXPECT_TRUE(world.rebuild(job).added.empty());
}

TEST(RebuildTest, OneObjectPerNodeAndNothingUnfinished) {
    Random random(1);
    World world;
    const auto job = job_of({3, 3, 3, 3});
    world.capture(job, key, uid, random_sizes(random, 12), random);
    ASSERT_TRUE(world.protect(job, make_sets(domains_of(job), scheme("rs:2"), 8), key, uid).ok());
    for (int node = 0; node < 4; ++node) {
        const auto names = world.files("m" + std::to_string(node), node);
        EXPECT_EQ(names.size(), 4u);
        EXPECT_THAT(names, testing::Contains(testing::EndsWith(".protect")));
        EXPECT_THAT(names, testing::Not(testing::Contains(HasSubstr("unfinished"))));
    }
}

TEST(RebuildTest, SpareNodeOtherOrderAndFewerNodesFindTheParts) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const auto job = job_of({2, 2, 2, 2});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    const std::vector<std::vector<std::string>> later = {
        {"m0", "m0", "spare", "spare", "m2", "m2", "m3", "m3"},  // m1 was replaced
        {"m3", "m3", "m2", "m2", "spare", "spare", "m0", "m0"},  // in another order
        {"m0", "m0", "m0", "m0", "m2", "m2", "m3", "m3"},        // three nodes for the same ranks
        {"m3", "m2", "m0"},                                      // fewer ranks
        {"m2", "m0", "m3", "spare", "m0"},
    };
    for (const auto& hosts : later) {
        SCOPED_TRACE(testing::PrintToString(hosts));
        World world;
        world.capture(job, key, uid, random_sizes(random, 8), random);
        ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
        world.lose("m1");
        const auto now = job_on_hosts(hosts);
        const auto rebuilt = world.rebuild(now);
        EXPECT_EQ(world.check(rebuilt, now, key, uid, 8), "");
        EXPECT_EQ(rebuilt.added.size(), 2u);
        // Once more: it is an ordinary captured epoch by now.
        const auto again = world.rebuild(now);
        EXPECT_EQ(world.check(again, now, key, uid, 8), "");
        EXPECT_TRUE(again.added.empty());
    }
}

TEST(RebuildTest, OnlyTheLostPartsOfANodeAreWritten) {
    Random random(1);
    World world;
    const auto job = job_of({3, 3, 3});
    world.capture(job, key, uid, random_sizes(random, 9), random);
    ASSERT_TRUE(world.protect(job, make_sets(domains_of(job), scheme("xor"), 8), key, uid).ok());
    ASSERT_TRUE(world.storage("m1")->remove(world.path(1, key, 4)).ok());
    const auto rebuilt = world.rebuild(job);
    EXPECT_EQ(world.check(rebuilt, job, key, uid, 9), "");
    ASSERT_EQ(rebuilt.added.size(), 1u);
    EXPECT_EQ(rebuilt.added[0].header.stream.rank, 4u);
}

TEST(RebuildTest, SeveralSetsComeBackEach) {
    Random random(1);
    World world;
    const auto job = job_of(std::vector<int>(8, 1));
    const auto sets = make_sets(domains_of(job), scheme("partner"), 2);
    ASSERT_EQ(sets.sets.size(), 4u);
    world.capture(job, key, uid, random_sizes(random, 8), random);
    ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
    for (const auto& set : sets.sets) world.lose("m" + std::to_string(set.nodes.front()));
    const auto rebuilt = world.rebuild(job);
    EXPECT_EQ(world.check(rebuilt, job, key, uid, 8), "");
    EXPECT_EQ(rebuilt.added.size(), 4u);
}

TEST(RebuildTest, EpochsThatTheSharedDirectoryHasOrThatWereLeftBehindAreNotRebuilt) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    const auto added = [&](EpochKey captured, const std::vector<EpochKey>& committed) {
        World world;
        world.capture(job, captured, uid, random_sizes(random, 3), random);
        EXPECT_TRUE(world.protect(job, sets, captured, uid).ok());
        world.lose("m2");
        return world.rebuild(job, committed).added.size();
    };
    EXPECT_EQ(added({12, 3}, {}), 1u);
    EXPECT_EQ(added({12, 3}, {{11, 3}}), 1u);
    EXPECT_EQ(added({12, 3}, {{12, 3}}), 0u);
    EXPECT_EQ(added({12, 3}, {{13, 3}}), 0u);
    EXPECT_EQ(added({12, 3}, {{12, 4}}), 0u);  // a later run has passed it
    EXPECT_EQ(added({12, 4}, {{13, 3}}), 1u);  // it leaves the committed one behind
}

TEST(RebuildTest, SeveralEpochsComeBackAllOrNothingEach) {
    Random random(1);
    World world;
    const auto job = job_of({2, 2, 2});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
        world.capture(job, {epoch, 3}, uid, random_sizes(random, 6), random);
        if (epoch == 2) continue;
        ASSERT_TRUE(world.protect(job, sets, {epoch, 3}, uid).ok());
    }
    world.lose("m0");
    const auto rebuilt = world.rebuild(job);
    EXPECT_EQ(world.check(rebuilt, job, {1, 3}, uid, 6), "");
    EXPECT_NE(world.check(rebuilt, job, {2, 3}, uid, 6), "");
    EXPECT_EQ(world.check(rebuilt, job, {3, 3}, uid, 6), "");
    EXPECT_EQ(rebuilt.added.size(), 4u);
}

// ---- what must not be believed ------------------------------------------------------------------

TEST(RebuildTest, AnotherRunsObjectIsNeverTakenForThisOnes) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    // An earlier run with the same number, epoch and sizes left its objects.
    world.capture(job, key, uid - 1, {5000, 5000, 5000}, random);
    ASSERT_TRUE(world.protect(job, sets, key, uid - 1).ok());
    world.capture(job, key, uid, {5000, 5000, 5000}, random);  // over the same names
    world.lose("m2");
    const auto rebuilt = world.rebuild(job);
    EXPECT_TRUE(rebuilt.added.empty());
    EXPECT_NE(world.check(rebuilt, job, key, uid, 3), "");
}

TEST(RebuildTest, ObjectsOfAnotherDirectoryOrUnderAnotherNameAreNotBelieved) {
    Random random(1);
    const auto job = job_of({1, 1});
    const auto sets = make_sets(domains_of(job), scheme("partner"), 8);
    std::string said;
    set_log_callback([&](LogLevel, std::string_view line) { said += line; });
    const auto added = [&](const std::function<void(World&, const std::string&)>& spoil) {
        World world;
        said.clear();
        world.capture(job, key, uid, {5000, 7000}, random);
        EXPECT_TRUE(world.protect(job, sets, key, uid).ok());
        world.lose("m1");
        spoil(world, protect_path(world.directory(0), World::job_name, key, 0));
        const auto rebuilt = world.rebuild(job);
        EXPECT_THAT(world.files("m0", 0), testing::Not(testing::Contains(HasSubstr("unfinished"))));
        return rebuilt.added.size();
    };
    EXPECT_EQ(added([](World&, const std::string&) {}), 1u);
    EXPECT_EQ(added([](World& world, const std::string& path) {
                  world.change("m0", path, [](Bytes& bytes) {
                      bytes[209] = std::byte{'t'};  // "/thared"
                      reseal(bytes, 0, 4096);
                  });
              }),
              0u);
    EXPECT_THAT(said, HasSubstr("belongs to the shared directory /thared"));
    EXPECT_EQ(added([](World& world, const std::string& path) {
                  EXPECT_TRUE(world.storage("m0")
                                  ->rename(path, protect_path(world.directory(0), World::job_name, key, 5))
                                  .ok());
              }),
              0u);
    EXPECT_EQ(added([](World& world, const std::string& path) {
                  EXPECT_TRUE(world.storage("m0")->rename(path, path + ".unfinished").ok());
              }),
              0u);
    set_log_callback(nullptr);
}

TEST(RebuildTest, ADamagedObjectIsNoticedAndNotUsed) {
    Random random(1);
    const auto job = job_of({1, 1, 1, 1});
    const auto spoil = [](World& world, int node) {
        const auto path = protect_path(world.directory(node), World::job_name, key, node);
        world.change("m" + std::to_string(node), path, [](Bytes& bytes) { bytes.back() ^= std::byte{1}; });
    };
    for (const auto* level : {"xor", "rs:2", "partner"}) {
        SCOPED_TRACE(level);
        const auto sets = make_sets(domains_of(job), scheme(level), 8);
        World world;
        world.capture(job, key, uid, {5000, 700000, 30000, 12}, random);
        ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
        world.lose("m1");
        spoil(world, 2);
        const auto rebuilt = world.rebuild(job);
        // With rs:2 the others suffice. With partner node 2 keeps what is lost.
        const bool enough = std::string(level) == "rs:2";
        EXPECT_EQ(world.check(rebuilt, job, key, uid, 4).empty(), enough);
        EXPECT_EQ(rebuilt.added.size(), enough ? 1u : 0u);
    }
}

TEST(RebuildTest, ADamagedPartOfASurvivorIsRebuiltTooIfTheLevelAllowsIt) {
    Random random(1);
    const auto job = job_of({1, 1, 1, 1});
    for (const auto* level : {"xor", "rs:2"}) {
        SCOPED_TRACE(level);
        World world;
        world.capture(job, key, uid, {5000, 700000, 30000, 12}, random);
        ASSERT_TRUE(world.protect(job, make_sets(domains_of(job), scheme(level), 8), key, uid).ok());
        world.lose("m1");
        world.change("m2", world.path(2, key, 2), [](Bytes& bytes) { bytes.back() ^= std::byte{1}; });
        const auto rebuilt = world.rebuild(job);
        const bool enough = std::string(level) == "rs:2";
        EXPECT_EQ(world.check(rebuilt, job, key, uid, 4).empty(), enough);
        EXPECT_EQ(rebuilt.added.size(), enough ? 2u : 0u);
    }
}

TEST(RebuildTest, ADamagedPartComesBackAlthoughNothingElseIsLost) {
    Random random(1);
    const auto job = job_of({1, 1, 1, 1});
    for (const auto* level : {"partner", "xor", "rs:2"}) {
        SCOPED_TRACE(level);
        World world;
        world.capture(job, key, uid, {5000, 700000, 30000, 12}, random);
        ASSERT_TRUE(world.protect(job, make_sets(domains_of(job), scheme(level), 8), key, uid).ok());
        world.change("m2", world.path(2, key, 2), [](Bytes& bytes) { bytes.back() ^= std::byte{1}; });
        const auto rebuilt = world.rebuild(job);
        EXPECT_TRUE(world.check(rebuilt, job, key, uid, 4).empty());
        EXPECT_EQ(rebuilt.added.size(), 1u);
    }
}

// The object vouches for bytes that are not those of the part: only the part itself tells.
TEST(RebuildTest, APartThatComesOutWrongGetsNoName) {
    const auto spoil_and_rebuild = [&](const std::function<void(std::span<std::byte> copy)>& spoil) {
        Random random(1);
        const auto job = job_of({1, 1});
        World world;
        world.capture(job, key, uid, {5000, 700000}, random);
        ASSERT_TRUE(world.protect(job, make_sets(domains_of(job), scheme("partner"), 8), key, uid).ok());
        world.lose("m1");
        const auto path = protect_path(world.directory(0), World::job_name, key, 0);
        world.change("m0", path, [&](Bytes& bytes) {
            auto head = *decode_protect_head(std::span<const std::byte>(bytes).first(4096));
            const auto piece = std::span(bytes).subspan(4096);
            spoil(piece);
            for (size_t i = 0; i < head.block_crcs.size(); ++i) {
                const auto begin = i * check_block_bytes;
                head.block_crcs[i] =
                    crc32c(piece.subspan(begin, std::min<uint64_t>(check_block_bytes, piece.size() - begin)));
            }
            const auto record = encode(head);
            std::copy(record.begin(), record.end(), bytes.begin());
        });
        const auto rebuilt = world.rebuild(job);
        EXPECT_TRUE(rebuilt.added.empty());
        EXPECT_NE(world.check(rebuilt, job, key, uid, 2), "");
        EXPECT_THAT(world.files("m1", 1), testing::IsEmpty());  // nothing is left either
    };
    spoil_and_rebuild([](std::span<std::byte> copy) { copy[300000] ^= std::byte{1}; });
    // A sound part, but of another run.
    spoil_and_rebuild([](std::span<std::byte> copy) {
        auto header = *decode_part_header(copy.first(part_header_bytes));
        ++header.run_uid;
        const auto bytes = encode(header);
        std::copy(bytes.begin(), bytes.end(), copy.begin());
    });
}

// ---- what the log says -------------------------------------------------------------------------

Findings findings_of(World& world, const JobShape& job, const Sets& sets, const std::set<int>& lost) {
    Findings findings;
    for (int node = 0; node < job.topology.node_count(); ++node) {
        if (lost.contains(node)) continue;
        const auto host = "m" + std::to_string(node);
        auto listing = list_tier(*world.storage(host), world.tier(), world.directory(node), World::job_name);
        for (auto& part : listing->parts) findings.parts.push_back({node, part.path, part.header});
        const auto path = protect_path(world.directory(node), World::job_name, key, node);
        auto head = ObjectReader::read_head(*world.storage(host), path);
        if (sets.set_of(node).redundancy.losses > 0 && head.ok())
            findings.objects.push_back({node, path, *head});
    }
    return findings;
}

TEST(RebuildPlanTest, TheSentenceSaysWhatIsMissing) {
    Random random(1);
    const auto job = job_of({2, 2, 2, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    world.capture(job, key, uid, random_sizes(random, 7), random);
    ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
    auto findings = findings_of(world, job, sets, {1, 2});
    auto plan = plan_rebuild(findings, job.topology);
    EXPECT_TRUE(plan.epochs.empty());
    ASSERT_EQ(plan.refusals.size(), 1u);
    EXPECT_THAT(
        plan.refusals[0],
        HasSubstr("epoch 12 of run 3 cannot be completed from what nodes keep for each other: lost are "
                  "node 1 (ranks 2 to 3, and what it kept for others), node 2 (ranks 4 to 5, and what it "
                  "kept for others); a set of 4 nodes with xor survives the loss of 1 node"));

    // A rank that no object lists: its node's set never protected the epoch, or is gone as a whole.
    findings = findings_of(world, job, sets, {1});
    for (auto& object : findings.objects) {
        object.head.identity.rank_count = 9;
        object.head.members[0].parts[0].rank = 8;
    }
    for (auto& part : findings.parts) part.header.rank_count = 9;
    plan = plan_rebuild(findings, job.topology);
    ASSERT_EQ(plan.refusals.size(), 1u);
    EXPECT_THAT(plan.refusals[0], HasSubstr("node 0 (rank 8)"));
    findings = findings_of(world, job, sets, {1});
    for (auto& object : findings.objects) object.head.identity.rank_count = 9;
    for (auto& part : findings.parts) part.header.rank_count = 9;
    plan = plan_rebuild(findings, job.topology);
    ASSERT_EQ(plan.refusals.size(), 1u);
    EXPECT_THAT(plan.refusals[0], HasSubstr("the captured parts of ranks 7 to 8 are on no node"));
}

// The part of a rank counts for a set only if it is the one that the set had: another would spoil the sums.
TEST(RebuildPlanTest, APartWithAnotherTableIsNoSource) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    world.capture(job, key, uid, {5000, 5000, 5000}, random);
    ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
    auto findings = findings_of(world, job, sets, {1});
    ASSERT_EQ(plan_rebuild(findings, job.topology).epochs.size(), 1u);
    findings.parts[0].header.stream.manifest_crc ^= 1;
    EXPECT_EQ(plan_rebuild(findings, job.topology).epochs.size(), 0u);
}

TEST(RebuildPlanTest, PartsOfAnotherRunDoNotCount) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    world.capture(job, key, uid, {5000, 5000, 5000}, random);
    ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
    auto findings = findings_of(world, job, sets, {});
    ++findings.parts[1].header.run_uid;
    const auto plan = plan_rebuild(findings, job.topology);
    ASSERT_EQ(plan.epochs.size(), 1u);
    EXPECT_EQ(plan.epochs[0].lost.size(), 1u);
}

TEST(RebuildPlanTest, AnEpochThatALaterRunsCapturedOneHasLeftBehindIsNotRebuilt) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    world.capture(job, key, uid, {5000, 5000, 5000}, random);
    ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
    auto findings = findings_of(world, job, sets, {1});
    KnownPart later = findings.parts[0];
    later.header.key = {key.epoch - 2, key.run + 1};
    later.header.rank_count = 1;
    findings.parts.push_back(later);
    const auto plan = plan_rebuild(findings, job.topology);
    EXPECT_TRUE(plan.epochs.empty());
    EXPECT_TRUE(plan.refusals.empty());
}

TEST(RebuildPlanTest, LostPartsAreSharedOutWhereTheRanksAreOthers) {
    Random random(1);
    const auto job = job_of({4, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("rs:1"), 8);
    World world;
    world.capture(job, key, uid, std::vector<uint64_t>(6, 20000), random);
    ASSERT_TRUE(world.protect(job, sets, key, uid).ok());
    const auto findings = findings_of(world, job, sets, {0});
    const auto plan = plan_rebuild(findings, job_of({1, 1, 1}).topology);
    ASSERT_EQ(plan.epochs.size(), 1u);
    std::vector<int> of_node(3);
    for (const auto& lost : plan.epochs[0].lost) ++of_node[static_cast<size_t>(lost.target)];
    EXPECT_EQ(of_node, (std::vector<int>{2, 1, 1}));  // node 0 has nothing yet
}

// The program would go on from an older epoch, and leave the newest one behind.
TEST(RebuildTest, WithoutRoomForTheNewestEpochNothingGoesOn) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const EpochKey older{key.epoch - 1, key.run};
    for (const bool newest_is_lost : {true, false}) {
        World world;
        for (const auto& each : {older, key})
            if (newest_is_lost || each == older) {
                world.capture(job, each, uid, {5000, 700000, 30000}, random);
                ASSERT_TRUE(
                    world.protect(job, make_sets(domains_of(job), scheme("partner"), 8), each, uid).ok());
            }
        world.lose("m1");
        if (!newest_is_lost) world.capture(job, key, uid, {5000, 700000, 30000}, random);
        world.storage("m1")->set_capacity(world.storage("m1")->used_bytes() + 8192);
        std::vector<Status> outcomes;
        (void)world.rebuild(job, {}, &outcomes);
        for (const auto& outcome : outcomes) {
            EXPECT_EQ(outcome.code(), newest_is_lost ? Code::no_space : Code::ok);
            if (newest_is_lost) {
                EXPECT_THAT(outcome.message(), HasSubstr("make room in the node-local tier"));
            }
        }
    }
}

// ---- protecting that fails ----------------------------------------------------------------------

TEST(ProtectTogetherTest, ANodeThatCannotReadFailsItForAllAndNoObjectStays) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    world.capture(job, key, uid, {5000, 700000, 30000}, random);
    ASSERT_TRUE(world.storage("m1")->remove(world.path(1, key, 1)).ok());
    const auto outcome = world.protect(job, sets, key, uid);
    EXPECT_EQ(outcome.code(), Code::corrupt);
    EXPECT_THAT(outcome.message(), HasSubstr("node 1"));
    for (int node = 0; node < 3; ++node)
        EXPECT_THAT(world.files("m" + std::to_string(node), node),
                    testing::Each(testing::EndsWith(".capture")));
}

TEST(ProtectTogetherTest, ANodeWithoutSpaceFailsItForAllAndNoObjectStays) {
    Random random(1);
    const auto job = job_of({1, 1, 1});
    const auto sets = make_sets(domains_of(job), scheme("xor"), 8);
    World world;
    world.capture(job, key, uid, {5000, 700000, 30000}, random);
    world.storage("m0")->set_capacity(world.storage("m0")->used_bytes() + 8192);
    EXPECT_EQ(world.protect(job, sets, key, uid).code(), Code::no_space);
    for (int node = 0; node < 3; ++node)
        EXPECT_THAT(world.files("m" + std::to_string(node), node),
                    testing::Each(testing::EndsWith(".capture")));
}

TEST(ProtectTogetherTest, OneNodeAloneHasNothingToDo) {
    Random random(1);
    const auto job = job_of({3});
    World world;
    world.capture(job, key, uid, {5000, 700000, 30000}, random);
    EXPECT_TRUE(world.protect(job, make_sets(domains_of(job), scheme("xor"), 8), key, uid).ok());
    EXPECT_EQ(world.files("m0", 0).size(), 3u);
}

}  // namespace
}  // namespace tailrace::internal
