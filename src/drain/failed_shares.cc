#include "drain/failed_shares.h"

#include <algorithm>

namespace tailrace::internal {

namespace {

// A share that has been forgotten begins anew.
constexpr size_t most_shares = 4096;

}  // namespace

void FailedShares::failed(const ShareId& share, const ShareFailure& failure, Time now) {
    if (rests_.size() >= most_shares && !rests_.contains(share)) rests_.erase(rests_.begin());
    auto& rest = rests_[share];
    rest.failure = failure;
    rest.length = std::clamp(2 * rest.length, first_rest, longest_rest);
    rest.until = now + rest.length;
}

void FailedShares::end_rests() {
    for (auto& [share, rest] : rests_) rest.until = Time();
}

std::optional<ShareFailure> FailedShares::resting(const ShareId& share, Time now) const {
    const auto rest = rests_.find(share);
    if (rest == rests_.end() || now >= rest->second.until) return std::nullopt;
    return rest->second.failure;
}

}  // namespace tailrace::internal
