#include "drain/awaited_nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

namespace tailrace::internal {

std::string to_string(const AwaitedNodes& nodes) {
    if (nodes.first != nodes.last) return fmt::format("some of nodes {} to {}", nodes.first, nodes.last);
    return nodes.host.empty() ? fmt::format("node {}", nodes.first)
                              : fmt::format("node {} ({})", nodes.first, nodes.host);
}

std::vector<std::string> texts_of(const std::vector<AwaitedNodes>& all) {
    std::vector<std::string> texts;
    for (const auto& nodes : all) texts.push_back(to_string(nodes));
    return texts;
}

std::string to_string(const std::vector<AwaitedNodes>& all) {
    return fmt::format("{}", fmt::join(texts_of(all), ", "));
}

std::vector<AwaitedNodes> merge_awaited(const std::vector<AwaitedNodes>& all) {
    std::map<std::pair<uint32_t, uint32_t>, AwaitedNodes> merged;
    for (const auto& nodes : all) {
        auto& known = merged[{nodes.first, nodes.last}];
        if (known.host.empty()) known = nodes;
    }
    // By first and last node: a node of a range stands between the range's ends.
    const auto is_named = [&](const AwaitedNodes& range) {
        for (auto next = merged.lower_bound({range.first, 0}); next != merged.end(); ++next) {
            if (next->second.first > range.last) break;
            if (next->second.first == next->second.last) return true;
        }
        return false;
    };
    std::vector<AwaitedNodes> kept;
    for (const auto& [key, nodes] : merged)
        if (nodes.first == nodes.last || !is_named(nodes)) kept.push_back(nodes);
    return kept;
}

}  // namespace tailrace::internal
