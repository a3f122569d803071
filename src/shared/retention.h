// Retention: which epochs of the shared directory go because newer ones are there.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/catalog.h"
#include "storage/storage.h"

namespace tailrace::internal {

// Whether the arrays of a complete epoch can be put together from what its ranks saved of them: corrupt, and
// the first one's fault, when not. Reads every rank's table of regions.
Status check_restorable(Storage& storage, const SharedEpoch& epoch);

// The same as a question, for what would replace others or count as one of the newest. A no is logged.
bool is_restorable(Storage& storage, const std::string& directory, const SharedEpoch& epoch);

// Whether an earlier run's attempt at the same epoch is there. `epochs` ascends by key.
bool replaces_another(const std::vector<SharedEpochFiles>& epochs, size_t i);

// Applies keep_shared (0: all) and removes replaced attempts. `known_complete` are not opened again; what
// else counts as one of the newest must prove that it can be restored, as far as heads and tables tell.
// `known_damaged`, whose data somebody could not read, do not count.
Status apply_shared_retention(Storage& storage, const std::string& directory, const std::string& job,
                              uint32_t keep_shared, std::vector<EpochKey>& known_complete,
                              const std::set<EpochKey>& known_damaged);

}  // namespace tailrace::internal
