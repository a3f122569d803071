// Inventory: what lies in the shared directory when a session begins, after the remains of earlier
// runs are removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "storage/storage.h"

namespace tailrace::internal {

// What rank 0 found in the shared directory.
struct SharedInventory {
    uint32_t greatest_run = 0;
    std::optional<EpochKey> newest_committed;  // what a restore of the newest epoch would try first
    // All of them. Those before the newest are judged by their names alone.
    std::vector<EpochKey> committed;
    std::vector<EpochKey> unclean;  // not usable, with files that stay in the directory
};

// Puts the shared directory in order and says what it holds:
//   - Files that nodes have written on their own count if they are complete (shared/takeover.h).
//   - An epoch that was never finished is removed.
//   - A complete epoch with unfinished names gets its final names.
//   - Files of epochs, as the program wrote them, are completed or removed (shared/originals.h).
//   - An attempt that a later run's attempt has replaced is removed.
//   - Anything that could be a complete epoch whose file was moved away or cannot be read is left
//     alone; the log says so. If only its bytes are damaged, it is neither committed nor unclean. A
//     session that has captured it may then write it again (remove_for_rewrite).
// No other session may use the directory meanwhile.
Result<SharedInventory> clean_shared(Storage& storage, const std::string& directory, const std::string& job);

// Removes the damaged files of an epoch that the run with this `run_uid` has captured whole, so that it can
// be written again. Removes nothing, and fails, if the epoch can be read, if a file is not what its name
// says, or if a file is another run's.
Status remove_for_rewrite(Storage& storage, const std::string& directory, const std::string& job,
                          EpochKey key, uint64_t run_uid);

}  // namespace tailrace::internal
