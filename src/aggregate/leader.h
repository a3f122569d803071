// Leader: a node's work on an epoch that it leads (Algorithms 3 and 5).
//
// The way of a buffer:  pool -> reserved for a follower's credit -> receive -> write queue -> pool
//                  or:  pool -> local chunk read and written by a writer -> pool
// Received chunks are written before local ones. While local data remains, min(writers, half of the
// buffers) are kept back for it, so that slow followers cannot stop the writers. While a follower
// may still send, local data leaves at least one buffer for it. With a single buffer the two take
// turns.
//
// Where followers may send to any of several leaders, a leader holds at most `window_` of their
// chunks: two at first, and one more for each chunk that it has written. So chunks go to the leader
// that writes them soonest. A leader with a slow link or disk does not get chunks that others would
// have written long before it.
//
// Stages: waiting -> preparing (files are made; buffers fill already) -> moving -> committing ->
// done. Slots are written only after allow(). Data and index do not wait for it. After a failure
// nothing new is begun. The leader is done when everything that had begun has ended: credits are
// answered, receives are complete, and tasks have run.
//
// Belongs to the driving thread. Must not be destroyed before done(), except at the end of the
// program.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>

#include "aggregate/credit_book.h"
#include "aggregate/local_reader.h"
#include "aggregate/node_services.h"
#include "aggregate/segment_writer.h"

namespace tailrace::internal {

class Leader {
  public:
    // `credit_counter` numbers the credits of all epochs of this node.
    Leader(NodeServices& services, std::shared_ptr<const FlushPlan> plan, std::shared_ptr<LocalReader> reader,
           uint32_t& credit_counter);

    void take(int node, const ChunkMessage& message);
    void take(int node, const EmptyMessage& message);
    void fail(const Status& why);
    void allow() { allowed_ = true; }

    bool step(bool may_take_buffers);

    bool wants_buffers() const { return stage_ <= Stage::moving; }
    bool done() const { return stage_ == Stage::done; }
    bool moving() const { return !credits_.empty() || !receives_.empty(); }
    const Status& failure() const { return failure_; }
    SegmentWriter& segment() { return *segment_; }
    // Call it once done. Leaves `seconds` to the caller.
    FlushStatistics statistics() const;
    uint64_t bytes_written() const { return statistics_.local_bytes + statistics_.received_bytes; }

    void disconnect(std::list<Orphan>& orphans);

  private:
    enum class Stage { waiting, preparing, moving, committing, done };
    struct Reserved {
        int node = 0;
        Buffer buffer;
    };
    void enter(Stage stage);
    void note_write(const Chunk& chunk, bool is_local);
    void note_event(const FlushEvent& event);
    void begin_preparing();
    void begin_committing();
    void write_slots();
    // Works on all files at once. A failure fails the leader.
    void submit_for_each_file(std::function<Status(SegmentWriter&, uint32_t file)> work);
    bool test_receives();
    bool grant_credits();
    bool write_received();
    bool write_local();
    bool nothing_in_flight() const;
    void submit_write(std::shared_ptr<Chunk> chunk, std::optional<LocalChunk> local);
    Status check_chunk(int node, const ChunkMessage& message) const;
    bool local_remains() const { return !reader_->at_end(); }
    size_t remote_buffers() const {
        return credits_.size() + receives_.size() + ready_.size() + remote_tasks_;
    }

    NodeServices& services_;
    const std::shared_ptr<const FlushPlan> plan_;
    const std::shared_ptr<LocalReader> reader_;
    const std::shared_ptr<SegmentWriter> segment_;
    uint32_t& credit_counter_;
    CreditBook book_;

    Stage stage_ = Stage::waiting;
    bool allowed_ = false;
    bool slots_begun_ = false;
    Status failure_;
    std::map<uint32_t, Reserved> credits_;  // open ones
    std::list<Orphan> receives_;
    std::deque<std::shared_ptr<Chunk>> ready_;  // the write queue, until the files are made
    size_t remote_tasks_ = 0;                   // received chunks that the writers have
    size_t window_ = 2;                         // the most remote buffers, if followers choose
    bool followers_choose_ = false;
    size_t local_tasks_ = 0;     // local chunks that the writers have
    size_t file_tasks_ = 0;      // files being prepared or committed
    bool turn_of_local_ = true;  // with a single buffer: local data comes next
    FlushStatistics statistics_;
    Clock::time_point stage_began_ = Clock::now();
};

}  // namespace tailrace::internal
