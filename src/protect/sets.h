// Sets: which nodes protect each other's captured parts. Pure; every rank comes to the same sets.
//
// A set survives the loss of `losses` of its nodes, whichever these are. A failure domain (a rack, a
// power supply; by default a machine) may take all its nodes at once. So the nodes of a domain are
// dealt to different sets, as far as there are sets. Sizes of sets differ by one at most.
//
// Nothing here fails. Where nodes or domains are too few, a set protects as much as it can, and its
// note says what would be lost.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/redundancy.h"

namespace tailrace::internal {

struct ProtectionSet {
    std::vector<int> nodes;  // by position
    // What these nodes can do: fewer losses than were asked for in a small set, and none in a set of
    // one.
    Redundancy redundancy;
    // partner only: the position that keeps the copy of the node at position i. A permutation
    // without fixed points.
    std::vector<uint32_t> keeper;
    // What the set does not protect from although it was asked to: a sentence. Empty: nothing.
    std::string note;
    bool operator==(const ProtectionSet&) const = default;
};

struct Sets {
    std::vector<ProtectionSet> sets;
    struct Place {
        uint32_t set = 0;
        uint32_t position = 0;
        bool operator==(const Place&) const = default;
    };
    std::vector<Place> of_node;
    const ProtectionSet& set_of(int node) const { return sets[of_node[static_cast<size_t>(node)].set]; }
    uint32_t position_of(int node) const { return of_node[static_cast<size_t>(node)].position; }
    bool operator==(const Sets&) const = default;
};

// `domains` has the failure domain of each node. `set_nodes` is how many nodes a set should have. It
// gets more or fewer so that all sets are alike, fewer if there are fewer domains, and always as many
// as it needs to survive what it should, as long as there are so many nodes.
Sets make_sets(std::span<const std::string> domains, Redundancy redundancy, uint32_t set_nodes);

// The position that keeps a whole copy of what the node at `position` has captured (copied_position in
// protect_file.h). Empty: none does.
std::optional<uint32_t> copy_keeper(const ProtectionSet& set, uint32_t position);

// The position whose copy the node at `position` keeps.
uint32_t kept_by(const ProtectionSet& set, uint32_t position);

}  // namespace tailrace::internal
