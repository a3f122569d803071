// Recovery: what an earlier run left behind, and what becomes of it. The decisions are pure; the effects
// below them are thin.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "checkpoint/local_tier.h"
#include "format/catalog.h"
#include "storage/storage.h"

namespace tailrace {

// Captured epochs that should reach the shared tier now, ascending: complete, newer than the newest
// committed one, and meant for the shared tier or the newest of all; those left behind (format/lineage.h)
// count for nothing, captured or committed. `unclean`: epochs whose old files could not be removed from the
// shared tier, so that they must not be written again.
std::vector<LocalEpoch> choose_recoveries(const std::vector<LocalEpoch>& captured,
                                          const std::vector<EpochKey>& committed,
                                          const std::vector<EpochKey>& unclean);

// What rank 0 found and did in the shared tier before a session begins.
struct SharedInventory {
    uint32_t greatest_run = 0;
    std::optional<EpochKey> newest_committed;  // what a restore of the newest epoch would try first
    std::vector<EpochKey> committed;           // all; older ones than the newest by their names alone
    std::vector<EpochKey> unclean;             // incomplete, and files of it could not be removed
};

// Lists the shared directory, finds the newest complete epoch, removes the files of unfinished ones, gives
// complete files their final name, and removes attempts that a later run's has replaced. Nothing that could
// be a complete epoch whose file was moved away or cannot be read is touched; that is logged.
// No other session may use the directory.
Result<SharedInventory> clean_shared(Storage& storage, const std::string& directory, const std::string& job);

// Gives the `file_count` files of a committed epoch their final names. Only for an epoch all of whose slots
// are durable: a final name promises the whole epoch. What was renamed before is passed over. Ends with a
// directory sync. Whatever fails, the epoch stays committed.
Status name_shared_epoch(Storage& storage, const std::string& directory, const std::string& job, EpochKey key,
                         uint32_t file_count);

// Removes all files of an epoch, so that a removal that is cut short leaves something recognised as
// unfinished. Ends with a directory sync. ok when there are none.
Status remove_shared_epoch(Storage& storage, const std::string& directory, const std::string& job,
                           EpochKey key);

// Whether the arrays of a complete epoch can be put together from what its ranks saved of them: corrupt, and
// the first one's fault, when not. Reads every rank's table of regions.
Status check_restorable(Storage& storage, const SharedEpoch& epoch);

// Applies keep_shared (0: all) and removes replaced attempts. `known_complete` are not opened again; what
// else counts as one of the newest must prove that it can be restored.
Status apply_shared_retention(Storage& storage, const std::string& directory, const std::string& job,
                              uint32_t keep_shared, std::vector<EpochKey>& known_complete);

}  // namespace tailrace
