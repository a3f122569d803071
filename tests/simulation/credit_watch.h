// CreditWatch: follows the credits of a job from the messages and transfers that cross its network, and says
// what does not add up. It knows nothing of the ranks' own books.
//
// For each leader (a rank: that of its node's agent):
//   - A credit that it gives is not open already, and no follower has more than CreditBook::max_open of them.
//   - A chunk, or the word that there is none, answers a credit that is open, and closes it.
//   - A chunk fits into a buffer.
//   - Open credits and receives under way, each of which has a buffer, are no more than there are buffers.
//
// Not thread-safe: under a VirtualExecutor one task runs at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include "format/epoch_key.h"

namespace tailrace::internal::testing_support {

class CreditWatch {
  public:
    struct Bounds {
        uint64_t buffers = 0, buffer_bytes = 0;  // of each leader
    };
    // `broken` hears a sentence for each thing that is wrong.
    CreditWatch(Bounds bounds, std::function<void(const std::string&)> broken);

    void posted(int source, int target, std::span<const std::byte> message);
    void receive_begins(int rank, uint32_t tag);
    void receive_ends(int rank, uint32_t tag);

    static bool gives_credit(std::span<const std::byte> message);

    // Credits without an answer.
    uint64_t open() const;

  private:
    struct Leader {
        std::map<int, std::set<uint32_t>> open;  // credits, by the rank that has them
        uint64_t open_count = 0, receives = 0;
    };
    void granted(int leader, int follower, uint32_t credit);
    void answered(int leader, int follower, uint32_t credit, uint64_t bytes);
    void check_buffers(int leader);

    const Bounds bounds_;
    const std::function<void(const std::string&)> broken_;
    std::map<int, Leader> leaders_;
};

}  // namespace tailrace::internal::testing_support
