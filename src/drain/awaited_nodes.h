// AwaitedNodes: whose share of an epoch is not written yet, as a node's plan record tells. The record knows
// the nodes of its own group by name, and of another group only that somebody is missing. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tailrace::internal {

struct AwaitedNodes {
    uint32_t first = 0, last = 0;  // one node, or at least one of several
    std::string host = {};         // of one node, where it is known
    friend bool operator==(const AwaitedNodes&, const AwaitedNodes&) = default;
};

// "node 3 (host)", "node 3" or "some of nodes 8 to 15".
std::string to_string(const AwaitedNodes& nodes);
std::vector<std::string> texts_of(const std::vector<AwaitedNodes>& all);
// These texts with commas.
std::string to_string(const std::vector<AwaitedNodes>& all);

// What several records tell: each once, in ascending order, without a range of which a node is named.
std::vector<AwaitedNodes> merge_awaited(const std::vector<AwaitedNodes>& all);

}  // namespace tailrace::internal
