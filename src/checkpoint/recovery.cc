#include "checkpoint/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/log.h"
#include "checkpoint/epoch_reader.h"
#include "format/lineage.h"

namespace tailrace {

namespace {

bool contains(const std::vector<EpochKey>& keys, EpochKey key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Of a file by itself. `foreign`: by its header it is another than its name says, or it cannot be read.
enum class Writing { begun, done, foreign };
Writing look_at(Storage& storage, const SharedFileEntry& file) {
    const auto head = read_shared_head(storage, file.path);
    if (!head.ok()) return head.status().code() == Code::corrupt ? Writing::begun : Writing::foreign;
    const auto& header = head->header;
    if (header.job != file.name.job || header.key != file.name.key || header.file_index != file.name.index ||
        header.file_count != file.name.count)
        return Writing::foreign;
    auto writing = Writing::done;
    for (const auto& slot : head->slots) {
        if (slot.ok()) continue;
        if (slot.status().code() != Code::corrupt && slot.status().code() != Code::not_found)
            return Writing::foreign;
        writing = Writing::begun;
    }
    return writing;
}

// Whether these files, which are no complete epoch, are what a flush or a removal that was cut short leaves.
// Names alone do not tell: they can be changed by hand, and a committed epoch can be damaged before it has
// its final names. So an epoch all of whose slots are there stays, and so does one that has its K files and
// among them a final name (given only after all slots were), and a file that is not what its name says.
bool never_finished(Storage& storage, const SharedEpochFiles& files) {
    struct Found {
        std::set<uint32_t> indexes;
        bool finished = false, unfinished = false, begun = false;
    };
    std::map<uint32_t, Found> by_count;
    for (const auto& file : files.files) {
        const auto writing = look_at(storage, file);
        if (writing == Writing::foreign) return false;
        auto& found = by_count[file.name.count];
        found.indexes.insert(file.name.index);
        (file.name.unfinished ? found.unfinished : found.finished) = true;
        found.begun |= writing == Writing::begun;
    }
    return std::all_of(by_count.begin(), by_count.end(), [](const auto& entry) {
        const auto& found = entry.second;
        const bool missing = found.indexes.size() < entry.first;
        return found.unfinished && (missing || (found.begun && !found.finished));
    });
}

// Whether an earlier run's attempt at the same epoch is there. `epochs` ascends by key.
bool replaces_another(const std::vector<SharedEpochFiles>& epochs, size_t i) {
    return i > 0 && epochs[i - 1].key.epoch == epochs[i].key.epoch;
}

Status remove_if_there(Storage& storage, const std::string& path) {
    auto removed = storage.remove(path);
    return removed.code() == Code::not_found ? Status() : removed;
}

// Finished names go first: as long as an unfinished one is left, the rest is known to be a leftover. When
// there is none, one is made. A power cut may bring back any removal that was not synced, and the marker must
// not be the only one that stays removed: so the directory is synced before it goes.
Status remove_files(Storage& storage, const std::string& directory, SharedEpochFiles files) {
    if (files.files.empty()) return {};
    if (!has_unfinished(files)) {
        auto& marker = files.files.back();
        auto name = marker.name;
        name.unfinished = true;
        const auto path = join_path(directory, to_string(name));
        TAILRACE_TRY(storage.rename(marker.path, path));
        TAILRACE_TRY(storage.sync_directory(directory));
        marker.path = path;
        marker.name = name;
    }
    for (const bool unfinished : {false, true}) {
        for (const auto& file : files.files)
            if (file.name.unfinished == unfinished) TAILRACE_TRY(remove_if_there(storage, file.path));
        TAILRACE_TRY(storage.sync_directory(directory));
    }
    return {};
}

// A complete epoch whose writer died before its last rename may have died before its last sync, too: what was
// found valid is made durable before anybody counts on it.
Status make_durable(Storage& storage, const SharedEpochFiles& files) {
    for (const auto& file : files.files) {
        if (!file.name.unfinished) continue;
        TAILRACE_ASSIGN(const auto opened, storage.open(file.path, {Access::write, DirectIo::off}));
        TAILRACE_TRY(opened->sync());
    }
    return {};
}

// And the names of its `file_count` files catch up.
Status finish_names(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                    size_t file_count) {
    for (const auto& file : files.files) {
        if (!file.name.unfinished || file.name.count != file_count) continue;
        const bool both = std::any_of(files.files.begin(), files.files.end(), [&](const auto& other) {
            return other.name.index == file.name.index && other.name.count == file_count &&
                   !other.name.unfinished;
        });
        if (both) {
            TAILRACE_TRY(remove_if_there(storage, file.path));
            continue;
        }
        auto name = file.name;
        name.unfinished = false;
        TAILRACE_TRY(storage.rename(file.path, join_path(directory, to_string(name))));
    }
    return storage.sync_directory(directory);
}

}  // namespace

std::vector<LocalEpoch> choose_recoveries(const std::vector<LocalEpoch>& captured,
                                          const std::vector<EpochKey>& committed,
                                          const std::vector<EpochKey>& unclean) {
    std::vector<EpochKey> whole = committed;
    for (const auto& epoch : captured)
        if (epoch.complete()) whole.push_back(epoch.key);
    const Lineage lineage(whole);
    std::optional<EpochKey> newest_committed;
    for (const auto& key : committed)
        if (!lineage.left_behind(key) && (!newest_committed || *newest_committed < key))
            newest_committed = key;
    std::vector<LocalEpoch> candidates;
    for (const auto& epoch : captured)
        if (epoch.complete() && !lineage.left_behind(epoch.key) &&
            (!newest_committed || *newest_committed < epoch.key) && !contains(unclean, epoch.key))
            candidates.push_back(epoch);
    std::sort(candidates.begin(), candidates.end(),
              [](const LocalEpoch& a, const LocalEpoch& b) { return a.key < b.key; });
    std::vector<LocalEpoch> chosen;
    for (size_t i = 0; i < candidates.size(); ++i)
        if (candidates[i].for_shared || i + 1 == candidates.size()) chosen.push_back(candidates[i]);
    return chosen;
}

Status check_restorable(Storage& storage, const SharedEpoch& epoch) {
    TAILRACE_ASSIGN(const auto reader,
                    EpochReader::open(storage, storage, {epoch.key, epoch.rank_count, {}, epoch}));
    TAILRACE_ASSIGN(const auto arrays, reader->arrays());
    for (const auto& array : arrays)
        if (array.fault && array.fault->unrestorable())
            return Status(Code::corrupt, fmt::format("{}: {}", to_string(epoch.key), array.fault->sentence));
    return {};
}

namespace {

void finish_names_or_warn(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                          size_t file_count) {
    auto named = finish_names(storage, directory, files, file_count);
    if (!named.ok())
        log(LogLevel::warning, "{} is complete, but its files keep their unfinished names: {}",
            to_string(files.key), named.message());
}

// For what would replace others, or count as one of the newest.
bool is_restorable(Storage& storage, const std::string& directory, const SharedEpoch& epoch) {
    const Status restorable = check_restorable(storage, epoch);
    if (!restorable.ok())
        log(LogLevel::warning, "{} in {} does not count when older epochs are removed: {}",
            to_string(epoch.key), directory, restorable.message());
    return restorable.ok();
}

// Removes an epoch that was never finished; says whether nothing of it is left.
bool removed_or_warned(Storage& storage, const std::string& directory, const SharedEpochFiles& files) {
    log(LogLevel::info, "{} was never finished and is removed from {}", to_string(files.key), directory);
    auto removed = remove_files(storage, directory, files);
    if (!removed.ok())
        log(LogLevel::warning, "{} was never finished, and its files could not all be removed: {}",
            to_string(files.key), removed.message());
    return removed.ok();
}

}  // namespace

Result<SharedInventory> clean_shared(Storage& storage, const std::string& directory, const std::string& job) {
    TAILRACE_ASSIGN(const auto epochs, list_shared(storage, directory, job));
    SharedInventory inventory;
    auto left_as_it_is = [&](const SharedEpochFiles& files, const Status& why) {
        log(LogLevel::warning, "{} in {} cannot be used and is left as it is: {}", to_string(files.key),
            directory, why.message());
        if (has_unfinished(files) || why.code() != Code::not_found) inventory.unclean.push_back(files.key);
    };
    // 1. What has unfinished names is looked into, and named or removed.
    std::set<EpochKey> loaded;
    std::vector<EpochKey> whole;
    for (const auto& files : epochs) {
        inventory.greatest_run = count_run(inventory.greatest_run, files.key.run);
        if (files.key.run > greatest_possible_run)
            log(LogLevel::warning, "{} cannot be of run {}, and is passed over when runs are counted",
                files.files.front().path, files.key.run);
        if (has_unfinished(files)) {
            const auto epoch = load_shared_epoch(storage, files);
            if (epoch.ok()) {
                if (const Status durable = make_durable(storage, files); !durable.ok()) {
                    left_as_it_is(files, durable);
                    continue;
                }
                finish_names_or_warn(storage, directory, files, epoch->paths.size());
                loaded.insert(files.key);
                whole.push_back(files.key);
            } else if (!never_finished(storage, files)) {
                left_as_it_is(files, epoch.status());
            } else if (!removed_or_warned(storage, directory, files)) {
                inventory.unclean.push_back(files.key);
            }
        }
    }
    // 2. The newest that is sound. Older ones with final names throughout need no look, unless they would
    //    replace an earlier attempt: they matter only to a restore.
    for (const auto& key : whole_epochs(storage, epochs, whole, {})) whole.push_back(key);
    const Lineage lineage(whole);
    std::vector<size_t> order;
    for (size_t i = 0; i < epochs.size(); ++i) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return lineage.goes_first(epochs[a].key, epochs[b].key); });
    std::vector<EpochAge> ages;
    for (const size_t i : order) {
        const auto& files = epochs[i];
        if (has_unfinished(files) && !loaded.contains(files.key)) continue;
        const bool replaces = replaces_another(epochs, i);
        bool complete = loaded.contains(files.key), restorable = true;
        if (!replaces && !complete && inventory.newest_committed) {
            complete = looks_complete(files);
        } else if (replaces || !complete) {
            const auto epoch = load_shared_epoch(storage, files);
            complete = epoch.ok();
            if (!complete) left_as_it_is(files, epoch.status());
            if (complete && replaces) restorable = is_restorable(storage, directory, *epoch);
        }
        ages.push_back({files.key, complete, 0, restorable});
        if (!complete) continue;
        if (!inventory.newest_committed) inventory.newest_committed = files.key;
        inventory.committed.push_back(files.key);
    }
    // 3. Attempts that a later run's has replaced go.
    for (const auto& key : choose_removals(ages, {})) {
        std::erase(inventory.committed, key);
        auto removed = remove_shared_epoch(storage, directory, job, key);
        if (!removed.ok())
            log(LogLevel::warning, "{} was saved again by a later run, but could not be removed: {}",
                to_string(key), removed.message());
    }
    return inventory;
}

