// The epochs that a directory holds, and whether each is complete. For tools and whoever else looks
// at a directory from outside: shared files and captured parts are treated alike.
//
// Thread-compatible: the functions keep no state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog.h"
#include "read/epoch_reader.h"
#include "storage/storage.h"

namespace tailrace::internal {

// What a directory holds of one epoch of one run. No file was opened for `files`.
struct FoundEpoch {
    std::string job;
    EpochKey key;
    std::optional<SharedEpochFiles> files;
    std::vector<CapturedPart> parts;  // captured parts, ascending by rank
};

struct Found {
    std::vector<FoundEpoch> epochs;   // ascending by (job, key)
    std::vector<Leftover> leftovers;  // captured parts that are damaged or unfinished
};

// Shared files and captured parts alike, of `job`, or of every job when that is empty. `directory`
// may also name one file: then the epoch of that shared file is found, or that captured part alone.
// not_found when there is no such directory or file.
Result<Found> find_epochs(Storage& storage, const std::string& directory, const std::string& job);

enum class Completeness {
    complete,    // every file and slot is there and valid
    captured,    // captured parts of a node-local tier, headers valid
    incomplete,  // a file or slot is missing: never committed, or not whole any more
    damaged,     // something is there and wrong
    unreadable,  // the system refused to read it
};
std::string_view completeness_name(Completeness completeness);

struct JudgedEpoch {
    FoundEpoch found;
    Completeness completeness = Completeness::incomplete;
    Status why;                         // ok for complete and captured
    std::optional<SharedEpoch> shared;  // complete only
    bool replaced = false;              // a later run has a complete attempt of the same epoch
    bool left_behind = false;           // a later run went back to an older epoch, and on from there

    uint32_t rank_count() const;     // 0 when not known
    uint64_t data_bytes() const;     // of streams, as far as known
    uint64_t file_bytes() const;     // the files' lengths
    uint64_t saved_unix_ms() const;  // commit time; else the latest modification
    uint64_t age_seconds() const;
    EpochSources sources() const;
};

// Reads the heads of the epoch's files.
JudgedEpoch judge(Storage& storage, FoundEpoch epoch);
// All of them, with `replaced` and `left_behind` set. `epochs` ascends by (job, key), and so does
// the result.
std::vector<JudgedEpoch> judge_all(Storage& storage, std::vector<FoundEpoch> epochs);

struct JudgedDirectory {
    std::vector<JudgedEpoch> epochs;  // as judge_all() returns them
    std::vector<Leftover> leftovers;
};

// find_epochs(), then `select`, then judge_all(). `select` takes out what is not to be judged, or
// refuses; its failure is returned. A session may complete an epoch meanwhile, and then remove an
// older one. If the shared files' names are others afterwards, all is done again, a few times at
// most. So the answer is true of one moment, unless the directory changes faster than it can be read.
Result<JudgedDirectory> judge_directory(Storage& storage, const std::string& directory,
                                        const std::string& job,
                                        const std::function<Status(std::vector<FoundEpoch>&)>& select);

// Whether a restore of the newest tries `a` before `b` (catalog/lineage.h). Both are of one job.
bool goes_first(const JudgedEpoch& a, const JudgedEpoch& b);

}  // namespace tailrace::internal
