#include "catalog/lineage.h"

#include <algorithm>
#include <tuple>

namespace tailrace::internal {

Lineage::Lineage(const std::vector<EpochKey>& whole) {
    for (const auto& key : whole) {
        const auto [run, fresh] = least_from_.try_emplace(key.run, key.epoch);
        if (!fresh) run->second = std::min(run->second, key.epoch);
    }
    uint64_t least = UINT64_MAX;
    for (auto run = least_from_.rbegin(); run != least_from_.rend(); ++run)
        least = run->second = std::min(run->second, least);
}

bool Lineage::left_behind(EpochKey key) const {
    const auto later = least_from_.upper_bound(key.run);
    return later != least_from_.end() && later->second <= key.epoch;
}

bool Lineage::goes_first(EpochKey a, EpochKey b) const {
    return std::tuple(left_behind(a), b) < std::tuple(left_behind(b), a);
}

}  // namespace tailrace::internal
