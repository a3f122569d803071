#include "shared/inventory.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/log.h"
#include "format/catalog.h"
#include "format/lineage.h"
#include "shared/epoch_files.h"
#include "shared/retention.h"

namespace tailrace {

namespace {

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

void finish_names_or_warn(Storage& storage, const std::string& directory, const SharedEpochFiles& files,
                          size_t file_count) {
    auto named = finish_epoch_names(storage, directory, files, file_count);
    if (!named.ok())
        log(LogLevel::warning, "{} is complete, but its files keep their unfinished names: {}",
            to_string(files.key), named.message());
}

// Removes an epoch that was never finished; says whether nothing of it is left.
bool removed_or_warned(Storage& storage, const std::string& directory, const SharedEpochFiles& files) {
    log(LogLevel::info, "{} was never finished and is removed from {}", to_string(files.key), directory);
    auto removed = remove_epoch_files(storage, directory, files);
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
                if (const Status durable = make_epoch_durable(storage, files); !durable.ok()) {
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

}  // namespace tailrace
