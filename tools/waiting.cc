#include "waiting.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

namespace tailrace::internal::tool {

std::vector<std::string> merge_waiting(const std::vector<std::string>& texts) {
    using Range = std::pair<unsigned, unsigned>;  // first and last node
    std::map<Range, std::string> nodes, ranges;
    for (const auto& text : texts) {
        Range range;
        if (std::sscanf(text.c_str(), "some of nodes %u to %u", &range.first, &range.second) == 2) {
            ranges.emplace(range, text);
        } else if (std::sscanf(text.c_str(), "node %u", &range.first) == 1) {
            auto& known = nodes[{range.first, range.first}];
            if (known.size() < text.size()) known = text;  // with the host
        }
    }
    for (const auto& [range, text] : ranges) {
        const auto first = nodes.lower_bound({range.first, 0});
        if (first == nodes.end() || first->first.first > range.second) nodes.emplace(range, text);
    }
    std::vector<std::string> merged;
    for (auto& [range, text] : nodes) merged.push_back(std::move(text));
    return merged;
}

}  // namespace tailrace::internal::tool
