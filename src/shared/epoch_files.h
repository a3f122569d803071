// How the files of an epoch get their final names in the shared directory, and how they are
// removed.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "catalog/catalog.h"
#include "storage/storage.h"

namespace tailrace::internal {

// Gives the `file_count` files of a committed epoch their final names. Call it only when all slots
// of the epoch are durable, since a final name promises the whole epoch. Files that have their
// final name already are skipped. The last step syncs the directory. The epoch stays committed,
// whatever fails.
Status name_shared_epoch(Storage& storage, const std::string& directory, const std::string& job, EpochKey key,
                         uint32_t file_count);

// The first of two steps for a complete epoch whose writer died before its last rename. It may have
// died before its last sync as well. So this step syncs what was found valid, before anybody counts
// on it. Returns not_found if another node has given a file its final name meanwhile.
Status make_epoch_durable(Storage& storage, const SharedEpochFiles& files);
// The second step gives the epoch's `file_count` files their final names. A file that exists under
// both names loses the unfinished one, and unfinished files of another K are removed. At the end the
// directory is synced.
Status finish_epoch_names(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                          size_t file_count);
// Removes the unfinished files of attempts at the epoch with another K.
Status remove_other_attempts(Storage& storage, const SharedEpochFiles& files, size_t file_count);

// Removes all files of an epoch, first those that lie there as the program wrote them (shared/originals.h).
// If the removal is cut short then, the epoch is there without them, until it is removed after all. Later, it
// leaves something that is recognised as unfinished. The last step syncs the directory. Returns ok if there
// are no files.
Status remove_shared_epoch(Storage& storage, const std::string& directory, const std::string& job,
                           EpochKey key);
// The same, for files that the caller has listed.
Status remove_epoch_files(Storage& storage, const std::string& directory, SharedEpochFiles files);

}  // namespace tailrace::internal
