// The nodes that an epoch waits for, as several nodes' plan records tell (drain/node_drain.h). Pure.
#pragma once

#include <string>
#include <vector>

namespace tailrace::internal::tool {

// Each text is "node 3 (host)", "node 3" or "some of nodes 8 to 15". A record knows the nodes of its
// own group by name, and of another group only that somebody is missing. Returns each once, in
// ascending order, without a range of which a node is named.
std::vector<std::string> merge_waiting(const std::vector<std::string>& texts);

}  // namespace tailrace::internal::tool
