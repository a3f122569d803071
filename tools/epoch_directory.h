// The epochs in a directory, as the tool's user names them: by directory, number (or `newest`), and where
// there is doubt by job and run. Shared files and captured parts are treated alike.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "read/judged_epoch.h"
#include "storage/storage.h"

namespace tailrace::internal::tool {

// An epoch, and the space that its files take. They take less than their lengths where they have holes.
struct ListedEpoch : JudgedEpoch {
    uint64_t disk_bytes = 0;
};

struct ListedDirectory {
    std::vector<ListedEpoch> epochs;  // ascending by (job, key)
    std::vector<Leftover> leftovers;
};

// All of a directory's epochs, or those of one job: judged (read/judged_epoch.h), and with their space.
Result<ListedDirectory> list_epochs(Storage& storage, const std::string& directory, const std::string& job);

// Ends a sentence that says that there are no epochs in a directory, since the user may have meant one
// inside.
std::string hint_of_inside(Storage& storage, const std::string& directory);

// How a user points at epochs.
struct EpochChoice {
    std::string directory;
    std::string epoch;  // empty, "newest", or a number
    std::string job;
    std::optional<uint32_t> run;

    // Declares DIR|FILE, EPOCH, --job and --run.
    void add_to(CLI::App& command, bool epoch_required);
};

// The directory's epochs of the one job meant; of the run, if the choice names one. choice.epoch does not
// matter. invalid_argument when several jobs are there and none was named, not_found when there is no epoch.
Result<std::vector<ListedEpoch>> list_job(Storage& storage, const EpochChoice& choice);

// The one epoch meant: `newest` (or nothing) is what a restore of the newest takes (catalog/lineage.h), a
// number the latest run's attempt that is. What had to be passed over is said on stderr. When the number's
// attempts are all bad, the latest is returned, with `why`.
Result<ListedEpoch> choose_epoch(Storage& storage, const EpochChoice& choice);

}  // namespace tailrace::internal::tool
