// CreditBook: which follower a leader puts its next free buffer aside for. Pure.
//
// The follower with the fewest open credits comes first, equal ones in turn, and no follower has more than
// most_open. So a slow follower, which leaves credits open, is asked less often and never holds all buffers,
// and a fast one is never kept waiting by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tailrace::internal {

class CreditBook {
  public:
    // Two chunks on their way and two credits behind them hide a follower's reading and the credits' travel.
    static constexpr uint32_t most_open = 4;

    // `chunks`: what the follower has in all. It may hand some to other leaders.
    void add(int node, uint64_t chunks);

    // The follower whose turn it is; nothing when none may get a credit now.
    std::optional<int> next();
    void grant(int node);
    void take_chunk(int node);
    void take_empty(int node);  // the follower has nothing more

    bool may_grant() const;      // next() would name one
    bool all_exhausted() const;  // every follower has said so or sent all it has, and no credit is open
    uint64_t open() const;

  private:
    struct Follower {
        int node = 0;
        uint64_t chunks = 0;  // not yet granted: no more credits than this make sense
        uint32_t open_credits = 0;
        bool empty = false;
        bool wants() const { return !empty && chunks > 0 && open_credits < most_open; }
    };
    Follower& find(int node);

    std::vector<Follower> followers_;
    size_t turn_ = 0;  // where the search for equals starts
};

}  // namespace tailrace::internal
