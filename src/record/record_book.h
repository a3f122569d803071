// RecordBook: puts together what the root hears of an epoch (captures, flushes, its end) into one record
// each. Pure: no threads, clocks or files.
//
// A record is whole when the epoch has ended and, if it was committed, every node has told of its flush. A
// failed epoch's is whole at its end: not every node has begun with it. Bounded: of more than most_open
// epochs the oldest is given out as it is.
#pragma once

#include <map>
#include <vector>

#include "flush/recent_keys.h"
#include "record/records.h"

namespace tailrace::internal {

class RecordBook {
  public:
    static constexpr size_t most_open = 64;
    explicit RecordBook(size_t nodes) : nodes_(nodes) {}

    void captured(EpochKey key, const CaptureNumbers& numbers);  // of one node
    void flushed(EpochKey key, NodeRecord node);
    // Everything of `ended` but captures and nodes.
    void ended(EpochRecord ended);

    // Whole ones, in the order in which they became so.
    std::vector<EpochRecord> take_whole() { return std::exchange(whole_, {}); }
    // Ended ones that still miss a node, for when nobody will tell more.
    std::vector<EpochRecord> take_rest();
    bool waiting() const;  // is there such a one

  private:
    struct Open {
        EpochRecord record;
        bool ended = false;
    };
    Open* find(EpochKey key);
    void check(EpochKey key);
    void give_out(std::map<EpochKey, Open>::iterator open);

    const size_t nodes_;
    std::map<EpochKey, Open> open_;
    RecentKeys over_;
    std::vector<EpochRecord> whole_;
};

}  // namespace tailrace::internal