Status name_shared_epoch(Storage& storage, const std::string& directory, const std::string& job, EpochKey key,
                         uint32_t file_count) {
    for (uint32_t k = 0; k < file_count; ++k) {
        const SharedFileName name{job, key, k, file_count, false};
        SharedFileName unfinished = name;
        unfinished.unfinished = true;
        const auto path = join_path(directory, to_string(name));
        const auto renamed = storage.rename(join_path(directory, to_string(unfinished)), path);
        if (renamed.code() == Code::not_found && storage.open(path, {Access::read, DirectIo::off}).ok())
            continue;
        TAILRACE_TRY(renamed);
    }
    return storage.sync_directory(directory);
}

Status remove_shared_epoch(Storage& storage, const std::string& directory, const std::string& job,
                           EpochKey key) {
    TAILRACE_ASSIGN(auto epochs, list_shared(storage, directory, job));
    for (auto& files : epochs)
        if (files.key == key) return remove_files(storage, directory, std::move(files));
    return {};
}

Status apply_shared_retention(Storage& storage, const std::string& directory, const std::string& job,
                              uint32_t keep_shared, std::vector<EpochKey>& known_complete) {
    TAILRACE_ASSIGN(const auto epochs, list_shared(storage, directory, job));
    RetentionRule rule;
    if (keep_shared > 0) rule.keep_newest = keep_shared;
    // Whoever counts as one of the newest, or replaces an earlier attempt, must have proved to be complete;
    // beyond them the names suffice.
    std::vector<EpochAge> ages;
    std::set<uint64_t> proved;  // epochs
    const Lineage lineage(whole_epochs(storage, epochs, {}, known_complete));
    for (size_t i = epochs.size(); i-- > 0;) {
        const auto& files = epochs[i];
        bool complete = looks_complete(files), restorable = true;
        const bool must_prove = proved.size() <= keep_shared || replaces_another(epochs, i);
        if (complete && must_prove && !contains(known_complete, files.key)) {
            const auto epoch = load_shared_epoch(storage, files);
            complete = epoch.ok();
            restorable = complete && is_restorable(storage, directory, *epoch);
            if (restorable) known_complete.push_back(files.key);
        }
        if (complete && restorable && !lineage.left_behind(files.key)) proved.insert(files.key.epoch);
        ages.push_back({files.key, complete, 0, restorable});
    }
    for (const auto& key : choose_removals(ages, rule)) {
        TAILRACE_TRY(remove_shared_epoch(storage, directory, job, key));
        std::erase(known_complete, key);
        log(LogLevel::info, "{} is removed from {}: newer ones are complete", to_string(key), directory);
    }
    return {};
}

}  // namespace tailrace
