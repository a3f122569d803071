#include "protect/sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "format/hostile.h"

namespace tailrace::internal {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> own_domains(size_t nodes) {
    std::vector<std::string> domains;
    for (size_t i = 0; i < nodes; ++i) domains.push_back("m" + std::to_string(i));
    return domains;
}

constexpr Redundancy none{};
constexpr Redundancy partner{Scheme::partner, 1};
constexpr Redundancy parity{Scheme::parity, 1};
constexpr Redundancy solomon(uint32_t losses) {
    return {Scheme::solomon, losses};
}

TEST(RedundancyTest, TextsComeBack) {
    for (const auto* text : {"none", "partner", "xor", "rs:1", "rs:2", "rs:127"}) {
        const auto parsed = parse_redundancy(text);
        ASSERT_TRUE(parsed.ok()) << text;
        EXPECT_EQ(to_string(*parsed), text);
    }
}

TEST(RedundancyTest, OtherTextsAreRefused) {
    for (const auto* text : {"", "rs", "rs:", "rs:0", "rs:128", "rs:2x", "rs:-1", "XOR", "mirror"})
        EXPECT_EQ(parse_redundancy(text).status().code(), Code::invalid_argument) << text;
}

// More sets would cost memory and would not survive the domain's loss either.
TEST(SetsTest, NodesOfOneDomainAreInSetsOfTheSizeAskedFor) {
    const std::vector<std::string> one_domain(16, "rack");
    for (const auto& redundancy : {parity, solomon(2)}) {
        const auto sets = make_sets(one_domain, redundancy, 8);
        ASSERT_EQ(sets.sets.size(), 2u);
        for (const auto& set : sets.sets) {
            EXPECT_EQ(set.nodes.size(), 8u);
            EXPECT_THAT(set.note, HasSubstr("8 of a set's 8 nodes are in the failure domain rack"));
        }
    }
}

// Five of nine nodes are in a rack. Sets of three survive the loss of two, so two of the rack may meet.
TEST(SetsTest, ADomainIsSpreadAsFarAsItsLossNeeds) {
    std::vector<std::string> domains(9, "rack");
    for (size_t i = 0; i < 4; ++i) domains[i] = "m" + std::to_string(i);
    const auto sets = make_sets(domains, solomon(2), 9);
    ASSERT_EQ(sets.sets.size(), 3u);
    for (const auto& set : sets.sets) EXPECT_THAT(set.note, IsEmpty());
}

TEST(SetsTest, NoneMakesNoSets) {
    EXPECT_THAT(make_sets(own_domains(5), none, 8).sets, IsEmpty());
    EXPECT_THAT(make_sets({}, parity, 8).sets, IsEmpty());
}

TEST(SetsTest, OneNodeIsAloneAndTheNoteSaysWhatIsLost) {
    for (const auto& redundancy : {partner, parity, solomon(2)}) {
        const auto sets = make_sets(own_domains(1), redundancy, 8);
        ASSERT_EQ(sets.sets.size(), 1u);
        EXPECT_EQ(sets.sets[0].redundancy, none);
        EXPECT_THAT(sets.sets[0].note, HasSubstr("no other node"));
    }
}

TEST(SetsTest, TwoNodesSurviveTheLossOfOneWhateverWasAsked) {
    const auto sets = make_sets(own_domains(2), solomon(3), 8);
    ASSERT_EQ(sets.sets.size(), 1u);
    EXPECT_EQ(sets.sets[0].redundancy, solomon(1));
    EXPECT_THAT(sets.sets[0].note, HasSubstr("survives the loss of 1, not of 3"));
    EXPECT_THAT(make_sets(own_domains(2), parity, 8).sets[0].note, IsEmpty());
}

TEST(SetsTest, OddNumbersGiveSetsOfLikeSizes) {
    const auto sizes = [](size_t nodes, const Redundancy& redundancy, uint32_t set_nodes) {
        std::vector<size_t> found;
        for (const auto& set : make_sets(own_domains(nodes), redundancy, set_nodes).sets)
            found.push_back(set.nodes.size());
        return found;
    };
    EXPECT_EQ(sizes(3, parity, 2), (std::vector<size_t>{3}));
    EXPECT_EQ(sizes(7, parity, 8), (std::vector<size_t>{7}));
    EXPECT_EQ(sizes(11, parity, 8), (std::vector<size_t>{11}));
    EXPECT_EQ(sizes(13, parity, 8), (std::vector<size_t>{7, 6}));
    EXPECT_EQ(sizes(7, solomon(2), 3), (std::vector<size_t>{4, 3}));
}

TEST(SetsTest, FewDomainsMakeMoreSets) {
    // 4 racks of 4: a set of 8 would have two nodes of every rack.
    std::vector<std::string> racks;
    for (int node = 0; node < 16; ++node) racks.push_back("rack" + std::to_string(node / 4));
    const auto sets = make_sets(racks, parity, 8);
    ASSERT_EQ(sets.sets.size(), 4u);
    for (const auto& set : sets.sets) {
        EXPECT_EQ(set.nodes.size(), 4u);
        EXPECT_THAT(set.note, IsEmpty());
    }
}

TEST(SetsTest, NodesOfOneDomainProtectEachOtherAndTheNoteSaysWhatThatIsNot) {
    const std::vector<std::string> same(4, "one");
    EXPECT_THAT(make_sets(same, parity, 8).sets[0].note, HasSubstr("failure domain one"));
    EXPECT_THAT(make_sets(same, partner, 8).sets[0].note, HasSubstr("its partner"));
}

TEST(SetsTest, PartnersAreOfDifferentDomains) {
    const std::vector<std::string> two = {"a", "a", "b", "b", "a", "b"};
    const auto sets = make_sets(two, partner, 6);
    ASSERT_EQ(sets.sets.size(), 3u);
    for (const auto& set : sets.sets) {
        EXPECT_THAT(set.note, IsEmpty());
        for (size_t i = 0; i < set.nodes.size(); ++i)
            EXPECT_NE(two[static_cast<size_t>(set.nodes[i])],
                      two[static_cast<size_t>(set.nodes[set.keeper[i]])]);
    }
}

TEST(SetsTest, EveryNodeHasOnePlaceInSetsThatKeepTheirPromises) {
    const auto seed = test_seed();
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    for (int round = 0; round < 2000; ++round) {
        const size_t nodes = 1 + below(random, round % 10 == 0 ? 400 : 40);
        const size_t domain_count = 1 + below(random, nodes);
        std::vector<std::string> domains;
        for (size_t i = 0; i < nodes; ++i)
            domains.push_back("d" + std::to_string(below(random, domain_count)));
        if (below(random, 2) == 0) domains = own_domains(nodes);
        const Redundancy kinds[] = {partner, parity, solomon(1 + static_cast<uint32_t>(below(random, 4)))};
        const auto& asked = kinds[below(random, 3)];
        const auto set_nodes = static_cast<uint32_t>(2 + below(random, 14));
        const auto sets = make_sets(domains, asked, set_nodes);
        EXPECT_EQ(sets, make_sets(domains, asked, set_nodes));

        std::map<std::string, size_t> of_domain;
        for (const auto& domain : domains) ++of_domain[domain];
        size_t largest = 0;
        for (const auto& [domain, count] : of_domain) largest = std::max(largest, count);

        std::set<int> seen;
        size_t smallest_set = nodes, largest_set = 0;
        for (uint32_t s = 0; s < sets.sets.size(); ++s) {
            const auto& set = sets.sets[s];
            smallest_set = std::min(smallest_set, set.nodes.size());
            largest_set = std::max(largest_set, set.nodes.size());
            ASSERT_LE(set.nodes.size(), max_set_nodes);
            std::map<std::string, uint32_t> here;
            for (uint32_t position = 0; position < set.nodes.size(); ++position) {
                const int node = set.nodes[position];
                ASSERT_TRUE(seen.insert(node).second);
                ASSERT_EQ(sets.of_node[static_cast<size_t>(node)], (Sets::Place{s, position}));
                ++here[domains[static_cast<size_t>(node)]];
            }
            uint32_t together = 0;
            for (const auto& [domain, count] : here) together = std::max(together, count);
            if (largest <= sets.sets.size()) {
                ASSERT_EQ(together, 1u) << "two nodes of a domain in a set";
            }
            if (set.nodes.size() == 1) {
                ASSERT_EQ(nodes, 1u) << "a node alone though there are others";
                continue;
            }
            ASSERT_EQ(set.redundancy.losses, std::min<size_t>(asked.losses, set.nodes.size() - 1));
            if (nodes > asked.losses) {
                ASSERT_EQ(set.redundancy, asked);
            }
            if (asked.scheme != Scheme::partner) {
                ASSERT_EQ(set.note.empty(), together <= set.redundancy.losses && set.redundancy == asked);
                continue;
            }
            bool all_apart = true;
            for (uint32_t i = 0; i < set.nodes.size(); ++i) {
                ASSERT_NE(set.keeper[i], i);
                ASSERT_EQ(kept_by(set, set.keeper[i]), i);
                all_apart &= domains[static_cast<size_t>(set.nodes[i])] !=
                             domains[static_cast<size_t>(set.nodes[set.keeper[i]])];
            }
            if (2 * together <= set.nodes.size()) {
                ASSERT_TRUE(all_apart);
            }
            ASSERT_EQ(set.note.empty(), all_apart);
        }
        ASSERT_EQ(seen.size(), nodes);
        ASSERT_LE(largest_set, smallest_set + 1);
    }
}

}  // namespace
}  // namespace tailrace::internal
