// CreditBook: decides which follower a leader gives its next free buffer to. Pure.
//
// The follower with the fewest open credits comes first. Followers with equally many take turns,
// and none has more than max_open. So a slow follower, which leaves credits open, is asked less
// often. It never holds all buffers, and fast followers never wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tailrace::internal {

class CreditBook {
  public:
    // Two chunks on their way hide the time for reading, and two credits behind them that of the
    // credits' travel.
    static constexpr uint32_t max_open = 4;

    // `chunks`: how many chunks the follower has in all. It may send some of them to other leaders.
    void add(int node, uint64_t chunks);

    // The follower whose turn it is. Empty when none may get a credit now.
    std::optional<int> next();
    void grant(int node);
    void take_chunk(int node);
    void take_empty(int node);  // the follower has nothing more

    bool may_grant() const;  // whether next() would name a follower
    // Whether no credit is open, and every follower is empty or has sent all its chunks.
    bool all_exhausted() const;
    uint64_t open() const;  // how many credits are open

  private:
    struct Follower {
        int node = 0;
        uint64_t chunks = 0;  // chunks without a credit; more credits than this would be useless
        uint32_t open_credits = 0;
        bool empty = false;
        bool wants() const { return !empty && chunks > 0 && open_credits < max_open; }
    };
    Follower& find(int node);

    std::vector<Follower> followers_;
    size_t turn_ = 0;  // where the search starts, so that equal followers take turns
};

}  // namespace tailrace::internal
