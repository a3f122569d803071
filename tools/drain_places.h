// drain_places.h - which node-local tiers `tailrace drain DIR` means, and which nodes' directories in them.
//
// DIR may be a node-local tier, one node's directory in a tier, or a shared directory. Of a shared directory
// the settings and the records of its sessions name tiers, and the plan records there say what was captured
// for it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

struct DrainPlaces {
    std::vector<std::string> tiers;
    std::set<std::string> directories;  // these alone; empty: all in the tiers
    std::string nothing;                // what to say if there is nothing to drain
};

// `local_dir`: a tier that the user has named; it may be empty. Fails if DIR cannot be listed.
Result<DrainPlaces> find_drain_places(Storage& storage, const std::string& directory,
                                      const std::string& local_dir);

}  // namespace tailrace::internal::tool
