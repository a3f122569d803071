// Originals: the files of an epoch as the program wrote them, in the shared directory beside the epoch
// (setting files_as = original; docs/format.md, "Original files").
//
//   1. write_originals    Before an epoch is committed, each node writes the files of its captured parts into
//                         the epoch's unfinished directory. Files and directories are synced. A node that has
//                         not done so allows no commit.
//   2. The epoch is committed (shared/segment.h).
//   3. publish_originals  Whoever gives the epoch its names then writes the mark into the directory, syncs
//                         both, and gives the directory its name.
//
// So an epoch that is committed has all its files on the disk, and what is missing is a mark and a name: the
// next session, or a drain, does step 3 again. A directory with its name is complete. An unfinished directory
// without its epoch is removed by the next session (settle_originals).
//
// The shared files of the epoch do not hold the data of these files. So the directory, under either name,
// goes after them.
//
// Sessions hold the shared directory's lock. Drains of several nodes may do step 3 at once: they make the
// same mark, and one of the renames wins.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "format/epoch_key.h"
#include "read/array_judge.h"
#include "storage/storage.h"
#include "threads/throttle.h"

namespace tailrace::internal {

struct OriginalsPlace {
    Storage& storage;
    std::string shared_dir;
    std::string job;
};

enum class OriginalsAttempt {
    first,  // nothing of these ranks is there: a file that is there is another rank's
    again,  // what is there may be left of an attempt that was cut short, and is replaced
};

// Step 1. Parts that do not want it are passed over. `throttle` may be null. invalid_argument if two ranks
// have a file of one name. What was written stays after a failure.
Status write_originals(const OriginalsPlace& place, Storage& local, std::span<const PartPlace> parts,
                       OriginalsAttempt attempt, Throttle* throttle);

enum class Replace { yes, no };

// Step 3, for an epoch that is committed; ok if it has no unfinished directory. An earlier run's directory of
// the same epoch gets its unfinished name back, or (Replace::no, for callers without the directory's lock)
// stops it. If a later run's has the name, this one's stays unfinished. It stays after a failure, too.
Status publish_originals(const OriginalsPlace& place, EpochKey key, Replace replace);

// The same. A failure is logged.
void complete_originals(const OriginalsPlace& place, EpochKey key, Replace replace);

// Gives the directory of a committed epoch its unfinished name back: the first step of removing the epoch. ok
// if there is none.
Status withdraw_originals(const OriginalsPlace& place, EpochKey key);

// Removes what there is of an epoch's files, after the epoch. ok if there is nothing.
Status remove_originals(const OriginalsPlace& place, EpochKey key);

// When a session begins: step 3 for committed epochs, and removal of what has no epoch. Failures are logged.
void settle_originals(const OriginalsPlace& place);

}  // namespace tailrace::internal
