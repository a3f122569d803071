#include "aggregate/leader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"

namespace tailrace::internal {

namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

OpenOptions opening(const AggregatorOptions& options) {
    OpenOptions how{Access::write, options.direct};
    how.rights = options.file_rights;
    return how;
}

}  // namespace

Leader::Leader(NodeServices& services, std::shared_ptr<const FlushPlan> plan,
               std::shared_ptr<LocalReader> reader, uint32_t& credit_counter)
    : services_(services),
      plan_(std::move(plan)),
      reader_(std::move(reader)),
      segment_(std::make_shared<SegmentWriter>(
          plan_, static_cast<uint32_t>(plan_->leader_index(services.node)), services.shared,
          services.options.shared_dir, opening(services.options), services.throttle,
          services.options.working_name)),
      credit_counter_(credit_counter) {
    statistics_.leader = true;
    statistics_.writers.resize(services.writers.thread_count());
    const std::vector<int> assigned = assigned_leaders(*plan_);
    const int self = plan_->leader_index(services_.node);
    INVARIANT(self >= 0 && assigned.size() == plan_->offers.size());
    for (size_t place = 0; place < plan_->offers.size(); ++place) {
        const NodeOffer& offer = plan_->offers[place];
        if (plan_->leader_index(offer.node) >= 0) continue;
        if (assigned[place] == self || assigned[place] == any_leader)
            book_.add(offer.node, chunk_count(offer, plan_->chunk_bytes));
        if (assigned[place] == any_leader && plan_->leaders.size() > 1) followers_choose_ = true;
    }
}

bool Leader::step(bool may_take_buffers) {
    COSTLY_INVARIANT(!failure_.ok() || credits_.size() == book_.open());
    bool moved = test_receives();
    if (stage_ == Stage::waiting) {
        if (!failure_.ok()) {
            enter(Stage::done);
            return true;
        }
        if (!may_take_buffers) return moved;
        begin_preparing();
        moved = true;
    }
    if (!failure_.ok()) ready_.clear();
    if (stage_ == Stage::preparing && file_tasks_ == 0) {
        enter(Stage::moving);
        moved = true;
    }
    if (stage_ == Stage::preparing || stage_ == Stage::moving) {
        if (failure_.ok() && may_take_buffers) moved = grant_credits() || moved;
        if (failure_.ok() && stage_ == Stage::moving) {
            moved = write_received() || moved;
            if (may_take_buffers) moved = write_local() || moved;
        }
        if (stage_ == Stage::moving && nothing_in_flight()) {
            if (!failure_.ok()) {
                enter(Stage::done);
                moved = true;
            } else if (book_.all_exhausted() && !local_remains()) {
                begin_committing();
                moved = true;
            }
        }
    }
    if (stage_ == Stage::committing && file_tasks_ == 0) {
        if (slots_begun_ || !failure_.ok()) {
            enter(Stage::done);
            moved = true;
        } else if (allowed_) {
            write_slots();
            moved = true;
        }
    }
    return moved;
}

bool Leader::nothing_in_flight() const {
    return credits_.empty() && receives_.empty() && ready_.empty() && remote_tasks_ == 0 && local_tasks_ == 0;
}

void Leader::fail(const Status& why) {
    if (!failure_.ok()) return;
    failure_ = why;
    segment_->abandon();
}

// ---- what it cost -------------------------------------------------------------------------------

void Leader::enter(Stage stage) {
    INVARIANT(stage > stage_);
    note_step("leader of epoch enters stage", plan_->key.epoch, static_cast<uint64_t>(stage));
    const auto now = Clock::now();
    const double spent = seconds_between(stage_began_, now);
    using Kind = FlushEvent::Kind;
    Kind kind = Kind::plan;
    switch (stage_) {
        case Stage::waiting:
            statistics_.plan_seconds = spent;
            break;
        case Stage::preparing:
            statistics_.prepare_seconds = spent;
            kind = Kind::prepare;
            break;
        case Stage::moving:
            statistics_.move_seconds = spent;
            kind = Kind::move;
            break;
        case Stage::committing:
            statistics_.commit_seconds = spent;
            kind = Kind::commit;
            break;
        case Stage::done:
            return;
    }
    note_event({kind, -1, stage_began_, now, 0, 0});
    stage_ = stage;
    stage_began_ = now;
}

