// Takeover: the shared files of an epoch whose program has died, written by the nodes on their own
// from their plan records (docs/format.md, "Takeover").
//
//   1. Every node of a file's group writes its segment of NAME.takeover (shared/segment.h). No node
//      waits for another. A node that has several files for itself begins all of them before it
//      commits any.
//   2. A node that finds all K files complete renames each takeover to NAME.unfinished, in place of
//      whatever the program has left there. A file may also be complete because the program has
//      completed it. Within a group that has several files, all of them come from one attempt,
//      since a stream may be spread over them. What a session has begun with another K counts only
//      if it is whole by itself, and is removed otherwise.
//   3. The same node gives the epoch its names (shared/epoch_files.h).
//
// The program's own attempt has other names and often another layout. So a process of it that
// still lives for a moment can write nothing into a takeover, and no reader takes a takeover for a
// file of an epoch. Steps 2 and 3 may be done by several nodes at once, and again after a crash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "format/shared_file.h"
#include "format/stream_info.h"
#include "storage/storage.h"

namespace tailrace::internal {

// How far a file is.
struct TakeoverProgress {
    bool begun = false;                    // there is a takeover
    std::vector<uint32_t> missing;         // the leaders whose slots it lacks; all if there is none
    bool complete_under_its_name = false;  // or under the unfinished one
    // A takeover that is complete counts, and otherwise the program's file. (If a takeover is not
    // complete, it was given up, or is still written.)
    bool complete() const { return missing.empty() || complete_under_its_name; }
};

// `header` is that of the takeover, and `streams` are those of its group. A file of the same epoch under its
// other names may have another layout, but it counts only if it has the same streams. (A later session may
// have flushed the epoch again, on other nodes and so in other groups. Its files do not go together with
// takeovers.)
Result<TakeoverProgress> takeover_progress(Storage& storage, const std::string& directory,
                                           const SharedHeader& header,
                                           const std::vector<StreamInfo>& streams);

// Whether a file of the epoch that `header` is of is complete under any of its names. The layout may
// be another one.
Result<bool> file_is_complete(Storage& storage, const std::string& directory, const SharedHeader& header);

// Steps 2 and 3. Returns whether the epoch is complete; then it has its names, and no takeover is
// left. If other nodes do the same meanwhile, an epoch may seem incomplete that they have just named.
Result<bool> name_if_complete(Storage& storage, const std::string& directory, const std::string& job,
                              EpochKey key);

// At the beginning of a session, which holds the directory's lock: steps 2 and 3 for every epoch that
// is complete. Other takeovers are removed, because the session flushes their epochs itself.
Status clear_takeovers(Storage& storage, const std::string& directory, const std::string& job);

}  // namespace tailrace::internal
