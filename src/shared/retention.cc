#include "shared/retention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "base/log.h"
#include "catalog/lineage.h"
#include "catalog/original_places.h"
#include "format/original_files.h"
#include "read/epoch_reader.h"
#include "shared/epoch_files.h"
#include "storage/system_path.h"

namespace tailrace::internal {

Status check_restorable(Storage& storage, const SharedEpoch& epoch) {
    TAILRACE_ASSIGN(const auto reader,
                    EpochReader::open(storage, storage, {epoch.key, epoch.rank_count, {}, epoch}));
    TAILRACE_ASSIGN(const auto arrays, reader->arrays());
    for (const auto& array : arrays)
        if (array.fault && array.fault->unrestorable())
            return Status(Code::corrupt, fmt::format("{}: {}", to_string(epoch.key), array.fault->sentence));
    for (uint32_t rank = 0; rank < epoch.rank_count; ++rank) {
        TAILRACE_ASSIGN(const PartManifest* manifest, reader->manifest(rank));
        if (first_region_apart(*manifest) == manifest->regions.size()) continue;
        return are_originals_there(storage, parent_of(epoch.paths.front()), epoch.job, epoch.key);
    }
    return {};
}

bool is_restorable(Storage& storage, const std::string& directory, const SharedEpoch& epoch) {
    const Status restorable = check_restorable(storage, epoch);
    if (!restorable.ok())
        log(LogLevel::warning, "{} in {} does not count when older epochs are removed: {}",
            to_string(epoch.key), directory, restorable.message());
    return restorable.ok();
}

bool replaces_another(const std::vector<SharedEpochFiles>& epochs, size_t i) {
    INVARIANT(i < epochs.size() && (i == 0 || epochs[i - 1].key < epochs[i].key));
    return i > 0 && epochs[i - 1].key.epoch == epochs[i].key.epoch;
}

Status apply_shared_retention(Storage& storage, const std::string& directory, const std::string& job,
                              uint32_t keep_shared, std::vector<EpochKey>& known_complete,
                              const std::set<EpochKey>& known_damaged) {
    TAILRACE_ASSIGN(const auto epochs, list_shared(storage, directory, job));
    RetentionRule rule;
    if (keep_shared > 0) rule.keep_newest = keep_shared;
    // An epoch that counts as one of the newest, or replaces an earlier attempt, must prove that it
    // is complete. For all others the names suffice.
    std::vector<EpochAge> ages;
    std::set<uint64_t> proved;  // epoch numbers
    const Lineage lineage(whole_epochs(storage, epochs, {}, known_complete));
    for (size_t i = epochs.size(); i-- > 0;) {
        const auto& files = epochs[i];
        bool complete = looks_complete(files), restorable = !known_damaged.contains(files.key);
        const bool must_prove = proved.size() <= keep_shared || replaces_another(epochs, i);
        if (complete && must_prove &&
            std::find(known_complete.begin(), known_complete.end(), files.key) == known_complete.end()) {
            const auto epoch = load_shared_epoch(storage, files);
            complete = epoch.ok();
            restorable = restorable && complete && is_restorable(storage, directory, *epoch);
            if (restorable) known_complete.push_back(files.key);
        }
        if (complete && restorable && !lineage.left_behind(files.key)) proved.insert(files.key.epoch);
        ages.push_back({files.key, complete, 0, restorable});
    }
    INVARIANT(ages.size() == epochs.size());
    for (const auto& key : choose_removals(ages, rule)) {
        TAILRACE_TRY(remove_shared_epoch(storage, directory, job, key));
        std::erase(known_complete, key);
        log(LogLevel::info, "{} is removed from {}: newer ones are complete", to_string(key), directory);
    }
    return {};
}

}  // namespace tailrace::internal
