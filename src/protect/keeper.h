// Keeper: makes this node's object of an epoch from what the other members send.
//
// The way of a buffer:  pool -> a block's sum;  pool -> reserved for an ask -> receive -> added to the
// sum -> pool. Two blocks are under way at a time, so that one is written while the other comes. A
// block's arrivals are added in any order by one task at a time; the last task writes the block.
//
// Belongs to the driving thread; the tasks run on the pool's threads. Must not be destroyed while a
// task of it runs. `tell` and `broken` are called from step() only.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "aggregate/writer_pool.h"
#include "memory/buffer_pool.h"
#include "protect/messages.h"
#include "protect/protect_object.h"
#include "protect/protector.h"
#include "protect/set_layout.h"
#include "threads/executor.h"
#include "transport/transport.h"

namespace tailrace::internal {

// A buffer and the transfer that fills or empties it.
struct KeptTransfer {
    std::shared_ptr<Buffer> buffer;
    std::unique_ptr<Transfer> transfer;
};

struct KeeperServices {
    Transport& transport;
    BufferPool& pool;  // for sums and receives
    WriterPool& workers;
    std::function<int(uint32_t position)> rank_of;
    std::function<void(uint32_t position, const ProtectMessage&)> tell;
    std::function<void(const Status&)> broken;  // a call of the transport has failed
    uint32_t& numbers;                          // counts the asks of all epochs of this node
};

class Keeper {
  public:
    Keeper(KeeperServices services, std::shared_ptr<const SetLayout> layout, uint32_t position,
           std::shared_ptr<ObjectWriter> writer);

    void take(uint32_t position, const DataMessage& message);
    void take(uint32_t position, const RefusedMessage& message);
    // Nothing new is begun. What was asked for is still waited for.
    void fail(const Status& why);

    // May begin something new only if `may_begin`.
    bool step(bool may_begin);

    const Status& failure() const { return failure_; }
    bool made() const { return made_; }  // the whole object is written, under its unfinished name
    bool nothing_in_flight() const { return asks_.empty() && receives_.empty() && tasks_ == 0; }
    bool moving() const { return !asks_.empty() || !receives_.empty(); }

    // The transport is broken: hands over what it may still write to, and waits for nobody.
    void disconnect(std::list<KeptTransfer>& orphans);

  private:
    struct Source {
        uint32_t from = 0;
        SetLayout::Share share;
    };
    struct Arrival {
        uint8_t factor = 1;
        uint64_t bytes = 0;
        std::shared_ptr<Buffer> buffer;
    };
    struct Block {
        uint32_t piece = 0;
        uint64_t offset = 0, bytes = 0;
        Buffer sum;
        std::deque<Source> to_ask;
        size_t asked = 0;  // asks without data yet
        std::vector<Arrival> arrived;
        bool begun = false;  // the sum has a value
        bool busy = false;   // a task works on it
    };
    struct Ask {
        std::shared_ptr<Block> block;
        Source source;
        std::shared_ptr<Buffer> buffer;
    };
    struct Receive {
        Ask ask;
        std::unique_ptr<Transfer> transfer;
    };
    bool test_receives();
    bool begin_blocks();
    bool ask();
    bool submit_sums();
    void submit(std::shared_ptr<Block> block);
    Ask take_ask(uint32_t position, uint32_t number);

    const KeeperServices services_;
    const std::shared_ptr<const SetLayout> layout_;
    const uint32_t position_;
    const std::shared_ptr<ObjectWriter> writer_;
    uint32_t next_piece_ = 0;
    uint64_t next_offset_ = 0;
    std::deque<std::shared_ptr<Block>> blocks_;
    std::map<uint32_t, Ask> asks_;  // by number
    std::list<Receive> receives_;
    size_t tasks_ = 0;
    bool made_ = false;
    Status failure_;
};

// What a protector knows of an epoch that it has begun.
struct EpochUnderWay {
    ProtectJob job;
    SteadyClock::time_point started = SteadyClock::now();
    std::map<uint32_t, std::vector<StreamInfo>> tables;  // by position, this node's own included
    std::shared_ptr<LogicalPart> part;
    std::shared_ptr<const SetLayout> layout;
    std::shared_ptr<ObjectWriter> writer;
    std::unique_ptr<Keeper> keeper;
    std::set<uint32_t> done;  // members that have their objects
    Status failure;           // once it is set, nothing new is begun
    size_t giving = 0;        // reads and sends for other members
    size_t tasks = 0;         // on the object as a whole
    bool finishing = false, discarding = false, discarded = false;
    uint64_t sent_bytes = 0;

    const EpochKey& key() const { return job.identity.key; }
    bool made() const { return keeper && keeper->made(); }
    bool nothing_in_flight() const {
        return giving == 0 && tasks == 0 && (!keeper || keeper->nothing_in_flight());
    }
};

}  // namespace tailrace::internal
