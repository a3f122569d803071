#include "session/recovery.h"

#include <algorithm>
#include <optional>

#include "base/invariant.h"
#include "catalog/lineage.h"

namespace tailrace::internal {

namespace {

bool contains(const std::vector<EpochKey>& keys, EpochKey key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
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
    for (size_t i = 0; i < chosen.size(); ++i) {
        INVARIANT(chosen[i].complete() && (i == 0 || chosen[i - 1].key < chosen[i].key));
        // A committed epoch must not be written again.
        INVARIANT(!contains(committed, chosen[i].key) && !contains(unclean, chosen[i].key));
    }
    return chosen;
}

}  // namespace tailrace::internal
