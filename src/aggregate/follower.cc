#include "aggregate/follower.h"

#include <fmt/format.h>

#include "base/invariant.h"

namespace tailrace::internal {

void Follower::fail(const Status& why) {
    if (failure_.ok()) failure_ = why;
}

bool Follower::step(bool may_take_buffers) {
    const bool sent = test_sends();
    const bool answered = answer_credits(may_take_buffers);
    note_waiting();
    return answered || sent;
}

// Counts the time in which this node has data, nothing is on its way, and no leader has asked.
void Follower::note_waiting() {
    const bool waits = wants_buffers() && credits_.empty() && nothing_in_flight();
    if (waits == waits_since_.has_value()) return;
    const auto now = Clock::now();
    if (waits) {
        waits_since_ = now;
    } else {
        statistics_.credit_wait_seconds += std::chrono::duration<double>(now - *waits_since_).count();
        waits_since_.reset();
    }
}

bool Follower::test_sends() {
    bool moved = false;
    for (auto send = sends_.begin(); send != sends_.end();) {
        auto done = send->transfer->test();
        if (!done.ok()) {
            // The transfer stays with its buffer, which the transport may still read, until
            // disconnect() takes it.
            services_.broken(done.status());
            return moved;
        }
        if (!done->has_value()) {
            ++send;
            continue;
        }
        statistics_.sent_bytes += **done;
        ++statistics_.chunks_sent;
        const Chunk& chunk = *send->chunk;
        if (services_.options.trace && statistics_.events.size() < max_flush_events)
            statistics_.events.push_back(
                {FlushEvent::Kind::send, -1, chunk.begin, Clock::now(), chunk.bytes, chunk.rank});
        send = sends_.erase(send);
        moved = true;
    }
    return moved;
}

bool Follower::answer_credits(bool may_take_buffers) {
    bool moved = false;
    while (!credits_.empty()) {
        if (!wants_buffers()) {
            answer_empty(credits_.front());
        } else {
            if (!may_take_buffers || reading_ + sends_.size() >= max_in_flight) break;
            Buffer buffer = services_.pool.try_take();
            if (!buffer.valid()) break;
            begin_read(credits_.front(), std::move(buffer));
        }
        credits_.pop_front();
        moved = true;
    }
    return moved;
}

void Follower::begin_read(Credit credit, Buffer buffer) {
    const LocalChunk piece = *reader_->next();
    INVARIANT(piece.bytes <= buffer.memory().size() && reading_ + sends_.size() < max_in_flight);
    auto chunk = std::make_shared<Chunk>();
    chunk->rank = piece.rank;
    chunk->stream_offset = piece.stream_offset;
    chunk->bytes = piece.bytes;
    chunk->buffer = std::move(buffer);
    ++reading_;
    services_.writers.submit(
        Urgency::urgent, [reader = reader_, piece, chunk] { return reader->read(piece, chunk->data()); },
        [this, credit, chunk](const Status& outcome) {
            INVARIANT(reading_ > 0);
            --reading_;
            if (!outcome.ok()) fail(services_.here(outcome));
            if (failure_.ok()) {
                send(credit, chunk);
            } else {
                answer_empty(credit);
            }
        });
}

void Follower::send(Credit credit, std::shared_ptr<Chunk> chunk) {
    INVARIANT(failure_.ok());  // what could not be read is not sent
    chunk->begin = Clock::now();
    // Its place in the list comes first: with no memory for that, nothing may be under way.
    std::list<Orphan> one;
    one.push_back({chunk, nullptr, credit.leader_node});
    services_.tell(credit.leader_node,
                   ChunkMessage{key_, credit.number, chunk->rank, chunk->stream_offset, chunk->bytes});
    auto transfer = services_.transport.start_send(services_.rank_of(credit.leader_node),
                                                   data_tag(credit.number), chunk->data());
    if (!transfer.ok()) return services_.broken(transfer.status());
    one.front().transfer = std::move(transfer).value();
    sends_.splice(sends_.end(), one);
}

void Follower::answer_empty(Credit credit) {
    INVARIANT(!wants_buffers());  // whoever hears EMPTY asks no more
    services_.tell(credit.leader_node, EmptyMessage{key_, credit.number, failure_});
}

void Follower::disconnect(std::list<Orphan>& orphans) {
    credits_.clear();
    orphans.splice(orphans.end(), sends_);
}

}  // namespace tailrace::internal
