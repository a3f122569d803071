// RecordBook: puts together what the root hears of each epoch (captures, flushes, its end) into one
// record. Pure: no threads, clocks or files.
//
// A record is whole when the epoch has ended and every node has reported what it had to do: its flush,
// if the epoch was committed, and its protection, if that was asked for. A failed epoch's record is
// whole at its end, because not every node has begun with it. The number of open records is bounded:
// beyond max_open epochs the oldest is handed out as it is.
#pragma once

#include <map>
#include <vector>

#include "flush/recent_keys.h"
#include "record/records.h"

namespace tailrace::internal {

class RecordBook {
  public:
    static constexpr size_t max_open = 64;
    explicit RecordBook(size_t nodes) : nodes_(nodes) {}

    // One node's captures. `to_protect`: every node will say how it has protected the epoch.
    void captured(EpochKey key, const CaptureNumbers& numbers, bool to_protect = false);
    void node_protected(EpochKey key, ProtectionRecord node);
    void flushed(EpochKey key, NodeRecord node);
    // Takes everything from `ended` except captures, protections and nodes.
    void ended(EpochRecord ended);

    // The whole records, in the order in which they became whole.
    std::vector<EpochRecord> take_whole() { return std::exchange(whole_, {}); }
    // Also the records of ended epochs that still miss a node, for when no more reports can come.
    std::vector<EpochRecord> take_rest();
    bool waiting() const;  // whether there is such a record

  private:
    struct Open {
        EpochRecord record;
        bool ended = false;
        bool to_protect = false;
    };
    Open* find(EpochKey key);
    void check(EpochKey key);
    void give_out(std::map<EpochKey, Open>::iterator open);

    const size_t nodes_;
    std::map<EpochKey, Open> open_;
    RecentKeys handed_out_;
    std::vector<EpochRecord> whole_;
};

}  // namespace tailrace::internal
