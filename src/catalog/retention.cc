// Retention: which complete epochs a rule removes. Pure.
#include <algorithm>

#include "base/invariant.h"
#include "catalog/catalog.h"
#include "catalog/lineage.h"

namespace tailrace::internal {

std::vector<EpochKey> choose_removals(const std::vector<EpochAge>& epochs, const RetentionRule& rule) {
    std::vector<EpochAge> complete;
    for (const auto& epoch : epochs)
        if (epoch.complete && epoch.restorable) complete.push_back(epoch);
    std::sort(complete.begin(), complete.end(),
              [](const EpochAge& a, const EpochAge& b) { return b.key < a.key; });

    std::vector<EpochKey> keys;
    for (const auto& attempt : complete) keys.push_back(attempt.key);
    const Lineage lineage(keys);

    std::vector<EpochKey> removals;
    uint64_t epochs_seen = 0;  // epochs, newest first, each counted once
    for (size_t i = 0; i < complete.size(); ++i) {
        const auto& attempt = complete[i];
        bool replaced = i > 0 && complete[i - 1].key.epoch == attempt.key.epoch;
        const bool left_behind = lineage.left_behind(attempt.key);
        if (!replaced && !left_behind) ++epochs_seen;
        // The newest stays, whatever the rule says, and so does the newest that is not left behind.
        if (i == 0 || (!replaced && !left_behind && epochs_seen == 1)) continue;
        // An epoch left behind is of no use any more once the run that left it behind has passed
        // it.
        const bool passed = left_behind && epochs_seen > 0;
        const bool too_many =
            rule.keep_newest && (passed || (!left_behind && epochs_seen > *rule.keep_newest));
        bool by_age_alone = !rule.keep_newest && rule.older_than_seconds;
        bool old_enough = !rule.older_than_seconds || attempt.age_seconds > *rule.older_than_seconds;
        if ((replaced || too_many || by_age_alone) && old_enough) removals.push_back(attempt.key);
    }
    for (const auto& attempt : epochs) {
        if (!attempt.complete || attempt.restorable || (!rule.keep_newest && !rule.older_than_seconds))
            continue;
        const auto newer =
            static_cast<uint64_t>(std::count_if(complete.begin(), complete.end(), [&](const EpochAge& other) {
                return attempt.key < other.key;
            }));
        const bool old_enough = !rule.older_than_seconds || attempt.age_seconds > *rule.older_than_seconds;
        if (newer >= std::max<uint64_t>(1, rule.keep_newest.value_or(1)) && old_enough)
            removals.push_back(attempt.key);
    }
    std::sort(removals.begin(), removals.end());
    // The newest that can be restored stays, whatever the rule says.
    INVARIANT(complete.empty() ||
              !std::binary_search(removals.begin(), removals.end(), complete.front().key));
    COSTLY_INVARIANT(std::adjacent_find(removals.begin(), removals.end()) == removals.end());
    return removals;
}

}  // namespace tailrace::internal
