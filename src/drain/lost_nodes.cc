#include "drain/lost_nodes.h"

#include <algorithm>

namespace tailrace::internal {

namespace {

// Epochs that have been forgotten begin anew.
constexpr size_t most_shares = 4096;

}  // namespace

bool LostNodes::note_missing(const ShareId& share, Time now) {
    if (missing_.size() >= most_shares && !missing_.contains(share)) missing_.erase(missing_.begin());
    const auto& missing = missing_.try_emplace(share, Missing{now}).first->second;
    return !missing.given_up && now - missing.since >= patience_;
}

void LostNodes::failed(const ShareId& share, bool for_good, Time now) {
    missing_[share] = {now, for_good};
}

bool LostNodes::given_up(const ShareId& share) const {
    const auto missing = missing_.find(share);
    return missing != missing_.end() && missing->second.given_up;
}

std::optional<LostNodes::Time> LostNodes::next(Time now) const {
    std::optional<Time> next;
    for (const auto& [share, missing] : missing_) {
        const Time over = missing.since + patience_;
        if (!missing.given_up && over > now) next = std::min(next.value_or(over), over);
    }
    return next;
}

}  // namespace tailrace::internal
