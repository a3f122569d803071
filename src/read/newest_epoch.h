// Opening an epoch of a shared directory without a session, while sessions may write and remove
// epochs there.
//
// open_newest_epoch():
//   1. It lists the directory, and sorts the attempts newest first (catalog/lineage.h).
//   2. It opens the first attempt that is complete.
//   3. If it passed over another on the way, it lists the directory again. A session may have
//      completed that attempt since, and then have removed older ones. If the files differ, it goes
//      back to step 2.
//   4. If the files are the same, what it passed over is damaged or unfinished. It logs a warning
//      about damage, and the reader names it: a program that continues from an older epoch must be
//      able to know.
//
// Thread-compatible: calls for different storages are independent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "catalog/catalog.h"
#include "read/epoch_reader.h"

namespace tailrace::internal {

// The reader holds the epoch's files open, so that it can still read them after a session has
// replaced or removed the epoch. not_found when a file or slot is missing, corrupt when something
// there is wrong. `storage` must outlive the reader.
Result<std::unique_ptr<EpochReader>> open_shared_epoch(Storage& storage, const SharedEpochFiles& files);

// The newest complete epoch of `directory`, or the newest attempt at `epoch`. `job`: empty for the
// only job there is. not_found when there is none, invalid_argument when the directory holds
// several jobs and `job` is empty, else the failure of the newest attempt. `storage` must outlive
// the reader.
Result<std::unique_ptr<EpochReader>> open_newest_epoch(Storage& storage, const std::string& directory,
                                                       const std::string& job, std::optional<uint64_t> epoch);

}  // namespace tailrace::internal
