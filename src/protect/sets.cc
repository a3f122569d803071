// The method: nodes are sorted by domain, domains with most nodes first, and dealt to the sets in
// turn. So two nodes of a domain meet in a set only if the domain has more nodes than there are sets.
// That is why there are as many sets as the largest domain has nodes, if the sets are then still
// large enough (set_count).
//
// The node at position i is kept by the one at position i + 1. These are of the same domain only if
// more than half of the set is: with sets of two, a domain meets itself only if it has more than half
// of all nodes.
#include "protect/sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/invariant.h"
#include "base/text.h"

namespace tailrace::internal {

namespace {

using Domains = std::span<const std::string>;

// The nodes by domain: large domains first, equal ones by their lowest node.
std::vector<std::vector<int>> by_domain(Domains domains, const std::vector<int>& nodes) {
    std::map<std::string, std::vector<int>> found;
    for (const int node : nodes) found[domains[static_cast<size_t>(node)]].push_back(node);
    std::vector<std::vector<int>> groups;
    for (auto& [domain, members] : found) groups.push_back(std::move(members));
    std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
        return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
    });
    return groups;
}

size_t set_count(size_t nodes, size_t set_nodes, Redundancy redundancy, size_t largest_domain) {
    const size_t least = size_t{redundancy.losses} + 1;
    const size_t wanted = std::clamp<size_t>(set_nodes, least, max_set_nodes);
    // The nearest number of sets, but no set too small or too large.
    const size_t nearest = std::max<size_t>(1, (nodes + wanted / 2) / wanted);
    const size_t most = std::max<size_t>(1, nodes / least);
    const size_t fewest = (nodes + max_set_nodes - 1) / max_set_nodes;
    // Better as many as the largest domain has nodes. If there cannot be so many, then so many that
    // the loss of the domain is survived. If there cannot even be those, more sets gain nothing and
    // cost memory, but for partners: with these, fewer nodes of the domain meet each other.
    const size_t needed = (largest_domain + redundancy.losses - 1) / redundancy.losses;
    size_t apart = nearest;
    if (largest_domain <= most)
        apart = largest_domain;
    else if (needed <= most)
        apart = needed;
    else if (redundancy.scheme == Scheme::partner)
        apart = most;
    return std::max(fewest, std::min(std::max(nearest, apart), most));
}

// The sentence about a set that protects from less than it should.
std::string note_of(Domains domains, const ProtectionSet& set, Redundancy asked) {
    if (set.nodes.size() == 1)
        return fmt::format(
            "node {} has no other node to protect it: if it is lost, so are its captured parts",
            set.nodes.front());
    std::string note;
    if (set.redundancy.losses < asked.losses)
        note = fmt::format("a set of {} nodes survives the loss of {}, not of {}", set.nodes.size(),
                           set.redundancy.losses, asked.losses);
    const auto add = [&](const std::string& sentence) { note += (note.empty() ? "" : "; ") + sentence; };
    if (set.redundancy.scheme == Scheme::partner) {
        for (size_t i = 0; i < set.nodes.size(); ++i) {
            const auto& domain = domains[static_cast<size_t>(set.nodes[i])];
            if (domain != domains[static_cast<size_t>(set.nodes[set.keeper[i]])]) continue;
            add(
                fmt::format("node {} and its partner, node {}, are both in the failure domain {}: if it is "
                            "lost, so are the captured parts of node {}",
                            set.nodes[i], set.nodes[set.keeper[i]], shortened(domain), set.nodes[i]));
            break;
        }
        return note;
    }
    const auto groups = by_domain(domains, set.nodes);
    if (groups.front().size() > set.redundancy.losses)
        add(fmt::format(
            "{} of a set's {} nodes are in the failure domain {}: if it is lost, so are their captured "
            "parts, because the set survives the loss of {}",
            groups.front().size(), set.nodes.size(),
            shortened(domains[static_cast<size_t>(groups.front().front())]),
            counted(set.redundancy.losses, "node")));
    return note;
}

ProtectionSet make_set(Domains domains, const std::vector<int>& nodes, Redundancy asked) {
    const auto groups = by_domain(domains, nodes);
    ProtectionSet set;
    for (const auto& group : groups) set.nodes.insert(set.nodes.end(), group.begin(), group.end());
    const size_t count = set.nodes.size();
    if (count > 1) {
        set.redundancy = asked;
        set.redundancy.losses = std::min(asked.losses, static_cast<uint32_t>(count) - 1);
    }
    if (set.redundancy.scheme == Scheme::partner)
        for (size_t i = 0; i < count; ++i) set.keeper.push_back(static_cast<uint32_t>((i + 1) % count));
    set.note = note_of(domains, set, asked);
    return set;
}

}  // namespace

Sets make_sets(Domains domains, Redundancy redundancy, uint32_t set_nodes) {
    Sets made;
    made.of_node.resize(domains.size());
    if (domains.empty() || redundancy.scheme == Scheme::none) return made;
    std::vector<int> nodes;
    for (size_t node = 0; node < domains.size(); ++node) nodes.push_back(static_cast<int>(node));
    const auto groups = by_domain(domains, nodes);
    const size_t count = set_count(nodes.size(), set_nodes, redundancy, groups.front().size());

    std::vector<std::vector<int>> dealt(count);
    size_t turn = 0;
    for (const auto& group : groups)
        for (const int node : group) dealt[turn++ % count].push_back(node);
    for (const auto& members : dealt) {
        const auto set = static_cast<uint32_t>(made.sets.size());
        made.sets.push_back(make_set(domains, members, redundancy));
        uint32_t position = 0;
        for (const int node : made.sets.back().nodes)
            made.of_node[static_cast<size_t>(node)] = {set, position++};
    }
    return made;
}

std::optional<uint32_t> copy_keeper(const ProtectionSet& set, uint32_t position) {
    if (set.redundancy.scheme == Scheme::none) return std::nullopt;
    if (set.redundancy.scheme == Scheme::partner) return set.keeper[position];
    const auto members = static_cast<uint32_t>(set.nodes.size());
    if (members - set.redundancy.losses != 1) return std::nullopt;
    return (position + 1) % members;
}

uint32_t kept_by(const ProtectionSet& set, uint32_t position) {
    const auto found = std::find(set.keeper.begin(), set.keeper.end(), position);
    INVARIANT(found != set.keeper.end());
    return static_cast<uint32_t>(found - set.keeper.begin());
}

}  // namespace tailrace::internal