void Leader::note_event(const FlushEvent& event) {
    if (services_.options.trace && statistics_.events.size() < max_flush_events)
        statistics_.events.push_back(event);
}

void Leader::note_write(const Chunk& chunk, bool is_local) {
    WriterStatistics& writer = statistics_.writers[chunk.writer];
    const double spent = seconds_between(chunk.write_begin, chunk.write_end);
    statistics_.write_seconds += spent;
    if (is_local) {
        statistics_.local_bytes += chunk.bytes;
        writer.local_bytes += chunk.bytes;
        ++writer.local_chunks;
        writer.local_write_seconds += spent;
        writer.read_seconds += seconds_between(chunk.read_begin, chunk.write_begin);
    } else {
        const auto waited =
            std::chrono::duration_cast<std::chrono::microseconds>(chunk.write_begin - chunk.ready);
        const auto waited_us = static_cast<uint64_t>(waited.count());
        statistics_.chunk_wait_us += waited_us;
        statistics_.largest_chunk_wait_us = std::max(statistics_.largest_chunk_wait_us, waited_us);
        writer.received_bytes += chunk.bytes;
        ++writer.received_chunks;
        writer.received_write_seconds += spent;
    }
    const int number = static_cast<int>(chunk.writer);
    using Kind = FlushEvent::Kind;
    if (is_local)
        note_event({Kind::read, number, chunk.read_begin, chunk.write_begin, chunk.bytes, chunk.rank});
    note_event({is_local ? Kind::write_local : Kind::write_received, number, chunk.write_begin,
                chunk.write_end, chunk.bytes, chunk.rank});
}

// ---- files --------------------------------------------------------------------------------------

void Leader::submit_for_each_file(std::function<Status(SegmentWriter&, uint32_t file)> work) {
    for (uint32_t file = 0; file < segment_->file_count(); ++file) {
        ++file_tasks_;
        services_.writers.submit(
            Urgency::urgent, [segment = segment_, file, work] { return work(*segment, file); },
            [this](const Status& outcome) {
                INVARIANT(file_tasks_ > 0);
                --file_tasks_;
                if (!outcome.ok()) fail(services_.here(outcome));
            });
    }
}

void Leader::begin_preparing() {
    enter(Stage::preparing);
    submit_for_each_file([](SegmentWriter& segment, uint32_t file) { return segment.prepare(file); });
}

void Leader::begin_committing() {
    INVARIANT(failure_.ok() && nothing_in_flight() && book_.all_exhausted());
    enter(Stage::committing);
    slots_begun_ = allowed_;
    submit_for_each_file([and_commit = allowed_](SegmentWriter& segment, uint32_t file) {
        Status sealed = segment.seal(file);
        return sealed.ok() && and_commit ? segment.commit(file) : sealed;
    });
}

void Leader::write_slots() {
    INVARIANT(allowed_ && !slots_begun_ && failure_.ok());
    slots_begun_ = true;
    submit_for_each_file([](SegmentWriter& segment, uint32_t file) { return segment.commit(file); });
}

// ---- followers' data ----------------------------------------------------------------------------

