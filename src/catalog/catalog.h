// Catalog: the contents of a directory of the shared tier or of a node-local tier. It tells which
// epochs are complete and which may be deleted. It reads through Storage; decisions are pure
// functions over what was read.
//
// The files themselves (header and slots) tell the truth, not their names. If all slots of an epoch
// are valid, the epoch is complete, even if the program died before the last rename.
// Thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/epoch_key.h"
#include "format/part_file.h"
#include "format/shared_file.h"
#include "storage/storage.h"

namespace tailrace::internal {

// ---- shared tier --------------------------------------------------------------------------------

struct SharedFileEntry {
    std::string path;
    SharedFileName name;
    uint64_t bytes = 0;
    std::chrono::system_clock::time_point modified;
};

// The files of one epoch of one run, as the directory lists them. No file was opened.
struct SharedEpochFiles {
    std::string job;
    EpochKey key;
    std::vector<SharedFileEntry> files;  // ascending by index
};

// Epochs in `directory`, ascending by (job, key). If `job` is empty, those of every job. Names that
// are not ours are passed over. not_found if there is no such directory.
Result<std::vector<SharedEpochFiles>> list_shared(Storage& storage, const std::string& directory,
                                                  const std::string& job);
// One of them; empty if the directory has no files of it.
Result<std::optional<SharedEpochFiles>> find_shared(Storage& storage, const std::string& directory,
                                                    const std::string& job, EpochKey key);

// The files of all of them. Two listings with the same paths: no epoch was completed or removed
// between them.
std::vector<std::string> paths_of(const std::vector<SharedEpochFiles>& epochs);

// The files of the epoch that the shared file `path` belongs to, by its header. If that is the only
// file, its name does not matter. Otherwise it and the others lie in the same directory under their
// own names (not_found under another name).
Result<SharedEpochFiles> epoch_of_file(Storage& storage, const std::string& path);

// Whether some of them have unfinished names, because a run was killed or a flush is under way. An
// epoch that is not whole and has no such names was committed once, and has lost files since.
bool has_unfinished(const SharedEpochFiles& files);

// Whether all K files exist under their final names; no file is opened. Decisions that come before
// files are read (which epochs are left behind, lineage.h) take such epochs for complete.
bool looks_complete(const SharedEpochFiles& files);

// The epochs that count as whole before they are read: those whose names are complete. If an epoch
// would leave others behind (lineage.h), the heads of its files must be complete, too, unless it is
// `proved`. The reason is that a stray file under a later run's name must not hide sound epochs.
// `others`: whole epochs that lie elsewhere.
std::vector<EpochKey> whole_epochs(Storage& storage, const std::vector<SharedEpochFiles>& epochs,
                                   const std::vector<EpochKey>& others, const std::vector<EpochKey>& proved);

// Opens a shared file for reading. A file that a running session has renamed since it was listed is
// found under its final name. If the file system cannot read it as `direct` says, it is read
// through the page cache.
Result<std::unique_ptr<File>> open_shared_file(Storage& storage, const std::string& path,
                                               DirectIo direct = DirectIo::off);

// A rank's stream in the files of an epoch.
struct StreamExtent {
    uint32_t file = 0;  // index into SharedEpoch::paths
    uint64_t file_offset = 0;
    uint64_t stream_offset = 0;
    uint64_t bytes = 0;
};
struct StreamMap {
    StreamInfo info;
    std::vector<StreamExtent> extents;  // ascending by stream_offset; together exactly [0, stream_bytes)
};

// A complete epoch with its index read and verified. It suffices to read any stream.
struct SharedEpoch {
    std::string job;
    EpochKey key;
    uint64_t run_uid = 0;
    uint32_t rank_count = 0;
    std::vector<std::string> paths;  // K files, by index
    std::vector<StreamMap> streams;  // by rank
    uint64_t stream_bytes = 0;       // sum over ranks
    uint64_t file_bytes = 0;         // sum of the K files' sizes
    uint64_t committed_unix_ms = 0;  // latest of all slots
};

// Opens all K files and reads their heads. Fails with not_found if the epoch is incomplete (a file
// or slot is missing), and with corrupt if something is there and wrong. The sentence names the
// first such file. Checks across files: same job, key, run_uid, K, ranks; every rank once; extents
// cover each stream exactly.
Result<SharedEpoch> load_shared_epoch(Storage& storage, const SharedEpochFiles& files);
// Whether what was to be read is missing, or there and wrong. After another failure it may be sound.
inline bool is_damage(const Status& why) {
    return why.code() == Code::corrupt || why.code() == Code::not_found;
}

// The head of one shared file, for tools: header, slots and indexes as far as they are valid.
struct SharedFileHead {
    SharedHeader header;
    std::vector<Result<LeaderSlot>> slots;
    std::vector<std::optional<Result<SegmentIndex>>> indexes;  // present where the slot is valid
};
Result<SharedFileHead> read_shared_head(Storage& storage, const std::string& path);

// ---- node-local tier ----------------------------------------------------------------------------

struct CapturedPart {
    std::string path;
    PartHeader header;
    uint64_t offset = 0;  // where it begins in the file: not 0 for a copy in a protect object
};
// The captured part in a file of any name. corrupt if the file is not one, or is cut off.
Result<CapturedPart> captured_part(Storage& storage, const std::string& path, uint64_t offset = 0);

// Complete captured parts in `directory` whose header is valid and agrees with the name and the
// file's length, ascending by (key, rank). `leftovers` lists damaged and unfinished ones with the
// reason.
struct Leftover {
    std::string path;
    Status why;
};
struct LocalListing {
    std::vector<CapturedPart> parts;
    std::vector<Leftover> leftovers;
};
Result<LocalListing> list_local(Storage& storage, const std::string& directory, const std::string& job);

// ---- retention (pure) ---------------------------------------------------------------------------

struct EpochAge {
    EpochKey key;
    bool complete = false;
    uint64_t age_seconds = 0;
    bool restorable = true;  // if it is complete: its arrays can be assembled (array/array_check.h)
};
struct RetentionRule {
    std::optional<uint64_t> keep_newest;         // complete epochs to keep
    std::optional<uint64_t> older_than_seconds;  // remove only older epochs
};
// Which of `epochs` the rule removes, ascending. Every epoch must be older than the age, if one is
// given. It chooses
//   - complete epochs beyond the newest keep_newest; if only an age is given, all complete epochs;
//   - attempts that a later run's complete attempt of the same epoch has replaced;
//   - epochs left behind (lineage.h), which do not count among the newest, for being too many once
//     the run that left them behind has passed them. Before that, they may be what a program has
//     lost that began anew by mistake;
//   - epochs that are complete and cannot be restored, if the rule would choose one of their age
//     and at least one newer epoch, or keep_newest of them, can be restored. They neither count nor
//     replace.
// It never chooses the newest complete epoch, nor the newest that is not left behind. Incomplete
// attempts are not chosen here: removing them needs to know that no session is writing them.
std::vector<EpochKey> choose_removals(const std::vector<EpochAge>& epochs, const RetentionRule& rule);

}  // namespace tailrace::internal
