#include "shared/pruning.h"

#include <algorithm>
#include <optional>

#include "base/invariant.h"
#include "shared/retention.h"

namespace tailrace::internal {

namespace {

using Epochs = std::vector<const JudgedEpoch*>;

bool contains(const std::vector<EpochKey>& keys, EpochKey key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool removes_something(const RetentionRule& rule) {
    return rule.keep_newest || rule.older_than_seconds;
}

// An epoch that cannot be restored must not push out one that can.
bool is_restorable(Storage& storage, const JudgedEpoch& epoch, const PruneSteps& steps) {
    const Status restorable = check_restorable(storage, *epoch.shared);
    if (!restorable.ok()) steps.tell("not counted: " + restorable.message());
    return restorable.ok();
}

std::vector<EpochAge> ages_of(Storage& storage, const Epochs& epochs, const PruneRule& rule,
                              const PruneSteps& steps) {
    std::vector<EpochAge> ages;
    for (const JudgedEpoch* epoch : epochs) {
        if (!epoch->found.files) continue;
        const bool must_prove = removes_something(rule.retention) && epoch->shared;
        ages.push_back({epoch->found.key, epoch->completeness == Completeness::complete, epoch->age_seconds(),
                        !must_prove || is_restorable(storage, *epoch, steps)});
    }
    return ages;
}

// The newest epoch that counts and would stay; null if there is none.
const JudgedEpoch* newest_to_stay(const Epochs& epochs, const std::vector<EpochAge>& ages,
                                  const std::vector<EpochKey>& removals) {
    const JudgedEpoch* newest = nullptr;
    for (const JudgedEpoch* epoch : epochs) {
        if (!epoch->shared || epoch->left_behind || contains(removals, epoch->found.key)) continue;
        const bool counts = std::any_of(ages.begin(), ages.end(), [&](const EpochAge& age) {
            return age.key == epoch->found.key && age.complete && age.restorable;
        });
        if (counts && (newest == nullptr || newest->found.key < epoch->found.key)) newest = epoch;
    }
    return newest;
}

// Marks what turns out to be damaged in `ages`.
std::vector<EpochKey> choose_soundly(const Epochs& epochs, std::vector<EpochAge>& ages,
                                     const RetentionRule& rule, const PruneSteps& steps) {
    while (true) {
        auto removals = choose_removals(ages, rule);
        if (removals.empty()) return removals;
        const JudgedEpoch* newest = newest_to_stay(epochs, ages, removals);
        if (newest == nullptr) return removals;
        INVARIANT(newest->completeness == Completeness::complete);
        const Status sound = steps.read_every_byte(*newest);
        if (sound.ok()) return removals;
        steps.tell(to_string(newest->found.key) + " is damaged and not counted: " + sound.message());
        for (EpochAge& age : ages)
            if (age.key == newest->found.key) age.restorable = false;
    }
}

// An epoch that has lost some files, or never had all of them, and that the rule would remove if it
// were whole. Nobody can use the files that are left.
bool is_remainder(const JudgedEpoch& epoch, const std::vector<EpochAge>& ages, const RetentionRule& rule) {
    if (epoch.completeness != Completeness::incomplete) return false;
    if (rule.older_than_seconds && epoch.age_seconds() <= *rule.older_than_seconds) return false;
    const auto newer = std::count_if(ages.begin(), ages.end(), [&](const EpochAge& other) {
        return other.complete && other.restorable && epoch.found.key < other.key;
    });
    return static_cast<uint64_t>(newer) >= std::max<uint64_t>(1, rule.keep_newest.value_or(1));
}

}  // namespace

std::vector<Pruned> choose_pruned(Storage& storage, const Epochs& epochs, const PruneRule& rule,
                                  const PruneSteps& steps) {
    const bool by_rule = removes_something(rule.retention);
    auto ages = ages_of(storage, epochs, rule, steps);
    std::vector<EpochKey> removals;
    if (by_rule) removals = choose_soundly(epochs, ages, rule.retention, steps);
    std::vector<Pruned> pruned;
    for (size_t i = 0; i < epochs.size(); ++i) {
        const JudgedEpoch& epoch = *epochs[i];
        if (!epoch.found.files) continue;
        if (contains(removals, epoch.found.key))
            pruned.push_back({i, epoch.replaced      ? "replaced by a later run"
                                 : epoch.left_behind ? "left behind by a later run"
                                                     : "older than what is kept"});
        else if (by_rule && rule.nobody_writes && is_remainder(epoch, ages, rule.retention))
            pruned.push_back({i, "incomplete, older than what is kept"});
        else if (rule.leftovers && epoch.completeness == Completeness::incomplete)
            pruned.push_back({i, "incomplete"});
    }
    return pruned;
}

}  // namespace tailrace::internal