bool Leader::grant_credits() {
    const size_t buffers = services_.pool.count();
    const size_t kept_for_local =
        local_remains() ? std::min<size_t>(services_.writers.thread_count(), buffers / 2) : 0;
    const size_t max_remote =
        followers_choose_ ? std::min(window_, buffers - kept_for_local) : buffers - kept_for_local;
    bool moved = false;
    while (remote_buffers() < max_remote && book_.may_grant()) {
        if (buffers == 1 && local_remains() && turn_of_local_) break;
        Buffer buffer = services_.pool.try_take();
        if (!buffer.valid()) break;
        const int node = *book_.next();
        const uint32_t credit = credit_counter_++;
        book_.grant(node);
        const bool fresh = credits_.emplace(credit, Reserved{node, std::move(buffer)}).second;
        INVARIANT(fresh && remote_buffers() <= buffers);
        services_.tell(node, CreditMessage{plan_->key, credit});
        turn_of_local_ = true;
        moved = true;
    }
    return moved;
}

void Leader::take(int node, const ChunkMessage& message) {
    auto open = credits_.find(message.credit);
    if (open == credits_.end() || open->second.node != node) {
        return fail(
            Status(Code::failed_state, fmt::format("{}: node {} answered credit {}, which it does not have",
                                                   to_string(plan_->key), node, message.credit)));
    }
    auto chunk = std::make_shared<Chunk>();
    chunk->rank = message.rank;
    chunk->stream_offset = message.stream_offset;
    chunk->bytes = message.bytes;
    chunk->buffer = std::move(open->second.buffer);
    credits_.erase(open);
    book_.take_chunk(node);
    if (Status wrong = check_chunk(node, message); !wrong.ok()) {
        fail(wrong);
        // What was sent must be received all the same, otherwise its sender waits for ever.
        if (message.bytes > chunk->buffer.memory().size()) chunk->bytes = chunk->buffer.memory().size();
    }
    chunk->begin = Clock::now();
    // Its place in the list comes first: with no memory for that, nothing may be under way.
    std::list<Orphan> one;
    one.push_back({chunk, nullptr, node});
    auto transfer =
        services_.transport.start_receive(services_.rank_of(node), data_tag(message.credit), chunk->data());
    if (!transfer.ok()) return services_.broken(transfer.status());
    one.front().transfer = std::move(transfer).value();
    receives_.splice(receives_.end(), one);
}

Status Leader::check_chunk(int node, const ChunkMessage& message) const {
    const NodeOffer& offer = plan_->offers[static_cast<size_t>(node - plan_->group.first_node)];
    for (const StreamInfo& stream : offer.streams) {
        if (stream.rank != message.rank) continue;
        if (message.stream_offset < stream.stream_bytes && message.stream_offset % plan_->chunk_bytes == 0 &&
            message.bytes == std::min(plan_->chunk_bytes, stream.stream_bytes - message.stream_offset))
            return Status();
    }
    return Status(
        Code::failed_state,
        fmt::format("{}: node {} sent bytes {} to {} of rank {}, which is not a chunk of what it offered",
                    to_string(plan_->key), node, message.stream_offset, message.stream_offset + message.bytes,
                    message.rank));
}

void Leader::take(int node, const EmptyMessage& message) {
    auto open = credits_.find(message.credit);
    if (open == credits_.end() || open->second.node != node) return;
    credits_.erase(open);
    book_.take_empty(node);
    if (!message.why.ok()) fail(message.why);
}

bool Leader::test_receives() {
    bool moved = false;
    for (auto receive = receives_.begin(); receive != receives_.end();) {
        auto done = receive->transfer->test();
        if (!done.ok() && !receive->transfer->take_back()) {
            // The transfer stays with its buffer, which the transport may still write to, until
            // disconnect() takes it.
            services_.broken(done.status());
            return moved;
        }
        if (done.ok() && !done->has_value()) {
            ++receive;
            continue;
        }
        auto chunk = std::move(receive->chunk);
        const int node = receive->node;
        receive = receives_.erase(receive);
        moved = true;
        if (!done.ok()) {
            fail(done.status());
        } else if (**done != chunk->bytes) {
            fail(Status(Code::transport,
                        fmt::format("{}: node {} announced {} bytes of rank {} at {} but sent {}",
                                    to_string(plan_->key), node, chunk->bytes, chunk->rank,
                                    chunk->stream_offset, **done)));
        } else {
            statistics_.received_bytes += chunk->bytes;
            ++statistics_.chunks_received;
            chunk->ready = Clock::now();
            note_event(
                {FlushEvent::Kind::receive, -1, chunk->begin, chunk->ready, chunk->bytes, chunk->rank});
            ready_.push_back(std::move(chunk));
        }
    }
    return moved;
}

