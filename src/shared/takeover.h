// Takeover: the shared files of an epoch whose program has died, written by the nodes on their own
// from their plan records (docs/format.md, "Takeover").
//
//   1. Every node of a file's group writes its segment of NAME.takeover (shared/segment.h). No node
//      waits for another. A node that has several files for itself begins all of them before it
//      commits any. A node that is lost may have its share written by one that keeps a copy of what
//      it has captured. So whoever writes a share locks it first (lock_share), and then looks
//      whether it is written already. A share that is written is never begun again.
//   2. A node that finds all K files complete renames each takeover to NAME.unfinished, in place of
//      whatever the program has left there. A file may also be complete because the program has
//      completed it. Within a group that has several files, all of them come from one attempt,
//      since a stream may be spread over them. What a session has begun with another K counts only
//      if it is whole by itself, and is removed otherwise.
//   3. The same node gives the epoch its names (shared/epoch_files.h).
//
// The program's own attempt has other names and often another layout. So a process of it that
// still lives for a moment can write nothing into a takeover, and no reader takes a takeover for a
// file of an epoch. Steps 2 and 3 may be done by several nodes at once, and again after a crash. They
// need no lock: a file is renamed only when all shares in it are written, and then nobody begins one.
//
// A file moves from NAME.takeover to NAME.unfinished to NAME, and whoever looks for it looks at these
// names in this order. In another order it could be missed on its way.
#pragma once

#include <cstdint>
#include <memory>
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

// Whether all of these files, which are those of one group, hold the segments of `leader`. A node that
// has several files for itself takes over all of them, or none. So if the takeover of one of them holds
// its segment, all were begun, and one that is not there any more has its place.
Result<bool> share_is_written(Storage& storage, const std::string& directory,
                              const std::vector<SharedHeader>& headers,
                              const std::vector<StreamInfo>& streams, uint32_t leader);

// The lock on a node's share of an epoch. As NumberLock: busy if another process has it.
Result<std::unique_ptr<NumberLock>> lock_share(Storage& storage, const std::string& directory,
                                               const std::string& job, EpochKey key, uint32_t node);
// Removes the file by which shares of an epoch are locked. For an epoch that nobody needs to write any
// more: whoever locks a share of it looks whether that is so before it writes.
Status remove_share_locks(Storage& storage, const std::string& directory, const std::string& job,
                          EpochKey key);

// The epochs that have takeovers in the directory. Nodes write these now, or have written their shares.
Result<std::vector<EpochKey>> begun_takeovers(Storage& storage, const std::string& directory,
                                              const std::string& job);

// Whether the file that `header` describes is complete under any of its names, in whatever layout.
Result<bool> file_is_complete(Storage& storage, const std::string& directory, const SharedHeader& header);

// Steps 2 and 3. Returns whether the epoch is complete; then it has its names, and no takeover is
// left. While other nodes do the same, an epoch that they have just named may seem incomplete.
Result<bool> name_if_complete(Storage& storage, const std::string& directory, const std::string& job,
                              EpochKey key);

// At the beginning of a session, which holds the directory's lock: steps 2 and 3 for every epoch that
// is complete. Other takeovers are removed, because the session flushes their epochs itself, and all
// files by which shares were locked.
Status clear_takeovers(Storage& storage, const std::string& directory, const std::string& job);

}  // namespace tailrace::internal
