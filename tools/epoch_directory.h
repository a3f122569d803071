// The epochs in a directory, as the tool's user names them: by directory, number (or `newest`), and where
// there is doubt by job and run. Shared files and captured parts are treated alike.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "format/catalog.h"
#include "read/epoch_reader.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

// What lies in a directory of one epoch of one run. No file was opened for `files`.
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

// `job` empty: of every job. `directory` may be one file as well: the epoch of a shared file then, or a
// captured part by itself.
// not_found when there is no such directory.
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
    uint64_t disk_bytes = 0;   // what the files took then: less than their lengths where they have holes
    bool replaced = false;     // a later run has a complete attempt of the same epoch
    bool left_behind = false;  // a later run went back to an older epoch, and on from there

    uint32_t rank_count() const;     // 0 when not known
    uint64_t data_bytes() const;     // of streams, as far as known
    uint64_t file_bytes() const;     // the files' lengths
    uint64_t saved_unix_ms() const;  // commit time; else the latest modification
    uint64_t age_seconds() const;
    EpochSources sources() const;
};

// Reads the heads of the epoch's files.
JudgedEpoch judge(Storage& storage, FoundEpoch epoch);
// All of them, with `replaced` and `left_behind` set.
std::vector<JudgedEpoch> judge_all(Storage& storage, std::vector<FoundEpoch> epochs);

// How a user points at epochs.
struct EpochChoice {
    std::string directory;
    std::string epoch;  // empty, "newest", or a number
    std::string job;
    std::optional<uint32_t> run;

    // Declares DIR|FILE, EPOCH, --job and --run.
    void add_to(CLI::App& command, bool epoch_required);
};

// The directory's epochs of the one job meant. invalid_argument when several jobs are there and none was
// named, not_found when there is no epoch.
Result<std::vector<FoundEpoch>> find_job(Storage& storage, const EpochChoice& choice);

// The one epoch meant: `newest` (or nothing) is what a restore of the newest takes (format/lineage.h), a
// number the latest run's attempt that is. What had to be passed over is said on stderr. When the number's
// attempts are all bad, the latest is returned, with `why`.
Result<JudgedEpoch> choose_epoch(Storage& storage, const EpochChoice& choice);

}  // namespace tailrace::internal::tool
