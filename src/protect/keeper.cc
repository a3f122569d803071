#include "protect/keeper.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "protect/coding.h"
#include "protect/protector.h"

namespace tailrace::internal {

Keeper::Keeper(KeeperServices services, std::shared_ptr<const SetLayout> layout, uint32_t position,
               std::shared_ptr<ObjectWriter> writer)
    : services_(std::move(services)),
      layout_(std::move(layout)),
      position_(position),
      writer_(std::move(writer)) {}

void Keeper::fail(const Status& why) {
    if (failure_.ok()) failure_ = why;
}

bool Keeper::step(bool may_begin) {
    bool moved = test_receives();
    if (failure_.ok()) {
        if (may_begin) moved = begin_blocks() || moved;
        moved = ask() || moved;
        moved = submit_sums() || moved;
        const bool all_begun = next_piece_ == layout_->pieces() || layout_->piece_bytes(position_) == 0;
        if (!made_ && may_begin && all_begun && blocks_.empty()) made_ = moved = true;
    } else if (nothing_in_flight()) {
        blocks_.clear();
    }
    return moved;
}

bool Keeper::begin_blocks() {
    bool moved = false;
    const uint64_t piece_bytes = layout_->piece_bytes(position_);
    while (blocks_.size() < protect_sums && next_piece_ < layout_->pieces() && piece_bytes > 0) {
        Buffer sum = services_.pool.try_take();
        if (!sum.valid()) break;
        auto block = std::make_shared<Block>();
        block->piece = next_piece_;
        block->offset = next_offset_;
        block->bytes = std::min(protect_buffer_bytes, piece_bytes - next_offset_);
        block->sum = std::move(sum);
        for (uint32_t from = 0; from < layout_->members(); ++from) {
            if (from == position_) continue;
            const auto share = layout_->share(from, position_, block->piece, block->offset, block->bytes);
            if (share.bytes > 0) block->to_ask.push_back({from, share});
        }
        blocks_.push_back(std::move(block));
        next_offset_ += protect_buffer_bytes;
        if (next_offset_ >= piece_bytes) {
            ++next_piece_;
            next_offset_ = 0;
        }
        moved = true;
    }
    return moved;
}

bool Keeper::ask() {
    bool moved = false;
    for (const auto& block : blocks_)
        while (!block->to_ask.empty() && asks_.size() + receives_.size() < protect_receives) {
            auto buffer = std::make_shared<Buffer>(services_.pool.try_take());
            if (!buffer->valid()) return moved;
            const Source source = block->to_ask.front();
            block->to_ask.pop_front();
            ++block->asked;
            const uint32_t number = services_.numbers++;
            asks_[number] = {block, source, std::move(buffer)};
            services_.tell(source.from, AskMessage{writer_->head().identity.key, number, source.share.offset,
                                                   source.share.bytes});
            moved = true;
        }
    return moved;
}

Keeper::Ask Keeper::take_ask(uint32_t position, uint32_t number) {
    const auto open = asks_.find(number);
    if (open == asks_.end() || open->second.source.from != position) {
        fail(Status(Code::failed_state, fmt::format("node {} answered request {}, which was not sent to it",
                                                    layout_->node_at(position), number)));
        return {};
    }
    Ask ask = std::move(open->second);
    asks_.erase(open);
    return ask;
}

void Keeper::take(uint32_t position, const DataMessage& message) {
    Ask ask = take_ask(position, message.number);
    if (!ask.block) return;
    auto transfer =
        services_.transport.start_receive(services_.rank_of(position), protect_tag(message.number),
                                          ask.buffer->memory().first(ask.source.share.bytes));
    if (!transfer.ok()) return services_.broken(transfer.status());
    receives_.push_back({std::move(ask), std::move(transfer).value()});
}

void Keeper::take(uint32_t position, const RefusedMessage& message) {
    const Ask ask = take_ask(position, message.number);
    if (!ask.block) return;
    if (!message.why.ok()) return fail(message.why);
    fail(Status(Code::aborted, fmt::format("node {} sends no more of it", layout_->node_at(position))));
}

bool Keeper::test_receives() {
    bool moved = false;
    for (auto receive = receives_.begin(); receive != receives_.end();) {
        auto done = receive->transfer->test();
        if (!done.ok()) {
            // The transfer stays with its buffer, which the transport may still write to, until
            // disconnect() takes it.
            services_.broken(done.status());
            return moved;
        }
        if (!done->has_value()) {
            ++receive;
            continue;
        }
        Ask& ask = receive->ask;
        if (**done != ask.source.share.bytes)
            fail(Status(Code::failed_state,
                        fmt::format("node {} sent {} bytes instead of {}", layout_->node_at(ask.source.from),
                                    **done, ask.source.share.bytes)));
        INVARIANT(ask.block->asked > 0);
        --ask.block->asked;
        ask.block->arrived.push_back(
            {ask.source.share.factor, ask.source.share.bytes, std::move(ask.buffer)});
        receive = receives_.erase(receive);
        moved = true;
    }
    return moved;
}

bool Keeper::submit_sums() {
    bool moved = false;
    for (const auto& block : blocks_) {
        const bool all_here = block->to_ask.empty() && block->asked == 0;
        if (block->busy || (block->arrived.empty() && !all_here)) continue;
        submit(block);
        moved = true;
    }
    return moved;
}

void Keeper::submit(std::shared_ptr<Block> block) {
    block->busy = true;
    const bool last = block->to_ask.empty() && block->asked == 0;
    const bool first = !std::exchange(block->begun, true);
    auto arrived = std::make_shared<std::vector<Arrival>>(std::move(block->arrived));
    block->arrived.clear();
    ++tasks_;
    services_.workers.submit(
        Urgency::urgent,
        [block, arrived, first, last, writer = writer_] {
            std::vector<Product> products;
            for (const auto& arrival : *arrived)
                products.push_back({arrival.factor, arrival.buffer->memory().first(arrival.bytes)});
            std::span<const std::byte> result = block->sum.memory().first(block->bytes);
            const bool alone = first && last && products.size() == 1 && products[0].factor == 1 &&
                               products[0].source.size() == block->bytes;
            if (alone)
                result = products[0].source;  // a copy needs no sum
            else if (first)
                set_to_sum(products, block->sum.memory().first(block->bytes));
            else
                add_sum(products, block->sum.memory().first(block->bytes));
            return last ? writer->write(block->piece, block->offset, result) : Status();
        },
        [this, block, arrived, last](const Status& outcome) {
            arrived->clear();  // buffers go back here, in the driving thread
            INVARIANT(tasks_ > 0 && block->busy);
            --tasks_;
            block->busy = false;
            fail(outcome);
            if (last) std::erase(blocks_, block);
        });
}

void Keeper::disconnect(std::list<KeptTransfer>& orphans) {
    asks_.clear();
    for (auto& receive : receives_)
        orphans.push_back({std::move(receive.ask.buffer), std::move(receive.transfer)});
    receives_.clear();
}

}  // namespace tailrace::internal
