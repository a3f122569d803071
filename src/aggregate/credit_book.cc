#include "aggregate/credit_book.h"

#include <algorithm>

#include "base/invariant.h"

namespace tailrace::internal {

void CreditBook::add(int node, uint64_t chunks) {
    followers_.push_back({node, chunks, 0, false});
}

std::optional<int> CreditBook::next() {
    const Follower* best = nullptr;
    size_t best_place = 0;
    for (size_t i = 0; i < followers_.size(); ++i) {
        const size_t place = (turn_ + i) % followers_.size();
        const Follower& candidate = followers_[place];
        if (!candidate.wants()) continue;
        if (best == nullptr || candidate.open_credits < best->open_credits) {
            best = &candidate;
            best_place = place;
        }
    }
    if (best == nullptr) return std::nullopt;
    turn_ = best_place + 1;
    return best->node;
}

CreditBook::Follower& CreditBook::find(int node) {
    auto found = std::find_if(followers_.begin(), followers_.end(),
                              [node](const Follower& follower) { return follower.node == node; });
    INVARIANT(found != followers_.end());
    return *found;
}

void CreditBook::grant(int node) {
    Follower& follower = find(node);
    INVARIANT(follower.chunks > 0 && follower.open_credits < max_open);
    ++follower.open_credits;
    --follower.chunks;
}

void CreditBook::take_chunk(int node) {
    Follower& follower = find(node);
    INVARIANT(follower.open_credits > 0);
    --follower.open_credits;
}

void CreditBook::take_empty(int node) {
    take_chunk(node);
    find(node).empty = true;
}

bool CreditBook::may_grant() const {
    return std::any_of(followers_.begin(), followers_.end(), [](const Follower& f) { return f.wants(); });
}

bool CreditBook::all_exhausted() const {
    return std::all_of(followers_.begin(), followers_.end(), [](const Follower& follower) {
        return follower.open_credits == 0 && (follower.empty || follower.chunks == 0);
    });
}

uint64_t CreditBook::open() const {
    uint64_t sum = 0;
    for (const Follower& follower : followers_) sum += follower.open_credits;
    return sum;
}

}  // namespace tailrace::internal
