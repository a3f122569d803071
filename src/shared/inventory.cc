#include "shared/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/log.h"
#include "catalog/catalog.h"
#include "catalog/lineage.h"
#include "shared/epoch_files.h"
#include "shared/originals.h"
#include "shared/retention.h"
#include "shared/takeover.h"

namespace tailrace::internal {

namespace {

// What a single file shows of its writing. `foreign`: its header says that it is another file than
// its name says, or it cannot be read.
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
        if (!is_damage(slot.status())) return Writing::foreign;
        writing = Writing::begun;
    }
    return writing;
}

bool any_foreign(Storage& storage, const SharedEpochFiles& files) {
    return std::any_of(files.files.begin(), files.files.end(), [&](const SharedFileEntry& file) {
        return look_at(storage, file) == Writing::foreign;
    });
}

// Whether these files, which are no complete epoch, are the remains of a flush or a removal that
// was cut short. Names alone do not tell: somebody may have changed them, and a committed epoch can
// be damaged before it has its final names. So three kinds of epochs stay:
//   - those with a file that is not what its name says;
//   - those all of whose slots are there;
//   - those that have all K files and a final name among them, because a final name is given only
//     when all slots are there.
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

// Removes an epoch that was never finished. Returns whether all of it is gone.
bool removed_or_warned(Storage& storage, const std::string& directory, const SharedEpochFiles& files) {
    log(LogLevel::info, "{} was never finished and is removed from {}", to_string(files.key), directory);
    auto removed = remove_epoch_files(storage, directory, files);
    if (!removed.ok())
        log(LogLevel::warning, "{} was never finished, and its files could not all be removed: {}",
            to_string(files.key), removed.message());
    return removed.ok();
}

// One pass over the shared directory, which fills the inventory.
class Cleaning {
  public:
    Cleaning(Storage& storage, const std::string& directory, const std::string& job,
             std::vector<SharedEpochFiles> epochs)
        : storage_(storage), directory_(directory), job_(job), epochs_(std::move(epochs)) {}

    SharedInventory run() {
        for (const auto& files : epochs_) {
            count(files);
            if (has_unfinished(files)) finish_or_remove(files);
        }
        find_committed();
        remove_replaced();
        return std::move(inventory_);
    }

  private:
    void count(const SharedEpochFiles& files) {
        inventory_.greatest_run = count_run(inventory_.greatest_run, files.key.run);
        if (files.key.run > greatest_possible_run)
            log(LogLevel::warning, "{} cannot be of run {}, and is passed over when runs are counted",
                files.files.front().path, files.key.run);
    }

    void left_as_it_is(const SharedEpochFiles& files, const Status& why) {
        const bool damaged = is_damage(why) && !any_foreign(storage_, files);
        log(LogLevel::warning, "{} in {} cannot be used and is left as it is{}: {}", to_string(files.key),
            directory_, damaged ? ", unless all of it is still captured" : "", why.message());
        if (!damaged) inventory_.unclean.push_back(files.key);
    }

    // Opens an epoch with unfinished names, and either gives it its final names or removes it.
    void finish_or_remove(const SharedEpochFiles& files) {
        const auto epoch = load_shared_epoch(storage_, files);
        if (epoch.ok()) {
            if (const Status durable = make_epoch_durable(storage_, files); !durable.ok())
                return left_as_it_is(files, durable);
            finish_names_or_warn(storage_, directory_, files, epoch->paths.size());
            loaded_.insert(files.key);
        } else if (!never_finished(storage_, files)) {
            left_as_it_is(files, epoch.status());
        } else if (!removed_or_warned(storage_, directory_, files)) {
            inventory_.unclean.push_back(files.key);
        }
    }

    // Finds the newest sound epoch. An older epoch whose names are all final is not opened, because
    // only a restore needs to know whether it is sound. The exception is an epoch that would
    // replace an earlier attempt.
    void find_committed() {
        std::vector<EpochKey> whole(loaded_.begin(), loaded_.end());
        for (const auto& key : whole_epochs(storage_, epochs_, whole, {})) whole.push_back(key);
        const Lineage lineage(whole);
        std::vector<size_t> order(epochs_.size());
        std::iota(order.begin(), order.end(), size_t{0});
        std::sort(order.begin(), order.end(),
                  [&](size_t a, size_t b) { return lineage.goes_first(epochs_[a].key, epochs_[b].key); });
        for (const size_t i : order) {
            const auto& files = epochs_[i];
            if (has_unfinished(files) && !loaded_.contains(files.key)) continue;
            ages_.push_back(age_of(i));
            if (!ages_.back().complete) continue;
            if (!inventory_.newest_committed) inventory_.newest_committed = files.key;
            inventory_.committed.push_back(files.key);
        }
    }

    EpochAge age_of(size_t i) {
        const auto& files = epochs_[i];
        const bool replaces = replaces_another(epochs_, i);
        bool complete = loaded_.contains(files.key), restorable = true;
        if (!replaces && !complete && inventory_.newest_committed) {
            complete = looks_complete(files);
        } else if (replaces || !complete) {
            const auto epoch = load_shared_epoch(storage_, files);
            complete = epoch.ok();
            if (!complete) left_as_it_is(files, epoch.status());
            if (complete && replaces) restorable = is_restorable(storage_, directory_, *epoch);
        }
        return {files.key, complete, 0, restorable};
    }

    // Removes attempts that a later run's attempt has replaced.
    void remove_replaced() {
        for (const auto& key : choose_removals(ages_, {})) {
            std::erase(inventory_.committed, key);
            auto removed = remove_shared_epoch(storage_, directory_, job_, key);
            if (!removed.ok())
                log(LogLevel::warning, "{} was saved again by a later run, but could not be removed: {}",
                    to_string(key), removed.message());
        }
    }

    Storage& storage_;
    const std::string& directory_;
    const std::string& job_;
    const std::vector<SharedEpochFiles> epochs_;
    SharedInventory inventory_;
    std::set<EpochKey> loaded_;  // complete epochs that had unfinished names
    std::vector<EpochAge> ages_;
};

}  // namespace

Result<SharedInventory> clean_shared(Storage& storage, const std::string& directory, const std::string& job) {
    TAILRACE_TRY(clear_takeovers(storage, directory, job));
    TAILRACE_ASSIGN(auto epochs, list_shared(storage, directory, job));
    auto inventory = Cleaning(storage, directory, job, std::move(epochs)).run();
    settle_originals({storage, directory, job});
    return inventory;
}

Status remove_for_rewrite(Storage& storage, const std::string& directory, const std::string& job,
                          EpochKey key, uint64_t run_uid) {
    TAILRACE_ASSIGN(const auto found, find_shared(storage, directory, job, key));
    if (!found) return remove_originals({storage, directory, job}, key);
    const Status loaded = load_shared_epoch(storage, *found).status();
    if (loaded.ok())
        return Status(Code::already_exists, fmt::format("{} is complete in {}", to_string(key), directory));
    if (!is_damage(loaded)) return loaded;
    for (const auto& file : found->files) {
        const auto head = read_shared_head(storage, file.path);
        const bool of_others = head.ok() && head->header.run_uid != run_uid;
        if (of_others || look_at(storage, file) == Writing::foreign)
            return Status(Code::failed_state,
                          fmt::format("{} is not a file that this program has written, and is left as it is",
                                      file.path));
    }
    log(LogLevel::warning, "{} is removed from {} and written again from its captured parts: {}",
        to_string(key), directory, loaded.message());
    return remove_epoch_files(storage, directory, *found);
}

}  // namespace tailrace::internal
