// The names of an epoch's files in the shared directory: how they become final, and how they go.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "format/catalog.h"
#include "storage/storage.h"

namespace tailrace::internal {

// Gives the `file_count` files of a committed epoch their final names. Only for an epoch all of whose slots
// are durable: a final name promises the whole epoch. What was renamed before is passed over. Ends with a
// directory sync. Whatever fails, the epoch stays committed.
Status name_shared_epoch(Storage& storage, const std::string& directory, const std::string& job, EpochKey key,
                         uint32_t file_count);

// For a complete epoch whose writer died before its last rename: it may have died before its last sync, too.
// What was found valid is made durable, before anybody counts on it.
Status make_epoch_durable(Storage& storage, const SharedEpochFiles& files);
// And then the names of its `file_count` files catch up. A file that is there under both names loses the
// unfinished one. Ends with a directory sync.
Status finish_epoch_names(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                          size_t file_count);

// Removes all files of an epoch, so that a removal that is cut short leaves something recognised as
// unfinished. Ends with a directory sync. ok when there are none.
Status remove_shared_epoch(Storage& storage, const std::string& directory, const std::string& job,
                           EpochKey key);
// The same for files that were listed.
Status remove_epoch_files(Storage& storage, const std::string& directory, SharedEpochFiles files);

}  // namespace tailrace::internal