bool Leader::write_received() {
    const bool any = !ready_.empty();
    while (!ready_.empty()) {
        submit_write(std::move(ready_.front()), std::nullopt);
        ready_.pop_front();
    }
    return any;
}

// ---- local data ---------------------------------------------------------------------------------

bool Leader::write_local() {
    const size_t buffers = services_.pool.count();
    // With one chunk at work and one waiting for each writer, the writers stay busy between two
    // steps.
    const size_t max_tasks = 2 * size_t{services_.writers.thread_count()};
    bool moved = false;
    while (local_remains() && local_tasks_ < max_tasks) {
        if (book_.may_grant() && remote_buffers() == 0) {
            if (buffers > 1 && local_tasks_ + 1 >= buffers) break;
            if (buffers == 1 && !turn_of_local_) break;
        }
        Buffer buffer = services_.pool.try_take();
        if (!buffer.valid()) break;
        const LocalChunk piece = *reader_->next();
        auto chunk = std::make_shared<Chunk>();
        chunk->rank = piece.rank;
        chunk->stream_offset = piece.stream_offset;
        chunk->bytes = piece.bytes;
        chunk->buffer = std::move(buffer);
        submit_write(std::move(chunk), piece);
        turn_of_local_ = false;
        moved = true;
    }
    return moved;
}

// `local`: set if the chunk must be read first.
void Leader::submit_write(std::shared_ptr<Chunk> chunk, std::optional<LocalChunk> local) {
    const bool is_local = local.has_value();
    INVARIANT(stage_ == Stage::moving && chunk->bytes <= chunk->buffer.memory().size());
    ++(is_local ? local_tasks_ : remote_tasks_);
    services_.writers.submit(
        is_local ? Urgency::relaxed : Urgency::urgent,
        [reader = reader_, segment = segment_, chunk, local, block_bytes = plan_->block_bytes]() -> Status {
            chunk->writer = WriterPool::this_thread();
            chunk->read_begin = chunk->write_begin = chunk->write_end = Clock::now();
            LocalBytes source{nullptr, {}, chunk->bytes};
            if (local) {
                TAILRACE_ASSIGN(source, reader->fetch(*local, block_bytes, chunk->data()));
                chunk->write_begin = Clock::now();
            }
            const Status written = segment->write(chunk->rank, chunk->stream_offset, source.blocks,
                                                  chunk->buffer.memory(), source.buffered_bytes);
            chunk->write_end = Clock::now();
            if (local && !written.ok()) return reader->reason(*local, source, written, chunk->data());
            return written;
        },
        [this, chunk, is_local](const Status& outcome) {
            INVARIANT((is_local ? local_tasks_ : remote_tasks_) > 0);
            --(is_local ? local_tasks_ : remote_tasks_);
            if (!outcome.ok()) return fail(services_.here(outcome));
            if (!is_local) ++window_;
            note_write(*chunk, is_local);
        });
}

FlushStatistics Leader::statistics() const {
    INVARIANT(done());
    FlushStatistics statistics = statistics_;
    statistics.sync_seconds = segment_->sync_seconds();
    for (WriterStatistics& writer : statistics.writers) {
        const double busy = writer.read_seconds + writer.local_write_seconds + writer.received_write_seconds;
        writer.idle_seconds = std::max(0.0, statistics.move_seconds - busy);
    }
    return statistics;
}

void Leader::disconnect(std::list<Orphan>& orphans) {
    credits_.clear();
    orphans.splice(orphans.end(), receives_);
}

}  // namespace tailrace::internal
