// Retention: which epochs of the shared directory are removed because newer ones are there.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "catalog/catalog.h"
#include "storage/storage.h"

namespace tailrace::internal {

// Whether the arrays of a complete epoch can be put together from what its ranks have saved, and the
// directory of files that lie apart is there. If not, returns corrupt with the first fault. Reads every
// rank's table of regions.
Status check_restorable(Storage& storage, const SharedEpoch& epoch);

// The same as yes or no, for an epoch that would replace others or count as one of the newest. The
// log tells the reason for a no.
bool is_restorable(Storage& storage, const std::string& directory, const SharedEpoch& epoch);

// Whether an earlier run's attempt at the same epoch is there. `epochs` is in ascending order of
// keys.
bool replaces_another(const std::vector<SharedEpochFiles>& epochs, size_t i);

// Applies keep_shared (0: keeps all) and removes replaced attempts. Epochs in `known_complete` are
// not opened again. Any other epoch that would count as one of the newest must prove that it can be
// restored, as far as heads and tables tell. Epochs in `known_damaged` do not count, because
// somebody could not read their data.
Status apply_shared_retention(Storage& storage, const std::string& directory, const std::string& job,
                              uint32_t keep_shared, std::vector<EpochKey>& known_complete,
                              const std::set<EpochKey>& known_damaged);

}  // namespace tailrace::internal
