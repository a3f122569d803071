// Follower: a node's work on an epoch that it does not lead (Algorithm 2).
//
// It answers credits of all leaders in the order of arrival: with a chunk while it has data,
// otherwise with EMPTY. So a leader that frees buffers faster gets more data. A writer thread reads
// each chunk into a buffer of this node; then the chunk is announced and sent. This takes at most
// max_in_flight buffers, whatever the size of the streams. After a failure every answer is EMPTY
// with the reason.
//
// Belongs to the driving thread. Must not be destroyed before nothing_in_flight(), except at the
// end of the program.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "aggregate/local_reader.h"
#include "aggregate/node_services.h"

namespace tailrace::internal {

class Follower {
  public:
    // One chunk is read while another is sent.
    static constexpr size_t max_in_flight = 2;

    Follower(NodeServices& services, EpochKey key, std::shared_ptr<LocalReader> reader)
        : services_(services), key_(key), reader_(std::move(reader)) {}

    void take_credit(int leader_node, uint32_t credit) { credits_.push_back({leader_node, credit}); }
    void fail(const Status& why);

    // Moves what can move, and returns whether something moved. `may_take_buffers`: no earlier
    // epoch of this node needs buffers any more.
    bool step(bool may_take_buffers);

    bool wants_buffers() const { return failure_.ok() && !reader_->at_end(); }
    bool nothing_in_flight() const { return reading_ == 0 && sends_.empty(); }
    bool moving() const { return !sends_.empty() || wants_buffers(); }
    const Status& failure() const { return failure_; }
    FlushStatistics statistics() const { return statistics_; }

    // The transport is gone: gives up what is in flight.
    void disconnect(std::list<Orphan>& orphans);

  private:
    struct Credit {
        int leader_node = 0;
        uint32_t number = 0;
    };
    bool test_sends();
    void note_waiting();
    bool answer_credits(bool may_take_buffers);
    void begin_read(Credit credit, Buffer buffer);
    void send(Credit credit, std::shared_ptr<Chunk> chunk);
    void answer_empty(Credit credit);

    NodeServices& services_;
    const EpochKey key_;
    const std::shared_ptr<LocalReader> reader_;
    std::deque<Credit> credits_;
    size_t reading_ = 0;
    std::list<Orphan> sends_;  // the chunks that are being sent
    FlushStatistics statistics_;
    std::optional<Clock::time_point> waits_since_;  // since when it has waited for a credit
    Status failure_;
};

}  // namespace tailrace::internal
